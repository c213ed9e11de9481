"""Connectors that share a topic's partitions in separate processes; during a rebalance one of them is killed."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event

from feed_assets.core.errors import FencedOff
from feed_assets.core.topics import Topic
from feed_assets.kafka import service
from feed_assets_tests.support.kafka_topics import Place
from feed_assets_tests.support.killed_connectors import die, log_puts
from feed_assets_tests.support.servers import wait_until

PARTITIONS = 4
ELDERS, NEWCOMER = ("first", "second"), "third"
LOSING = ("put", "signal", "signalled", "revoke")
"""Points at which the group waits for a member that has partitions: while it signals, or revokes them."""

GAINING = ("begin", "fenced", "opened", "assigned")
"""Points at which a member is given partitions, and others are, too."""

BEGUN, AWAITED, DEAD = "begun", "awaited", "dead"
"""Words of the test: the newcomer starts, the group waits for its members, one member was killed."""


@dataclass(frozen=True)
class Part:
    """Point of a started rebalance at which a member announces itself, and the name that it waits for."""

    point: str
    awaits: str
    is_killed: bool = False


SCENES = [(who, point) for who in ELDERS for point in LOSING + GAINING] + [(NEWCOMER, point) for point in GAINING]
"""Pairs of the member to kill and the point at which it is killed."""


def cast(seed: int) -> tuple[str, dict[str, Part]]:
    """Return the member to kill, and the parts of all: twenty seeds in a row cover all scenes.

    If others are given partitions, too, one of them is in the middle of that.
    """
    victim, point = SCENES[9 * seed % len(SCENES)]
    if point in LOSING:
        return victim, {victim: Part(point, AWAITED, is_killed=True)}
    chance = Random(seed)  # noqa: S311
    other = chance.choice([each for each in (*ELDERS, NEWCOMER) if each != victim])
    return victim, {victim: Part(point, other, is_killed=True), other: Part(chance.choice(GAINING), DEAD)}


def member(place: Place, name: str, topic: Topic, log: Path, said: Path, who: str, part: Part | None) -> None:
    """Run as a member until the end; restart after having been removed for slowness, as the error advises."""

    def at(point: str) -> None:
        if part and point == part.point and (said / BEGUN).exists() and not (said / who).exists():
            (said / who).touch()
            with suppress(TimeoutError):  # On a busy machine the other one may be in another rebalance.
                wait_until((said / part.awaits).exists, part.awaits, 10, 0.005)
            if part.is_killed:
                die()

    def shares(count: int) -> None:
        if 0 < count < PARTITIONS:
            (said / f"{who} shares").touch()

    log_puts(log)
    _tell(at, shares)
    while True:
        with suppress(FencedOff):
            service.run(place.chunking(on_step=at), {name: topic}, Event(), (0.1, 1))


def _tell(at, shares) -> None:
    """Let a session announce its steps."""
    assign, revoke, opened = (
        service.ConnectorSession._assign,
        service.ConnectorSession._revoke,
        service.ConnectorSession._opened,
    )
    signalling = service.signalling

    def assigned(self, consumer, places):
        at("begin")
        assign(self, consumer, places)
        at("assigned")
        shares(len(places))

    def revoked(self, consumer, places):
        at("revoke")
        revoke(self, consumer, places)

    def fenced(*arguments):
        made = signalling(*arguments)
        at("fenced")
        return made

    def one_opened(self, made):
        found = opened(self, made)
        at("opened")
        return found

    service.ConnectorSession._assign, service.ConnectorSession._revoke, service.ConnectorSession._opened = (
        assigned,
        revoked,
        one_opened,
    )
    service.signalling = fenced

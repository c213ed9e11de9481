"""What attempts leave on the blackboard, what becomes of it, and when: the one table for all who remove some of it.

An attempt begins with a claim, and its claim goes last. So the claims that are there are the list of what is
unfinished, whatever the ledger still knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType

from feed_assets.core.feeds import parse_update_id

ORPHANED_AFTER = timedelta(hours=24)
"""What is younger is left alone: somebody may be writing it, or looking into why it was refused."""


class Status(Enum):
    """How the ledger knows the attempt behind an update id."""

    UNKNOWN = "unknown"
    OPEN = "open"
    """Its run is in progress, or has ended and is not reconciled yet."""
    GIVEN_UP = "given up"
    """Refused or abandoned; to `reconcile` also what it is about to give up."""
    DONE = "done"
    """Published, and perhaps invalidated or pruned since."""


class Contents(Enum):
    """What lies under an update id on the blackboard."""

    NOTHING = "nothing"
    PARTS = "parts without a manifest"
    MISCOUNTED = "a manifest that is not right"
    VALID = "a valid update"


class Fate(Enum):
    """What becomes of an update id."""

    KEEP = "keep"
    """Nothing is touched."""
    FORGET = "forget"
    """Only its claim goes: its update is done with, or was never begun."""
    FINISH = "finish"
    """It is valid though its attempt was given up: the ledger gets to know it, the claim goes."""
    SWEEP = "sweep"
    """Its parts go, then its claim."""
    ASK = "ask"
    """Parts of a dead attempt, or of an update that was invalidated by removing its manifest: a person decides."""


_NOTHING, _PARTS, _MISCOUNTED, _VALID = Contents
RULES: Mapping[Status, Mapping[Contents, Fate]] = MappingProxyType(
    {
        Status.OPEN: dict.fromkeys(Contents, Fate.KEEP),
        Status.DONE: dict.fromkeys(Contents, Fate.FORGET),
        Status.GIVEN_UP: {
            _NOTHING: Fate.FORGET,
            _PARTS: Fate.SWEEP,
            _MISCOUNTED: Fate.SWEEP,
            _VALID: Fate.FINISH,
        },
        Status.UNKNOWN: {
            _NOTHING: Fate.FORGET,
            _PARTS: Fate.ASK,
            _MISCOUNTED: Fate.FORGET,
            _VALID: Fate.FORGET,
        },
    }
)


@dataclass(frozen=True)
class KnownAttempt:
    """What the ledger knows of an update id; `ended` is when the run that claimed it did (UTC)."""

    status: Status = Status.UNKNOWN
    ended: datetime | None = None
    reason: str | None = None


def is_old(update_id: str, now: datetime, *touched: datetime | None) -> bool:
    """Whether an id's moment, and all that is known to have touched it, lie `ORPHANED_AFTER` back or more (UTC).

    An id is never behind its writer's clock; where it is ahead of it, its parts stay longer.
    """
    moment = parse_update_id(update_id)
    return moment is not None and max([moment, *filter(None, touched)]) + ORPHANED_AFTER <= now


def must_look(status: Status) -> bool:
    """Whether the blackboard has to be asked before the fate of an id is known."""
    return len({*RULES[status].values()}) > 1

"""The outbox: a row for each change that a subscription's target has not accepted yet.

A lane is a partition, a batch or a window. Within a lane, a delivery waits for the one before it. So a delivery that
waits for a person (a dead letter) holds its lane, and only its lane. The changes of a view are one lane.
A sink or an alert channel has a row only while its last try failed (`outlets.py`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import (
    DeliveryFailed,
    DeliveryRefused,
    DeliveryTargetDown,
    FeedAssetsError,
    in_short,
)
from feed_assets.deliveries import owners, positions
from feed_assets.ledger.database import insert_into, insert_missing
from feed_assets.ledger.tables import delivery, delivery_turn

REFUSALS = 5
"""Number of refusals after which a delivery waits for a person."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
"""Pauses after a failed try. Each pause is twice as long as the one before."""

SINK, CHANNEL = "published to ", "alerts to "
"""Beginnings of the names of sinks and alert channels. The name of a subscription has no space."""

HEADS_PER_STEP = 100
"""Number of lanes whose first delivery is read at a time."""

REMOVED_PER_STEP = 10_000
"""Number of deliveries that one transaction removes after the refresh of a view."""


@dataclass(frozen=True)
class Delivery:
    """A change that a target has not accepted yet. `event` is a CloudEvent; `due` is when it is tried next (UTC)."""

    subscription: str
    lane: str
    sequence: int
    event: Mapping[str, Any]
    due: datetime
    tries: int = 0
    refusals: int = 0
    error: str | None = None
    is_down: bool = False
    is_dead: bool = False


@dataclass(frozen=True)
class Backlog:
    """The deliveries of one subscription that its target has not accepted yet. `since` is in UTC.

    `waiting` is None for a sink or an alert channel: the log, or the alerts, show what waits for it. `last_tick`
    (UTC) is the last tick of a code location that declares the subscription, to half a minute.
    """

    subscription: str
    kind: str
    waiting: int | None
    dead: int
    since: str
    last_tick: datetime | None
    error: str | None


def put(connection: sa.Connection, new: Iterable[Delivery]) -> None:
    """Add deliveries. Existing deliveries stay as they are, so this can be repeated."""
    insert_missing(connection, delivery, [{**vars(each), "event": json.dumps(each.event)} for each in new])


def heads(connection: sa.Connection, name: str, now: datetime, *, one_lane: bool = False) -> list[Delivery]:
    """Return the first delivery of each lane if it can be tried now, up to `HEADS_PER_STEP`.

    Those come first that have waited longest for their next try. So a change that always fails is not always the first
    one after a pause. With `one_lane`, all deliveries of the subscription are one lane. Return [] if there are none.
    """
    lanes = [] if one_lane else [delivery.c.lane]
    first = sa.select(*lanes, sa.func.min(delivery.c.sequence).label("sequence")).where(delivery.c.subscription == name)
    first = first.group_by(*lanes).subquery() if lanes else first.subquery()
    is_first = delivery.c.sequence == first.c.sequence
    for lane in lanes:
        is_first &= lane == first.c.lane
    can_be_tried = (delivery.c.subscription == name) & ~delivery.c.is_dead & (delivery.c.due <= now)
    query = sa.select(delivery).join(first, is_first).where(can_be_tried)
    return _deliveries(connection, query.order_by(delivery.c.due, delivery.c.sequence).limit(HEADS_PER_STEP))


def is_down(connection: sa.Connection, name: str, now: datetime) -> bool:
    """Return whether the target did not answer, and is not due for another try."""
    waits = (delivery.c.subscription == name) & delivery.c.is_down & (delivery.c.due > now)
    return bool(connection.scalar(sa.select(sa.exists().where(waits))))


def is_due(connection: sa.Connection, name: str, now: datetime, *, one_lane: bool = False) -> bool:
    """Return whether something can be delivered now, and no process has the turn to deliver."""
    held = (delivery_turn.c.subscription == name) & (delivery_turn.c.until > now)
    if connection.scalar(sa.select(sa.exists().where(held))) or is_down(connection, name, now):
        return False
    return bool(heads(connection, name, now, one_lane=one_lane))


def kind_of(name: str) -> str:
    """Return `sink`, `alert channel` or `subscription`."""
    return "sink" if name.startswith(SINK) else "alert channel" if name.startswith(CHANNEL) else "subscription"


def problem(connection: sa.Connection, name: str) -> str | None:
    """Return why changes wait: the error that needs a person, or else the first error. Return None without errors."""
    first = next(iter(failing(connection, name, limit=1)), None)
    if not first:
        return None
    title = f"the {kind_of(name)} {name.removeprefix(SINK).removeprefix(CHANNEL)}"
    return f"{title} waits for a person: {advice(first)}" if first.is_dead else f"{title} is behind: {first.error}"


def advice(head: Delivery) -> str:
    """Return the error of a delivery that waits for a person, and what the person can do."""
    name, skipped = quote(head.subscription), "these changes" if kind_of(head.subscription) != "sink" else "this event"
    return (
        f"{head.error} Repair the cause, then run `feed-assets subscriptions retry {name}`, or `subscriptions drop "
        f"{name}` to skip {skipped}."
    )


def waiting(connection: sa.Connection, *names: str) -> list[Delivery]:
    """Return all deliveries of some subscriptions, in order."""
    query = sa.select(delivery).where(delivery.c.subscription.in_(names))
    return _deliveries(connection, query.order_by(delivery.c.subscription, delivery.c.sequence))


def ends(connection: sa.Connection, name: str) -> list[Delivery]:
    """Return the first and the last delivery of a subscription. Return one if they are the same, and [] for none."""
    its_sequences = sa.select(sa.func.min(delivery.c.sequence), sa.func.max(delivery.c.sequence))
    both = connection.execute(its_sequences.where(delivery.c.subscription == name)).one()
    condition = (delivery.c.subscription == name) & delivery.c.sequence.in_([*both])
    return _deliveries(connection, sa.select(delivery).where(condition).order_by(delivery.c.sequence))


def first(connection: sa.Connection, name: str, lane: str) -> Delivery | None:
    """Return the first delivery of a lane. Return None if the lane is empty."""
    condition = (delivery.c.subscription == name) & (delivery.c.lane == lane)
    query = sa.select(delivery).where(condition).order_by(delivery.c.sequence).limit(1)
    return next(iter(_deliveries(connection, query)), None)


def failing(connection: sa.Connection, name: str, *, limit: int | None = None) -> list[Delivery]:
    """Return the deliveries whose last try failed: those that wait for a person first, then in order."""
    condition = (delivery.c.subscription == name) & delivery.c.error.is_not(None)
    query = sa.select(delivery).where(condition).order_by(delivery.c.is_dead.desc(), delivery.c.sequence)
    return _deliveries(connection, query.limit(limit))


def dead(connection: sa.Connection, name: str | None = None) -> list[Delivery]:
    """Return the deliveries that wait for a person, of one subscription or of all."""
    query = sa.select(delivery).where(delivery.c.is_dead)
    query = query.where(delivery.c.subscription == name) if name else query
    return _deliveries(connection, query.order_by(delivery.c.subscription, delivery.c.sequence))


def has_dead(connection: sa.Connection, name: str) -> bool:
    """Return whether a delivery of a subscription waits for a person."""
    waits = (delivery.c.subscription == name) & delivery.c.is_dead
    return bool(connection.scalar(sa.select(sa.exists().where(waits))))


def _deliveries(connection: sa.Connection, query: sa.Select[Any]) -> list[Delivery]:
    rows = connection.execute(query).mappings()
    return [Delivery(**{**row, "event": json.loads(row["event"])}) for row in rows]


def backlogs(connection: sa.Connection) -> list[Backlog]:
    """Return the backlog of each subscription that ever read the log, by name. A backlog may be empty."""
    counts = sa.select(
        delivery.c.subscription,
        sa.func.count().label("waiting"),
        sa.func.sum(sa.case((delivery.c.is_dead, 1), else_=0)).label("dead"),
    ).group_by(delivery.c.subscription)
    rows = {row.subscription: (row.waiting, row.dead) for row in connection.execute(counts)}
    names = {name for name, _ in positions.readers(connection).values()} | rows.keys()
    return [_backlog(connection, name, *rows.get(name, (0, 0))) for name in sorted(names)]


def _backlog(connection: sa.Connection, name: str, waiting: int, dead: int) -> Backlog:
    kind, since = kind_of(name), _oldest(connection, name) if waiting else ""
    count = waiting if kind == "subscription" else None
    last_tick, error = owners.last_tick(connection, name), _error(connection, name)
    return Backlog(name, kind, waiting=count, dead=dead, since=since, last_tick=last_tick, error=error)


def _oldest(connection: sa.Connection, name: str) -> str:
    """Return the time of the oldest change that is not delivered.

    Rows of an alert channel have the same sequence, so the least sequence may have several times.
    """
    first = sa.select(sa.func.min(delivery.c.sequence)).where(delivery.c.subscription == name).scalar_subquery()
    query = sa.select(delivery.c.event).where(delivery.c.subscription == name, delivery.c.sequence == first)
    return min(json.loads(each)["time"] for each in connection.execute(query).scalars())


def _error(connection: sa.Connection, name: str) -> str | None:
    return next((each.error for each in failing(connection, name, limit=1)), None)


def remove(connection: sa.Connection, done: Sequence[Delivery]) -> None:
    """Remove deliveries that the target has accepted, or that a person drops."""
    if done:
        connection.execute(sa.delete(delivery).where(_IS_BOUND), _bound(done))


def remove_upto(connection: sa.Connection, name: str, sequence: int) -> int:
    """Remove the deliveries of a subscription up to a sequence, at most `REMOVED_PER_STEP`. Return their number."""
    its_rows = (delivery.c.subscription == name) & (delivery.c.sequence <= sequence)
    step = sa.select(delivery.c.sequence).where(its_rows).order_by(delivery.c.sequence).limit(REMOVED_PER_STEP)
    last = sa.select(sa.func.max(step.subquery().c.sequence)).scalar_subquery()
    removed = sa.delete(delivery).where(delivery.c.subscription == name, delivery.c.sequence <= last)
    return connection.execute(removed).rowcount


def pause_after(tries: int) -> timedelta:
    """Return the pause after so many failed tries in a row."""
    return min(FIRST_PAUSE * 2 ** min(tries - 1, 10), LONGEST_PAUSE)


def failed(connection: sa.Connection, head: Delivery, now: datetime, error: FeedAssetsError) -> None:
    """Record a failed try and the time of the next one. Only refusals and wrong settings are counted."""
    counts = not isinstance(error, DeliveryFailed) or isinstance(error, DeliveryRefused)
    refusals = head.refusals + counts
    values = {
        "due": now + pause_after(head.tries + 1),
        "tries": head.tries + 1,
        "refusals": refusals,
        "error": in_short(error),
    }
    values |= {"is_down": isinstance(error, DeliveryTargetDown), "is_dead": refusals >= REFUSALS}
    connection.execute(sa.update(delivery).where(_IS_BOUND).values(values), _bound([head]))


_KEY = ("subscription", "lane", "sequence")
_IS_BOUND = sa.and_(*(delivery.c[name] == sa.bindparam(f"its_{name}") for name in _KEY))
"""The condition of one delivery, for statements that are executed for many."""


def _bound(chosen: Iterable[Delivery]) -> list[dict[str, object]]:
    return [{f"its_{name}": getattr(each, name) for name in _KEY} for each in chosen]


def retry(connection: sa.Connection, chosen: Collection[Delivery], now: datetime) -> None:
    """Let deliveries be tried again at once, with no refusals counted."""
    values = {"due": now, "tries": 0, "refusals": 0, "error": None, "is_down": False, "is_dead": False}
    if chosen:
        connection.execute(sa.update(delivery).where(_IS_BOUND).values(values), _bound(chosen))


def take_turn(connection: sa.Connection, name: str, holder: str, now: datetime, until: datetime) -> bool:
    """Take or prolong the turn to deliver. Return False if another process has it."""
    row = {"subscription": name, "holder": holder, "until": until}
    is_free = (delivery_turn.c.until <= now) | (delivery_turn.c.holder == holder)
    insert = insert_into(connection, delivery_turn).values(row)
    upsert = insert.on_conflict_do_update(
        index_elements=["subscription"], set_={"holder": holder, "until": until}, where=is_free
    )
    return bool(connection.execute(upsert).rowcount)


def has_turn(connection: sa.Connection, name: str, holder: str) -> bool:
    """Return whether a process has the turn, also if its time is over."""
    own = (delivery_turn.c.subscription == name) & (delivery_turn.c.holder == holder)
    return bool(connection.scalar(sa.select(sa.exists().where(own))))


def end_turn(connection: sa.Connection, name: str, holder: str) -> None:
    """End the turn of a process."""
    own = (delivery_turn.c.subscription == name) & (delivery_turn.c.holder == holder)
    connection.execute(sa.delete(delivery_turn).where(own))

"""Requests that wait for compute resources: one queue for all who share a ledger.

A request is served in the transaction that claims its outputs on the due list, so no request is served twice.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.allotment import NEEDS, Placement, QueueEntry, allot
from feed_assets.core.feeds import Partition
from feed_assets.core.readiness import State
from feed_assets.core.resources import Resources
from feed_assets.core.target_room import Grant, Room
from feed_assets.ledger import due as due_list
from feed_assets.ledger import key_tables
from feed_assets.ledger.allocations import end, grants, lock, resources_of, rows_of_outputs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.tables import TEXT, allocation, due

LOOK_AGAIN = timedelta(seconds=10)
"""Time after which a waiting request is checked again. A target is asked again after the same time."""

FORGOTTEN = timedelta(minutes=5)
"""Time after which a waiting request no longer delays other requests, if no process has checked it."""

WOKEN = 20
"""Number of waiting requests that are checked as soon as a run gives its resources back."""


@dataclass(frozen=True)
class Rooms:
    """The targets of a process: `usable` has the names of the targets that its runs may use.

    `less` takes the resources given to runs, by target, and returns the room that is left on each target.
    """

    usable: frozenset[str]
    less: Callable[[Mapping[str, Sequence[Grant]]], Mapping[str, Room]]


_READY = (State.BUILD.value, State.REBUILD.value, State.WAITS_FOR_RESOURCES.value)
"""States of an output whose request waits. A tick first decides about the output again, and then looks for room."""


@dataclass(frozen=True)
class ResourceRequest:
    """A request for the resources of one run, which builds these outputs of the due list."""

    id: str
    items: tuple[DueOutput, ...]
    resources: Resources
    is_history: bool
    groups: tuple[frozenset[str], ...] = ()
    """The targets of the places that have its data, by preference; () means all."""

    def waiting(self, since: datetime, usable: frozenset[str]) -> QueueEntry:
        """Return the queue's entry for the request."""
        first = self.items[0].partition.path
        return QueueEntry(
            self.id, self.resources, self.is_history, since, output=first, usable=usable, groups=self.groups
        )


def claim(
    connection: sa.Connection, requests: Sequence[ResourceRequest], rooms: Rooms, now: datetime
) -> dict[str, Placement | str]:
    """Claim the outputs of the requests that get a target, and let the other requests wait, each with the reason.

    Return the target or the reason of each request, by its id. Earlier requests of other processes in the queue
    keep their room. The caller has locked the queue, and the outputs on the due list.
    """
    since = _since(connection, requests)
    _drop_earlier(connection, requests, now)
    own = [each.waiting(since.get(each.id, now), rooms.usable) for each in requests]
    places = allot([*own, *waiting(connection, now)], rooms.less(grants(connection)), now)
    _insert(connection, own, places, now)
    due_list.take(connection, [item for each in requests if _is_given(places[each.id]) for item in each.items], now)
    _note(connection, requests, places, now)
    return {each.id: places[each.id] for each in requests}


def _is_given(place: Placement | str) -> bool:
    return isinstance(place, Placement)


def _since(connection: sa.Connection, requests: Iterable[ResourceRequest]) -> dict[str, datetime]:
    """Return since when the outputs of each request wait, by request id. The times come from earlier requests."""
    by_output = {item.partition.path: each.id for each in requests for item in each.items}
    since: dict[str, datetime] = {}
    for row in connection.execute(_earlier(connection, requests)):
        request = by_output[f"{row.feed}/{row.partition}" if row.partition else row.feed]
        since[request] = min(since.get(request, row.since), row.since)
    return since


def _earlier(connection: sa.Connection, requests: Iterable[ResourceRequest]) -> "sa.Select[*tuple[Any, ...]]":
    """Select the earlier requests for these outputs, if no run of them has begun."""
    key_table = key_tables.partitions(connection, [item.partition for each in requests for item in each.items])
    query = sa.select(due.c.feed, due.c.partition, allocation.c.id, allocation.c.since)
    query = query.join(key_table, key_tables.same_keys(due, key_table))
    return query.join(allocation, allocation.c.id == due.c.allocation).where(allocation.c.dagster_run.is_(None))


def _drop_earlier(connection: sa.Connection, requests: Iterable[ResourceRequest], now: datetime) -> None:
    """Remove earlier requests for these outputs, and waiting requests without a waiting output or a live run.

    An output is requested again only if no run of it began in time. A run that begins later asks for resources again.
    """
    ids = {row.id for row in connection.execute(_earlier(connection, requests))}
    waits = due.c.state.is_(None) | due.c.state.in_(_READY)
    waits = sa.exists().where(due.c.allocation == allocation.c.id, waits)
    nobody = allocation.c.dagster_run.is_(None) & ~waits
    died = allocation.c.dagster_run.is_not(None) & ~_looked_at(now)
    connection.execute(sa.delete(allocation).where(allocation.c.target.is_(None), nobody | died))
    end(connection, ids)


def _insert(
    connection: sa.Connection,
    entries: Iterable[QueueEntry],
    places: Mapping[str, Placement | str],
    now: datetime,
    dagster_run: str | None = None,
) -> None:
    if rows := [_row(each, places[each.name], now) | {"dagster_run": dagster_run} for each in entries]:
        connection.execute(sa.insert(allocation), rows)


def _row(entry: QueueEntry, place: Placement | str, now: datetime) -> dict[str, Any]:
    values = {"id": entry.name, "resources": json.dumps(asdict(entry.resources)), "history": entry.is_history}
    values |= {
        "output": entry.output,
        "since": entry.since,
        "at": now,
        "targets": json.dumps(sorted(entry.kept_targets)),
    }
    if not isinstance(place, Placement):
        return {**values, "target": None, "cores": None, "memory": None, "reason": str(place)}
    amount = {"cores": place.amount.cores, "memory": place.amount.memory}
    return {**values, **amount, "target": place.target, "reason": place.reason}


def _note(
    connection: sa.Connection,
    requests: Iterable[ResourceRequest],
    places: Mapping[str, Placement | str],
    now: datetime,
) -> None:
    """Store on the due list the request of each output, and the reason if the request waits.

    Once Dagster shows such a reason, a new reason is not reported, because the reason changes with each run that ends.
    """
    granted, waits = list[dict[str, Any]](), list[dict[str, Any]]()
    for request in requests:
        place = places[request.id]
        for item in request.items:
            row = {"its_feed": str(item.partition.feed), "its_key": item.partition.key, "its_id": request.id}
            granted += [] if isinstance(place, str) else [row]
            waits += [row | {"its_reason": str(place)}] if isinstance(place, str) else []
    of_output = (due.c.feed == sa.bindparam("its_feed")) & (due.c.partition == sa.bindparam("its_key"))
    noting = sa.update(due).where(of_output).values(allocation=sa.bindparam("its_id"))
    if granted:
        connection.execute(noting, granted)
    reason, state = sa.bindparam("its_reason", type_=TEXT), State.WAITS_FOR_RESOURCES.value
    reported = sa.case((due.c.told.startswith(NEEDS), reason), else_=due.c.told)
    if waits:
        connection.execute(
            noting.values(state=state, reason=reason, look_at=now + LOOK_AGAIN, told=reported),
            waits,
        )


def waiting(connection: sa.Connection, now: datetime) -> list[QueueEntry]:
    """Return the requests that wait for resources. Skip those that no process has checked within `FORGOTTEN`."""
    rows = connection.execute(sa.select(allocation).where(allocation.c.target.is_(None), _looked_at(now)))
    return [
        QueueEntry(
            row.id,
            resources_of(row),
            row.history,
            row.since,
            output=row.output,
            usable=frozenset(json.loads(row.targets)),
        )
        for row in rows
    ]


def _looked_at(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that a request was checked lately. A far future time (of a wrong clock) does not count."""
    return allocation.c.at.between(now - FORGOTTEN, now + FORGOTTEN)


def waits_since(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, datetime]:
    """Return since when the request of each output waits. Outputs without such a request are missing."""
    rows = rows_of_outputs(connection, outputs, allocation.c.target.is_(None))
    return {output: row.since for output, row in rows.items()}


def ask(ledger: Ledger, entry: QueueEntry, dagster_run: str, rooms: Rooms, now: datetime) -> Placement | str:
    """Give resources to a run that has begun without them, or put it into the queue. Return the target or the reason.

    Repeat the call until the run has a target. Without new calls, the request is dropped after a while.
    """
    with ledger.write() as connection:
        lock(connection)
        end(connection, {entry.name})
        _drop_earlier(connection, (), now)
        entry = replace(entry, usable=rooms.usable)
        place = allot([entry, *waiting(connection, now)], rooms.less(grants(connection)), now)[entry.name]
        _insert(connection, [entry], {entry.name: place}, now, dagster_run)
    return place


def is_woken(ledger: Ledger, name: str, last_look: datetime) -> bool:
    """Return whether a request was woken by `wake_first`, or removed, since `last_look`. This locks nothing."""
    with ledger.read() as connection:
        return connection.execute(sa.select(allocation.c.at).where(allocation.c.id == name)).scalar() != last_look


def wake_first(connection: sa.Connection, now: datetime) -> None:
    """Make the outputs of the first waiting requests due now, because a run has given its resources back.

    Also wake the runs that have already begun, and wait because of one of these requests.

    Other requests wait for their turn, because it is slow to check every request at the end of each run.
    Skip outputs that another transaction has locked, to avoid a deadlock: a tick decides about these outputs just now.
    """
    first = [each.name for each in sorted(waiting(connection, now), key=lambda each: each.place(now))[:WOKEN]]
    waits = due.c.allocation.in_(first) & (due.c.state == State.WAITS_FOR_RESOURCES.value)
    waits &= due.c.look_at > now - FORGOTTEN
    by_hand = allocation.c.id.in_(first) & allocation.c.dagster_run.is_not(None)
    query = sa.select(allocation.c.id).where(by_hand).order_by(allocation.c.id).with_for_update(skip_locked=True)
    if runs := connection.execute(query).scalars().all():
        connection.execute(sa.update(allocation).where(allocation.c.id.in_(runs)).values(at=now))
    query = sa.select(due.c.feed, due.c.partition).where(waits).order_by(due.c.feed, due.c.partition)
    if rows := connection.execute(query.with_for_update(skip_locked=True)).all():
        key_table = key_tables.rows(connection, key_tables.PARTITION, [[*row] for row in rows])
        woken = sa.tuple_(due.c.feed, due.c.partition).in_(sa.select(key_table.c.feed, key_table.c.partition))
        # A time in the past puts these outputs first in the next tick. Until then, the queue keeps their room.
        connection.execute(sa.update(due).where(woken).values(look_at=now - FORGOTTEN))


def note_waiting(ledger: Ledger, now: datetime) -> None:
    """Set ready outputs back to 'waits for resources' if their request still waits. The next tick looks for room.

    A command decides about outputs, but requests no runs. Without this step it would show such outputs as ready.
    """
    of_output = (allocation.c.id == due.c.allocation) & allocation.c.target.is_(None)
    reason = sa.select(allocation.c.reason).where(of_output).correlate(due).scalar_subquery()
    is_ready = due.c.state.in_([State.BUILD.value, State.REBUILD.value])
    waits = sa.exists().where(of_output).correlate(due)
    values = {"state": State.WAITS_FOR_RESOURCES.value, "reason": reason, "look_at": now}
    with ledger.write() as connection:
        connection.execute(sa.update(due).where(is_ready, waits).values(**values))

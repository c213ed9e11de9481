"""Views of the state store for people and programs: transitions, partitions, windows, and what windows wait for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress, address_of, minutes_of, window_at
from feed_assets.ledger import closures, log
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.nested_windows import holding
from feed_assets.ledger.states.watermarks import Watermarks, watermarks
from feed_assets.ledger.states.window_explanations import whys
from feed_assets.ledger.states.window_rows import WindowRow, empty, rows
from feed_assets.ledger.tables import TEXT, UtcDateTime, change, dataset, window

partition_state = sa.table(
    "partition_state",
    *(sa.column(name, TEXT) for name in ("dataset", "sub_partition", "grain", "partition", "version")),
    *(sa.column(name, UtcDateTime) for name in ("start", "end", "contiguous", "latest")),
    *(sa.column(name, sa.Boolean) for name in ("complete", "good")),
)
"""The SQL view `partition_state`, which docs/state.md describes."""


@dataclass(frozen=True)
class Transition:
    """A window's change of state in the log. Times are UTC."""

    sequence: int
    address: WindowAddress
    start: datetime
    end: datetime
    before: str | None
    after: str
    at: datetime
    why: str | None
    who: str | None


@dataclass(frozen=True)
class Line:
    """The progress of a dataset's windows of one grain (length) in one sub-partition.

    The watermarks `contiguous` and `latest` are ends of windows in UTC.
    """

    sub_partition: str
    grain: str
    contiguous: datetime | None
    latest: datetime | None
    windows: Mapping[str, int]
    """Number of known windows in each state."""


@dataclass(frozen=True)
class Summary:
    """The policy and the progress of a dataset's windows."""

    dataset: Feed
    declared: bool
    tracked: Tracked
    schema: str | None
    watermarks: tuple[Line, ...]
    newest: Sequence["PartitionState"]


@dataclass(frozen=True)
class LackingPart:
    """An incomplete part of a window, with its state and the reason for the state."""

    window: str
    state: str
    why: str


@dataclass(frozen=True)
class PartitionState:
    """A row of the view `partition_state`, with details if the row is a window."""

    dataset: str
    sub_partition: str
    grain: str
    partition: str
    complete: bool
    good: bool
    version: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    contiguous: datetime | None = None
    latest: datetime | None = None
    state: str = ""
    records: int | None = None
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    since: datetime | None = None
    why: str = ""
    waits_for: tuple[LackingPart, ...] = ()
    closed: str | None = None
    """The closure of this partition, or of a window or dataset that contains it: by whom, when and why."""


def transitions(
    connection: sa.Connection, since: int | datetime | None, dataset: Feed | None, limit: int
) -> tuple[Transition, ...]:
    """Return up to `limit` transitions, in order.

    `since` is a log number or a time. If it is None, return the newest transitions.
    """
    query = sa.select(change).where(change.c.kind == log.WINDOW)
    if dataset:
        query = query.where(change.c.feed == str(dataset))
    if since is not None:
        query = query.where(change.c.sequence > since if isinstance(since, int) else change.c.at >= since)
    order = change.c.sequence.desc() if since is None else change.c.sequence
    changes = connection.execute(query.order_by(order).limit(limit)).all()
    windows = [(row, at) for row in changes if (at := address_of(Partition(Feed.parse(row.feed), row.partition)))]
    bounds = _bounds(connection, (at for _, at in windows))
    listed = (
        Transition(
            row.sequence, at, *bounds[at], before=row.before, after=row.after, at=row.at, why=row.why, who=row.who
        )
        for row, at in windows
    )
    return tuple(sorted(listed, key=lambda each: each.sequence))


def _bounds(
    connection: sa.Connection, addresses: Iterable[WindowAddress]
) -> Mapping[WindowAddress, tuple[datetime, datetime]]:
    """Return start and end of windows, including windows that are no longer recorded."""
    unique_addresses = set(addresses)
    row_by_address, tracked = (
        rows(connection, unique_addresses),
        window_policies.tracked(connection, {at.dataset for at in unique_addresses}),
    )
    window_by_address = {
        at: row_by_address.get(at) or window_at(at.grain, at.key, _of(tracked, at).zone_of(at.sub_partition))
        for at in unique_addresses
    }
    return {at: (each.start, each.end) for at, each in window_by_address.items()}


def _of(tracked: Mapping[Feed, Tracked], at: WindowAddress) -> Tracked:
    return tracked.get(at.dataset) or window_policies.default()


def summary(connection: sa.Connection, name: Feed, limit: int) -> Summary:
    """Return the progress of a dataset, and its newest windows and partitions. Raise InvalidName if it is unknown."""
    row = connection.execute(sa.select(dataset).where(dataset.c.name == str(name))).first()
    newest = partitions(connection, name, None, limit)
    if row is None and not newest:
        raise InvalidName(f"nothing is known of {name}: expected a dataset that was reported, declared or published.")
    tracked = window_policies.tracked(connection, [name]).get(name) or window_policies.default()
    declared, schema = not tracked.is_default, row.schema if row else None
    return Summary(name, declared, tracked, schema=schema, watermarks=_lines(connection, name), newest=newest)


def _lines(connection: sa.Connection, name: Feed) -> tuple[Line, ...]:
    key = window.c.sub_partition, window.c.grain, window.c.state
    query = sa.select(*key, sa.func.count()).where(window.c.dataset == str(name)).group_by(*key).order_by(*key)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for sub_partition, grain, state, count in connection.execute(query):
        counts.setdefault((sub_partition, grain), {})[state] = count
    marks = watermarks(connection, ((name, *each) for each in counts))
    ordered = sorted(counts, key=lambda each: (each[0], minutes_of(each[1])))
    lines = ((each, marks.get((name, *each), Watermarks())) for each in ordered)
    return tuple(Line(*each, mark.contiguous, mark.latest, counts[each]) for each, mark in lines)


def partitions(connection: sa.Connection, name: Feed, key: str | None, limit: int) -> Sequence[PartitionState]:
    """Return rows of the view: a dataset's windows and partitions with this key.

    If `key` is None, return the newest windows and partitions.
    """
    view = partition_state.c
    query = sa.select(partition_state).where(view.dataset == str(name)).limit(limit)
    if key is not None and (at := address_of(Partition(name, key))):
        query = query.where(view.partition == at.key, view.sub_partition == at.sub_partition, view.grain == at.grain)
    elif key is not None:
        query = query.where(view.partition == key)
    query = query.order_by(view.partition.desc(), view.sub_partition, view.grain)
    return [PartitionState(**row) for row in connection.execute(query).mappings()]


def explained(connection: sa.Connection, name: Feed, key: str, limit: int) -> tuple[PartitionState, ...]:
    """Return the windows and partitions with this key, and what the windows wait for.

    Raise InvalidName if the key is unknown.
    """
    kept = window_policies.tracked(connection, [name]).get(name)
    tracked = kept or window_policies.default()
    views = partitions(connection, name, key, limit) or [_unknown(name, key, is_tracked=kept is not None)]
    addresses = [WindowAddress(name, each.sub_partition, each.grain, each.partition) for each in views]
    row_by_address = rows(connection, [at for at in addresses if at.grain])
    return tuple(
        _explained(connection, tracked, each, row_by_address.get(at) or empty(tracked, at))
        if each.grain
        else replace(each, closed=_closed(connection, [Partition(name, each.partition)]))
        for each, at in zip(views, addresses, strict=True)
    )


def _closed(connection: sa.Connection, partitions: Iterable[Partition]) -> str | None:
    return next((f"{at} is {why}" for at, why in sorted(closures.closed(connection, partitions).items())), None)


def _unknown(name: Feed, key: str, *, is_tracked: bool) -> PartitionState:
    at = address_of(Partition(name, key))
    if at is None or not is_tracked:
        raise InvalidName(
            f"nothing is known of {name} {key}: expected a window that was reported, such as 2026-01-01-15:00 or "
            "hour@2026-01-01-15:00/region=apac, or a partition with updates."
        )
    return PartitionState(str(name), at.sub_partition, at.grain, at.key, complete=False, good=True)


def _explained(connection: sa.Connection, tracked: Tracked, view: PartitionState, row: WindowRow) -> PartitionState:
    parts = () if row.state in DONE else tracked.parts(row.address, row.window)
    part_by_address = rows(connection, parts)
    undone = [each for at in parts if (each := part_by_address.get(at) or empty(tracked, at)).state not in DONE]
    reasons = whys(connection, [row, *undone], {row.address.dataset: tracked})
    waits = tuple(LackingPart(each.address.partition.key, each.state, reasons[each.address]) for each in undone)
    behind: dict[str, Any] = {"state": row.state, "records": row.records, "sources": row.counts, "since": row.since}
    closed = _closed(connection, (at.partition for at in holding(tracked, row.address, row.start)))
    behind |= {"why": row.issue or reasons[row.address], "waits_for": waits, "closed": closed}
    return replace(view, start=row.start, end=row.end, **behind)

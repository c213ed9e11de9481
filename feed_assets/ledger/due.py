"""The due list: partitions that a change may have made buildable.

A tick decides about each partition until it is current. The list contains only new or incomplete partitions, never the
history. A row is removed only when its verdict is 'current' or 'closed'. So a lost request, a failed run or a killed
process is retried.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import ALL, History, Order
from feed_assets.core.launching import wait_after
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import Ledger, insert_into
from feed_assets.ledger.quality import heard_condition
from feed_assets.ledger.tables import awaited, change, due, run

LOOK_AGAIN = timedelta(minutes=5)
"""Time after which the decision about an undecidable output is tried again."""

NOT_YET, UNDECIDED = "no partition yet", "cannot be decided"
"""States without a verdict: the output is not a partition yet, or its facts cannot be read."""


@dataclass(frozen=True)
class DueOutput:
    """An output on the due list.

    `changed` is the log number of the change that put it on the list. `requested` is the number of runs that were
    requested since then. `state` and `reason` come from the last verdict. Both are None if there was no verdict since
    that change. `since` (UTC) is the time when the output was put on the list.
    """

    partition: Partition
    changed: int
    requested: int
    since: datetime
    state: str | None
    reason: str | None
    look_at: datetime | None
    """The time of the next decision and run request. If None, the next decision follows only after a change."""
    ends: datetime | None = None
    """The end of its time window (UTC), if it has one."""
    bytes: int | None = None
    """Bytes that its run would read, according to the last verdict."""


@dataclass(frozen=True)
class AffectedOutput:
    """An output that a change affects. From `look_at` (UTC) on, its partition exists, and ticks decide about it.

    `ends` is the end of its time window (UTC), if it has one.
    """

    partition: Partition
    changed: int
    look_at: datetime
    ends: datetime | None = None


_NAMES = ("changed", "requested", "since", "state", "reason", "look_at", "ends", "bytes")
COLUMNS = (due.c.feed, due.c.partition, *(due.c[name] for name in _NAMES))
"""The columns of `DueOutput`."""


def listed_of(row: Any) -> DueOutput:
    """Return the listed output of a row with `COLUMNS`."""
    partition = Partition(Feed.parse(row.feed), row.partition)
    return DueOutput(partition, **{name: getattr(row, name) for name in _NAMES})


def wake(connection: sa.Connection, woken: Iterable[AffectedOutput], now: datetime) -> None:
    """Put outputs on the due list, so that ticks decide about them. Clear their earlier verdicts."""
    rows = [_row(each, now) for each in {each.partition: each for each in sorted(woken, key=_by_change)}.values()]
    if not rows:
        return
    insert = insert_into(connection, due)
    new = insert.excluded
    # Never lower the log number. Otherwise a verdict about this change would also acknowledge a later change.
    changed = sa.case((due.c.changed > new.changed, due.c.changed), else_=new.changed)
    values = {"changed": changed, "look_at": new.look_at, "requested": 0, "state": None, "reason": None}
    values |= {"ends": sa.func.coalesce(new.ends, due.c.ends)}
    connection.execute(insert.on_conflict_do_update(index_elements=["feed", "partition"], set_=values), rows)


def _by_change(woken: AffectedOutput) -> int:
    return woken.changed


def _row(woken: AffectedOutput, now: datetime) -> dict[str, object]:
    key = {"feed": str(woken.partition.feed), "partition": woken.partition.key}
    times = {"look_at": woken.look_at, "since": now, "ends": woken.ends}
    return {**key, **times, "changed": woken.changed, "requested": 0}


def look(
    connection: sa.Connection,
    consumers: Collection[Feed],
    now: datetime,
    limit: int,
    history: History = ALL,
    busy: Collection[Partition] = (),
) -> tuple[DueOutput, ...]:
    """Return the outputs to decide about now: first new outputs, longest waiting first, then history in its own order.

    Skip history outputs that are ready but have a run in progress (`busy`), so that they do not delay later outputs.
    """
    rows = connection.execute(sa.select(*COLUMNS).where(due.c.look_at <= now).order_by(*_in_turn(history, now)))
    names = {str(consumer) for consumer in consumers}
    items: list[DueOutput] = []
    for row in (
        rows
    ):  # Filter consumers in Python, because few rows are due, and an SQL condition with a thousand names is slow.
        if row.feed in names:
            item = listed_of(row)
            is_on_its_way = item.partition in busy and item.state in _READY and history.has(item.ends, now)
            items += [] if is_on_its_way else [item]
        if len(items) == limit:
            break
    return tuple(items)


def _in_turn(history: History, now: datetime) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the sort order of the list: first by `History.place`, then longest waiting first."""
    is_old = due.c.ends < history.begins(now)
    ends = sa.case((is_old, due.c.ends))
    by_time = ends if history.order is Order.OLDEST else ends.desc()
    return sa.case((is_old, 1), else_=0), by_time, due.c.look_at, due.c.feed, due.c.partition


_READY = (State.BUILD.value, State.REBUILD.value)


def listed(connection: sa.Connection, consumer: Feed) -> tuple[DueOutput, ...]:
    """Return a consumer's outputs on the due list. Add the changes of its inputs that cannot be mapped to outputs."""
    query = sa.select(*COLUMNS).where(due.c.feed == str(consumer)).order_by(due.c.partition)
    failed = (awaited.c.subscriber == str(consumer)) & awaited.c.reason.is_not(None)
    lost = sa.select(awaited).where(failed).order_by(awaited.c.feed, awaited.c.partition)
    items = [listed_of(row) for row in connection.execute(query)]
    return (*items, *map(_undecided, connection.execute(lost)))


def reason_of(connection: sa.Connection, output: Partition) -> str | None:
    """Return the reason of an output's last verdict. Return None if the output is not on the list or has no verdict."""
    of_output = (due.c.feed == str(output.feed)) & (due.c.partition == output.key)
    return connection.execute(sa.select(due.c.reason).where(of_output)).scalar()


def _undecided(row: Any) -> DueOutput:
    changed = Partition(Feed.parse(row.feed), row.partition)
    return DueOutput(
        changed,
        row.sequence,
        0,
        since=row.look_at - LOOK_AGAIN,
        state=UNDECIDED,
        reason=row.reason,
        look_at=row.look_at,
    )


def look_at_stopped(ledger: Ledger, consumers: Collection[Feed], now: datetime) -> None:
    """Make outputs due now if they wait because of attempts, quality, late data or pipelines.

    With the definitions that a new process loads, these outputs may no longer have to wait. So call this once when a
    process starts.
    """
    _look_at(ledger, consumers, _STOPPED, now)


def look_at_held(ledger: Ledger, consumers: Collection[Feed], now: datetime) -> None:
    """Make outputs due now if they wait for a time.

    The settings of a new process may have another daily limit of history, so call this once when a process starts.
    """
    _look_at(ledger, consumers, [State.WAITS_FOR_TIME], now)


def look_at_incomplete(ledger: Ledger, consumers: Collection[Feed], now: datetime) -> None:
    """Make outputs due now if they wait for an input. Call this after their dataset's declaration has changed."""
    _look_at(ledger, consumers, [State.WAITS_FOR_INPUT], now)


def _look_at(ledger: Ledger, consumers: Collection[Feed], states: Iterable[State], now: datetime) -> None:
    query = sa.select(*COLUMNS).where(due.c.state.in_([state.value for state in states]))
    with ledger.read() as connection:
        stopped = [item for row in connection.execute(query) if (item := listed_of(row)).partition.feed in consumers]
    if stopped:
        rows = [_key(item) | {"new_look_at": now} for item in stopped]
        with ledger.write() as connection:
            connection.execute(sa.update(due).where(_as_read()).values(_bound("look_at")), rows)


_STOPPED = (
    State.WAITS_FOR_A_PERSON,
    State.WAITS_FOR_QUALITY,
    State.WAITS_FOR_ANOTHER_ATTEMPT,
    State.WAITS_FOR_LATE_DATA,
    State.SKIPS_LATE_DATA,
    State.WAITS_FOR_PROPAGATION,
)


def to_rebuild(
    connection: sa.Connection, now: datetime, limit: int, history: History = ALL
) -> dict[Feed, list[DueOutput]]:
    """Return for each dataset up to `limit` outputs with the verdict 'rebuild', in the order of the list.

    Skip outputs with a run in progress. Skip outputs that changed after their verdict, for example because a run has
    just published: the verdict is stale.
    """
    own = (change.c.feed == due.c.feed) & (change.c.partition == due.c.partition) & heard_condition()
    since = sa.exists().where(own, change.c.sequence > due.c.changed)
    builds = sa.exists().where(run.c.feed == due.c.feed, run.c.partition == due.c.partition, run.c.state == "running")
    turn = sa.func.row_number().over(partition_by=due.c.feed, order_by=_in_turn(history, now))
    stale = sa.select(*COLUMNS, turn.label("turn")).where(due.c.state == State.REBUILD.value, due.c.look_at <= now)
    stale = stale.where(~since, ~builds).subquery()
    items_by_feed: dict[Feed, list[DueOutput]] = {}
    query = sa.select(stale).where(stale.c.turn <= limit).order_by(stale.c.feed, stale.c.turn)
    for item in map(listed_of, connection.execute(query)):
        items_by_feed.setdefault(item.partition.feed, []).append(item)
    return items_by_feed


def not_begun(connection: sa.Connection) -> tuple[DueOutput, ...]:
    """Return the ready outputs that were requested since their last change, and whose runs have not ended."""
    query = (
        sa.select(*COLUMNS).where(due.c.state.in_(_READY), due.c.requested > 0).order_by(due.c.feed, due.c.partition)
    )
    return tuple(listed_of(row) for row in connection.execute(query))


def consumers_in(connection: sa.Connection, state: State) -> set[Feed]:
    """Return the consumers that have an output with this verdict (decision) on the due list."""
    query = sa.select(due.c.feed).where(due.c.state == state.value).distinct()
    return {Feed.parse(feed) for feed in connection.execute(query).scalars()}


def in_state(connection: sa.Connection, state: str) -> tuple[DueOutput, ...]:
    """Return the outputs of all consumers that have this verdict (decision) on the due list."""
    query = sa.select(*COLUMNS).where(due.c.state == state).order_by(due.c.feed, due.c.partition)
    return tuple(listed_of(row) for row in connection.execute(query))


def acknowledge(ledger: Ledger, decided: Sequence[tuple[DueOutput, Verdict]], now: datetime) -> None:
    """Store verdicts.

    Remove 'current' and 'closed' outputs from the list. Other outputs stay, and are decided again at their time or
    after a change. Skip an output that was changed or requested since it was read from the list. Otherwise the change
    or request would be lost.
    """
    over = State.CURRENT, State.CLOSED
    current = [_key(item) for item, verdict in decided if verdict.state in over]
    waiting = [_key(item) | _kept(verdict, now) for item, verdict in decided if verdict.state not in over]
    with ledger.write() as connection:
        if current:
            connection.execute(sa.delete(due).where(_as_read()), current)
        if waiting:
            values = _bound("look_at", "state", "reason", "bytes")
            connection.execute(sa.update(due).where(_as_read()).values(values), waiting)


def _kept(verdict: Verdict, now: datetime) -> dict[str, object]:
    look_at = now if verdict.state in (State.BUILD, State.REBUILD) else verdict.look_again
    verdict_values = {"new_state": verdict.state.value, "new_reason": verdict.reason, "new_bytes": verdict.bytes}
    return {"new_look_at": look_at, **verdict_values}


def _key(item: DueOutput) -> dict[str, object]:
    key = {"its_feed": str(item.partition.feed), "its_key": item.partition.key}
    return {**key, "its_change": item.changed, "its_requests": item.requested}


def _as_read() -> sa.ColumnElement[bool]:
    same_output = (due.c.feed == sa.bindparam("its_feed")) & (due.c.partition == sa.bindparam("its_key"))
    return (
        same_output & (due.c.changed == sa.bindparam("its_change")) & (due.c.requested == sa.bindparam("its_requests"))
    )


def _bound(*names: str) -> dict[str, sa.ColumnElement[Any]]:
    return {name: sa.bindparam(f"new_{name}") for name in names}


def claim(ledger: Ledger, ready: Sequence[DueOutput], now: datetime) -> list[DueOutput]:
    """Claim outputs for run requests, and postpone their next decision. Return the outputs that were free.

    If several processes have read the same output, only the first process claims it. When the output's run ends, the
    output is due again. If no run begins because the process was killed, a run is requested again after the wait.
    """
    if not ready:
        return []
    with ledger.write() as connection:
        free = still_as_read(connection, ready)
        take(connection, free, now)
    return free


def take(connection: sa.Connection, free: Sequence[DueOutput], now: datetime) -> None:
    """Claim ready outputs for a run request, so that no other process requests them, too.

    Call this within a transaction.
    """
    rows = [
        _key(item) | {"new_requested": item.requested + 1, "new_look_at": now + wait_after(item.requested)}
        for item in free
    ]
    if rows:
        # Forget what was reported: after a run request, the same reason must be reported to Dagster again.
        values = _bound("requested", "look_at") | {"told": sa.null()}
        connection.execute(sa.update(due).where(_as_read()).values(values), rows)


def still_as_read(connection: sa.Connection, items: Sequence[DueOutput]) -> list[DueOutput]:
    """Return the items without a change or request since they were read. Lock them in a fixed order."""
    names = ("feed", "partition", "changed", "requested")
    read = {(str(each.partition.feed), each.partition.key, each.changed, each.requested): each for each in items}
    key_table, key = key_tables.rows(connection, names, read), [due.c[name] for name in names]
    as_read = sa.tuple_(*key).in_(sa.select(*(sa.cast(key_table.c[column.name], column.type) for column in key)))
    unchanged = {(*row,) for row in connection.execute(sa.select(*key).where(as_read).order_by(*key).with_for_update())}
    return [each for row, each in read.items() if row in unchanged]


def end_waits(ledger: Ledger, now: datetime) -> None:
    """Make outputs due now if their requested run may be dead, or if they wait for resources, which may be free now."""
    waits = (due.c.requested > 0) | (due.c.state == State.WAITS_FOR_RESOURCES.value)
    with ledger.write() as connection:
        connection.execute(sa.update(due).where(waits, due.c.look_at > now).values(look_at=now))


def end_pauses(ledger: Ledger, now: datetime) -> None:
    """Make undecidable outputs due now: the person who restarts `feed-assets run` may have fixed the cause."""
    with ledger.write() as connection:
        connection.execute(sa.update(due).where(due.c.state == UNDECIDED, due.c.look_at > now).values(look_at=now))
        failed = awaited.c.reason.is_not(None) & (awaited.c.look_at > now)
        connection.execute(sa.update(awaited).where(failed).values(look_at=now))


def postpone(ledger: Ledger, reasons: Mapping[DueOutput, str | None], now: datetime) -> None:
    """Postpone undecidable outputs, each with the reason.

    The reason None means that the output is not a partition now.
    """
    _say(ledger, {item: (UNDECIDED if why else NOT_YET, why) for item, why in reasons.items()}, now + LOOK_AGAIN)


def hold(ledger: Ledger, reasons: Mapping[DueOutput, str], until: datetime) -> None:
    """Make ready outputs wait until a time (UTC), each with the reason. Skip outputs that have changed since."""
    _say(ledger, {item: (State.WAITS_FOR_TIME.value, why) for item, why in reasons.items()}, until)


def wait_for_input(ledger: Ledger, reasons: Mapping[DueOutput, str], until: datetime) -> None:
    """Make ready outputs wait for data in a place, each with the reason. Skip outputs that have changed since."""
    _say(ledger, {item: (State.WAITS_FOR_INPUT.value, why) for item, why in reasons.items()}, until)


def _say(ledger: Ledger, states: Mapping[DueOutput, tuple[str, str | None]], look_at: datetime) -> None:
    rows = [
        _key(item) | {"new_look_at": look_at, "new_state": state, "new_reason": why}
        for item, (state, why) in states.items()
    ]
    if rows:
        with ledger.write() as connection:
            connection.execute(sa.update(due).where(_as_read()).values(_bound("look_at", "state", "reason")), rows)


def remove(connection: sa.Connection, gone: Iterable[DueOutput]) -> None:
    """Remove outputs from the due list if they will never be partitions again."""
    if rows := [_key(item) for item in gone]:
        connection.execute(sa.delete(due).where(_as_read()), rows)


def undecided(connection: sa.Connection) -> dict[Feed, str]:
    """Return for each consumer one reason why an output cannot be decided, or a change cannot be mapped to outputs."""
    of_outputs = sa.select(due.c.feed, due.c.reason).where(due.c.state == UNDECIDED)
    of_changes = sa.select(awaited.c.subscriber, awaited.c.reason).where(awaited.c.reason.is_not(None))
    return {
        Feed.parse(feed): why for feed, why in connection.execute(sa.union(of_outputs, of_changes).order_by("feed"))
    }

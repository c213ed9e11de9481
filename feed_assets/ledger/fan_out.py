"""Fan-out of log changes: every output that a change affects is put on the due list, for all consumers at once.

Marks of bad data spread in the same pass (`ledger/tainted.py`). A mark is itself a log change, so the next round
spreads it further.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import awaited, due, event_store, inbox, log, subscriptions, tainted
from feed_assets.ledger.awaited import Awaited
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import AffectedOutput
from feed_assets.ledger.log import LogEntry
from feed_assets.ledger.quality import is_heard
from feed_assets.ledger.subscriptions import Edge
from feed_assets.ledger.tainted import AS_KNOWN, BuildDeclarations

CHANGES_PER_READ = 1000
"""Number of log changes that are read at a time. After each read the time limit is checked."""


@dataclass(frozen=True)
class Affected:
    """The outputs of one consumer that a change affects, each with the time (UTC) from which ticks decide about it.

    `outputs` is None if the change must be mapped again later. There are three reasons: the error `why_not`, a changed
    partition that does not exist yet, or an existing output whose time has not come. The next attempt is at `look_at`,
    or after `LOOK_AGAIN`. `takes_events` is True if the outputs have inboxes for events. `ends` has the end (UTC) of
    each output's time window.
    """

    outputs: Sequence[tuple[Partition, datetime]] | None
    takes_events: bool
    why_not: str | None = None
    """The error that makes the outputs unknown."""
    look_at: datetime | None = None
    ends: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])


AffectedOf = Callable[[str, Partition], Affected]
"""Function that takes a consumer and a changed partition, and returns the consumer's affected outputs.

The partition belongs to a feed that the consumer reads, or to the consumer itself.
"""


@dataclass(frozen=True)
class PendingChanges:
    """Changes that a group of subscriptions has not received yet.

    `start` and `reached` are the log positions of the group before and after these changes.
    """

    group: Collection[Edge]
    start: int
    changes: Sequence[LogEntry]
    reached: int


@dataclass
class _Reach:
    """Effects of log changes: outputs to decide about, events for inboxes, and changes that must be retried (`absent`).

    A mark says that an output was made of bad data. `judged` are outputs whose marks may begin or end. `cleared` are
    outputs whose marks may only end.
    """

    woken: list[AffectedOutput] = field(default_factory=list[AffectedOutput])
    delivered: list[tuple[Partition, int]] = field(default_factory=list[tuple[Partition, int]])
    absent: dict[tuple[str, Partition], Awaited] = field(default_factory=dict[tuple[str, Partition], Awaited])
    judged: set[Partition] = field(default_factory=set[Partition])
    cleared: set[Partition] = field(default_factory=set[Partition])


def fan_out(
    ledger: Ledger,
    edges: Collection[Edge],
    affected: AffectedOf,
    now: datetime,
    out_of_time: Callable[[], bool],
    limit: int = CHANGES_PER_READ,
    declarations: BuildDeclarations = AS_KNOWN,
) -> bool:
    """Fan out changes for each (consumer, feed): put affected outputs on the due list, and events into inboxes.

    Stop when time is over, and return False if changes are left. The due list, inboxes, marks and subscriptions change
    in one transaction. The transaction skips changes that another process has fanned out in the meantime. So the
    process can be killed at any time, and the call can be repeated.
    """
    with ledger.read() as connection:
        new = {*edges} - subscriptions.positions(connection).keys()
    if new:
        with ledger.write() as connection:
            subscriptions.subscribe(connection, new)
    _look_at_absent(ledger, edges, affected, declarations, now)
    while batch := next_batch(ledger, edges, limit):
        reach = _reach(batch.group, batch.changes, affected)
        _put(ledger, batch, reach, _marks(ledger, reach, declarations), now)
        if out_of_time():
            return next_batch(ledger, edges, limit) is None
    return True


def next_batch(ledger: Ledger, edges: Collection[Edge], limit: int) -> PendingChanges | None:
    """Return the next changes for the subscriptions that are furthest behind. Return None if all are up to date."""
    with ledger.read() as connection:
        position_by_edge = subscriptions.positions(connection)
        positions = {edge: position_by_edge.get(edge, 0) for edge in edges}
        last = log.last(connection)
        start = min(positions.values(), default=last)
        if start == last:
            return None
        group = [edge for edge, at in positions.items() if at == start]
        upto = min((at for at in positions.values() if at > start), default=last)
        feeds = None if len(group) == len(edges) else {Feed.parse(feed) for _, feed in group}
        changes = log.after(connection, start, upto, limit, feeds)
    return PendingChanges(group, start, changes, changes[-1].sequence if len(changes) == limit else upto)


def _reach(edges: Iterable[Edge], changes: Sequence[LogEntry], affected: AffectedOf) -> _Reach:
    readers: dict[str, list[str]] = {}
    for consumer, feed in edges:
        readers.setdefault(feed, []).append(consumer)
    reach = _Reach()
    for change in filter(is_heard, changes):
        for reader in readers.get(str(change.partition.feed), ()):
            _add(reach, reader, change, affected(reader, change.partition))
    return reach


def _add(reach: _Reach, reader: str, change: LogEntry, affected: Affected) -> None:
    if affected.outputs is None:
        new = Awaited(reader, change.partition, change.sequence, affected.why_not, affected.look_at)
        reach.absent.setdefault((reader, change.partition), new)
        return
    reach.woken += [
        AffectedOutput(at, change.sequence, look_at, affected.ends.get(at)) for at, look_at in affected.outputs
    ]
    reach.judged |= {output for output, _ in affected.outputs if tainted.may_spread(change, output)}
    reach.cleared |= {output for output, _ in affected.outputs if tainted.may_clear(change, output)}
    if change.kind == log.EVENT and affected.takes_events:
        reach.delivered += [(output, change.sequence) for output, _ in affected.outputs]


_Marks = Mapping[Partition, str | None]


def _marks(ledger: Ledger, reach: _Reach, declarations: BuildDeclarations) -> _Marks:
    """Return for each output the current problem of the data from which it was built, or None if there is no problem.

    If a problem changes later, this is another change in the log, and a later round reads it.
    """
    if not reach.judged and not reach.cleared:
        return {}
    with ledger.read() as connection:
        return _look(connection, reach, declarations)


def _look(connection: sa.Connection, reach: _Reach, declarations: BuildDeclarations) -> _Marks:
    return tainted.look(
        connection, reach.judged | tainted.marked(connection, reach.cleared - reach.judged), declarations
    )


def _put(ledger: Ledger, batch: PendingChanges, reach: _Reach, marks: _Marks, now: datetime) -> None:
    with ledger.change() as connection:
        if subscriptions.move(connection, batch.group, batch.start, batch.reached):
            awaited.put(connection, reach.absent.values(), now)
            _record(connection, reach, marks, now)


def _record(connection: sa.Connection, reach: _Reach, marks: _Marks, now: datetime) -> None:
    """Record the effects of changes.

    Store for each output the larger of two log numbers: of the change, and of the output's own last change.
    With a smaller number, the next verdict about the output would count as stale.
    """
    own = log.last_of(connection, {each.partition for each in reach.woken})
    due.wake(connection, [replace(each, changed=max(each.changed, own[each.partition])) for each in reach.woken], now)
    inbox.deliver(connection, reach.delivered)
    tainted.put(connection, marks, now)


def _look_at_absent(
    ledger: Ledger, edges: Collection[Edge], affected: AffectedOf, declarations: BuildDeclarations, now: datetime
) -> None:
    """Fan out changes that could not be fanned out before, in one transaction.

    Skip changes that another process has fanned out since.
    """
    with ledger.read() as connection:
        looked = [each for each in awaited.look(connection, now) if each.edge in edges]
    affected_by_row = {each: affected(each.subscriber, each.partition) for each in looked}
    if looked:
        with ledger.change() as connection:
            reach = _reach_of(connection, {each: affected_by_row[each] for each in awaited.drop(connection, looked)})
            awaited.put(connection, reach.absent.values(), now)
            _record(connection, reach, _look(connection, reach, declarations), now)


def _reach_of(connection: sa.Connection, affected_by_row: Mapping[Awaited, Affected]) -> _Reach:
    """Return the effects of changes up to each subscriber's log position.

    The subscriber gets later changes from the log.
    """
    numbers = event_store.since(connection, {each.partition: each.sequence for each in reversed([*affected_by_row])})
    positions, reach = subscriptions.positions(connection), _Reach()
    for missed, affected in affected_by_row.items():
        for change in _missed(missed, numbers.get(missed.partition, ())):
            if change.sequence <= positions.get(missed.edge, 0):
                _add(reach, missed.subscriber, change, affected)
    return reach


def _missed(looked: Awaited, numbers: Iterable[int]) -> list[LogEntry]:
    """Return the log change that could not be fanned out to its subscribers, and every later event of its partition."""
    partition, first = looked.partition, looked.sequence
    since = [LogEntry(number, partition, log.EVENT) for number in numbers if number >= first]
    # The first change's kind was not stored. Assume QUALITY, because such a change may both add and end marks.
    return [
        LogEntry(first, partition, log.QUALITY),
        *since,
    ]

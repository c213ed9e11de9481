"""Runs as they began and ended, in the order of the log, with what they read, wrote and found: for lineage."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.positions import Pin
from feed_assets.ledger import log, runs, updates, wanted
from feed_assets.ledger.runs import Run
from feed_assets.ledger.tables import change, consumed, quality, update


@dataclass(frozen=True)
class Found:
    """What a check found, and when (UTC); `by` is the run or person that reported it."""

    partition: Partition
    check: str
    state: str
    reason: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True)
class RunChange:
    """A run that began or ended, with the number of that change: `running`, or how it ended, when (UTC) and why.

    `written` are its updates, `read` what the last of them was made of, `found` the checks of what it built and read.
    """

    sequence: int
    run: Run
    state: str
    at: datetime
    why: str | None
    written: tuple[updates.Row, ...] = ()
    read: tuple[Pin, ...] = ()
    found: tuple[Found, ...] = ()


def run_changes(connection: sa.Connection, after: int, limit: int) -> tuple[RunChange, ...]:
    """The first changes of runs after a number, in order. A run that has begun has read and written nothing yet."""
    mine = (change.c.kind == log.RUN) & (change.c.sequence > after)
    told = connection.execute(sa.select(change).where(mine).order_by(change.c.sequence).limit(limit)).all()
    known = runs.find(connection, {each.subject for each in told})
    ended = {each.subject for each in told if each.after != runs.RUNNING}
    written, read = _written(connection, ended), _read(connection, ended)
    outputs = {each: known[each].output for each in ended & known.keys()}
    found = _found(connection, {*outputs.values(), *(pin.partition for pins in read.values() for pin in pins)})
    return tuple(
        _with(RunChange(each.sequence, known[each.subject], each.after, each.at, each.why), written, read, found)
        for each in told
        if each.subject in known
    )


def _with(
    bare: RunChange,
    written: Mapping[str, Sequence[updates.Row]],
    read: Mapping[str, Sequence[Pin]],
    found: Mapping[Partition, Sequence[Found]],
) -> RunChange:
    """A change of a run with what belongs to its end; a check that was reported since is not of it."""
    if bare.state == runs.RUNNING:
        return bare
    pins = tuple(read.get(bare.run.id, ()))
    of_it = [each for at in {pin.partition for pin in pins} for each in found.get(at, ()) if each.at <= bare.at]
    own = [each for each in found.get(bare.run.output, ()) if each.by == bare.run.id]
    both = tuple(sorted([*of_it, *own], key=lambda each: (each.partition, each.check)))
    return RunChange(**{**vars(bare), "written": tuple(written.get(bare.run.id, ())), "read": pins, "found": both})


def _written(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[updates.Row]]:
    """The updates of some runs, in order of their feeds."""
    asked, rows = wanted.rows(connection, ("run",), [[each] for each in sorted(run_ids)]), dict[str, list[updates.Row]]()
    query = sa.select(*updates.COLUMNS).join(asked, update.c.run == asked.c.run).order_by(update.c.feed, update.c.id)
    for row in map(updates.row_of, connection.execute(query).mappings()):
        rows.setdefault(row.run or "", []).append(row)
    return rows


def _read(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, list[Pin]]:
    """What the updates of some runs were made of, in order."""
    asked, pins = wanted.rows(connection, ("run",), [[each] for each in sorted(run_ids)]), dict[str, list[Pin]]()
    same = (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    query = sa.select(update.c.run, consumed).select_from(asked).join(update, update.c.run == asked.c.run)
    query = query.join(consumed, same & (consumed.c.id == update.c.id) & consumed.c.is_input)
    for row in connection.execute(query):
        pins.setdefault(row.run, []).append(updates.pin_of(row))
    return {each: sorted(set(read)) for each, read in pins.items()}


def _found(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, list[Found]]:
    """The newest results of the checks of some partitions."""
    asked, found = wanted.partitions(connection, sorted(partitions)), dict[Partition, list[Found]]()
    for row in connection.execute(sa.select(quality).join(asked, wanted.same(quality, asked))):
        at = Partition(Feed.parse(row.feed), row.partition)
        found.setdefault(at, []).append(Found(at, row.check, row.state, row.reason, row.by, row.at))
    return found

"""Builds of partitions, from start to end. Each output has at most one build at a time."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from feed_assets.core import attempts
from feed_assets.core.errors import AlreadyRunning, UpdateAbandoned
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import closures, key_tables, log, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import change, due, run, update

RUNNING, UNCHANGED, FAILED = "running", "unchanged", attempts.FAILED

WELL = frozenset({updates.PUBLISHED, UNCHANGED})
"""End states of a successful run, whose output is then up to date."""


@dataclass(frozen=True)
class Launch:
    """Origin of a run: its Dagster run, the person who requested it, its recipe and its cluster.

    `cluster` is the Spark cluster on which the run executes. `parameters` is the JSON of its arguments, without its
    partition. `why` is the reason of the verdict that requested it.
    """

    dagster_run: str | None = None
    asked_by: str | None = None
    made_with: str | None = None
    cluster: str | None = None
    parameters: str | None = None
    why: str | None = None
    placed: str | None = None
    """The compute target that the run was given, and the reason."""
    cores: int | None = None
    """The cores that the run was given on its compute target."""


@dataclass(frozen=True)
class Run:
    """One row of the table `run`; times in UTC."""

    id: str
    output: Partition
    state: str
    process: str
    started: datetime
    pins: str | None = None
    dagster_run: str | None = None
    reason: str | None = None
    ended: datetime | None = None
    made_with: str | None = None
    asked_by: str | None = None
    cluster: str | None = None
    parameters: str | None = None
    why: str | None = None
    placed: str | None = None
    cores: int | None = None

    @property
    def host(self) -> str:
        """Return the machine of the run's process."""
        return self.process.rsplit(":", 2)[0]

    @property
    def is_well(self) -> bool:
        """Return whether the run ended successfully."""
        return self.state in WELL


def _of(row: sa.Row[Any]) -> Run:
    output = Partition(Feed.parse(row.feed), row.partition)
    names = [each.name for each in fields(Run) if each.name != "output"]
    return Run(output=output, **{name: getattr(row, name) for name in names})


def _is(output: Partition) -> sa.ColumnElement[bool]:
    return (run.c.feed == str(output.feed)) & (run.c.partition == output.key)


def running(connection: sa.Connection, output: Partition | None = None) -> tuple[Run, ...]:
    """Return the runs in progress, of one output or of all."""
    query = sa.select(run).where(run.c.state == RUNNING)
    if output:
        query = query.where(_is(output))
    return tuple(_of(row) for row in connection.execute(query.order_by(run.c.started)))


def with_claims(connection: sa.Connection, output: Partition | None = None) -> tuple[Run, ...]:
    """Return the ended runs whose claimed updates are still open, of one output or of all.

    Claims stay open if the blackboard could not be reached when the run ended.
    """
    claims = sa.select(update.c.run).where(update.c.state == updates.CLAIMED)
    query = sa.select(run).where(run.c.state != RUNNING, run.c.id.in_(claims))
    if output:
        query = query.where(_is(output))
    return tuple(_of(row) for row in connection.execute(query.order_by(run.c.started)))


def is_as_read(connection: sa.Connection, earlier: Run) -> bool:
    """Return whether a run still has the same state as in `earlier`, which was read before."""
    return connection.execute(sa.select(run.c.state).where(run.c.id == earlier.id)).scalar() == earlier.state


def is_published(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a run has published. Another process may have finished the run after its manifest was written."""
    return connection.execute(sa.select(run.c.state).where(run.c.id == run_id)).scalar() == updates.PUBLISHED


def refuse_given_up(connection: sa.Connection, run_id: str) -> None:
    """Raise UpdateAbandoned if a run was ended by another process, because its own process seemed to be dead.

    The process of such a run may continue late, when another run has already built the partition.
    """
    row = connection.execute(sa.select(run.c.state, run.c.reason).where(run.c.id == run_id)).one()
    if row.state != RUNNING:
        raise UpdateAbandoned(
            f"this run was given up while its process slept ({row.state}: {row.reason or 'no reason'}): expected it to "
            "be running. It publishes nothing. You need not do anything: another run builds the partition."
        )


def last(connection: sa.Connection, output: Partition) -> Run | None:
    """Return the run of an output that started last, or None."""
    row = connection.execute(sa.select(run).where(_is(output)).order_by(run.c.started.desc()).limit(1)).first()
    return _of(row) if row else None


def ends_since(connection: sa.Connection, moment: datetime) -> dict[str, int]:
    """Return how many runs have ended since a moment, by their state."""
    query = sa.select(run.c.state, sa.func.count()).where(run.c.ended >= moment).group_by(run.c.state)
    return {row[0]: row[1] for row in connection.execute(query)}


RUNS_LOOKED_AT = 50
"""Number of newest runs of all code locations among which `last_ended` searches."""


def last_ended(connection: sa.Connection, feeds: Collection[Feed]) -> Run | None:
    """Return the last ended run of these feeds. Return None if all of the newest runs belong to other feeds."""
    ended = sa.select(run).where(run.c.ended.is_not(None)).order_by(run.c.ended.desc()).limit(RUNS_LOOKED_AT)
    return next((each for each in map(_of, connection.execute(ended)) if each.output.feed in feeds), None)


def of_dagster(connection: sa.Connection, dagster_run: str) -> tuple[Run, ...]:
    """Return the builds (one per partition) that a Dagster run made, in order."""
    query = sa.select(run).where(run.c.dagster_run == dagster_run).order_by(run.c.began, run.c.started)
    return tuple(_of(row) for row in connection.execute(query))


def ended_within(connection: sa.Connection, after: int, upto: int) -> tuple[Run, ...]:
    """Return the builds whose end has a log number in `(after, upto]`, in order."""
    run_ends = sa.select(change.c.subject, sa.func.max(change.c.sequence).label("last"))
    run_ends = run_ends.where(change.c.sequence > after, change.c.sequence <= upto, change.c.kind == log.RUN)
    ends = run_ends.where(change.c.after != RUNNING).group_by(change.c.subject).subquery()
    query = sa.select(run).join(ends, run.c.id == ends.c.subject).order_by(ends.c.last)
    return tuple(_of(row) for row in connection.execute(query))


def records(connection: sa.Connection, builds: Iterable[Run]) -> dict[tuple[str, str], int | None]:
    """Return the numbers of rows that builds wrote, by build and feed. None means not counted."""
    key_table = key_tables.rows(connection, ("run",), [[each.id] for each in builds])
    query = sa.select(update.c.run, update.c.feed, update.c.records).join(key_table, update.c.run == key_table.c.run)
    return {(run_id, feed): count for run_id, feed, count in connection.execute(query)}


def ended_in(connection: sa.Connection, builds: Iterable[tuple[str, Partition]]) -> set[tuple[str, Partition]]:
    """Return the pairs of Dagster run and output whose build has ended."""
    rows = [[dagster_run, str(output.feed), output.key] for dagster_run, output in sorted(builds)]
    key_table = key_tables.rows(connection, ("dagster_run", "feed", "partition"), rows)
    query = sa.select(run).join(key_table, key_tables.same_keys(run, key_table)).where(run.c.state != RUNNING)
    return {(each.dagster_run or "", each.output) for each in map(_of, connection.execute(query))}


def ended_last(connection: sa.Connection, outputs: Iterable[Partition], state: str, reason: str) -> set[Partition]:
    """Return the outputs whose last run ended in this state with this reason."""
    key_table, later = key_tables.partitions(connection, outputs), run.alias()
    newest = (
        sa.select(sa.func.max(later.c.began))
        .where(key_tables.same_keys(later, key_table))
        .correlate(key_table)
        .scalar_subquery()
    )
    query = sa.select(run).join(key_table, key_tables.same_keys(run, key_table))
    query = query.where(run.c.began == newest, run.c.state == state, run.c.reason == reason)
    return {each.output for each in map(_of, connection.execute(query))}


def find(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, Run]:
    """Return the known runs among these ids, by id."""
    ids = [[each] for each in sorted(run_ids)]
    return {row.id: _of(row) for row in key_tables.matching(connection, run, ids, ("id",))}


def places_of(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, str]:
    """Return where each run was, and why, by its id. Skip runs without compute targets."""
    query = sa.select(run.c.id, run.c.placed).where(run.c.id.in_([*run_ids]), run.c.placed.is_not(None))
    return {row.id: row.placed for row in connection.execute(query)}


def in_dagster(connection: sa.Connection, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the Dagster run ids of these runs, by run id. Runs without a Dagster run are missing."""
    key_table = key_tables.rows(connection, ("id",), [[each] for each in run_ids])
    query = sa.select(run.c.id, run.c.dagster_run).join(key_table, key_tables.same_keys(run, key_table))
    return {row.id: row.dagster_run for row in connection.execute(query) if row.dagster_run}


def open_attempts(connection: sa.Connection, outputs: Iterable[Partition]) -> tuple[Run, ...]:
    """Return the failed or refused runs of outputs since their last successful run, oldest first."""
    rows = connection.execute(
        _open_attempts(connection.dialect.name), key_tables.row_parameter(key_tables.keys(outputs))
    )
    return tuple(_of(row) for row in rows)


@cache
def _open_attempts(dialect: str) -> sa.Select[Any]:
    key_table, ended = key_tables.table(dialect, key_tables.PARTITION), run.alias()
    well = key_tables.same_keys(ended, key_table) & ended.c.state.in_(sorted(WELL))
    last = sa.select(sa.func.max(ended.c.finished)).where(well).correlate(key_table).scalar_subquery()
    query = (
        sa.select(run)
        .join(key_table, key_tables.same_keys(run, key_table))
        .where(run.c.state.in_(sorted(attempts.ATTEMPTS)))
    )
    return query.where(run.c.began >= sa.func.coalesce(last, 0)).order_by(run.c.started, run.c.began)


def attempted(connection: sa.Connection, feeds: Collection[Feed]) -> set[Partition]:
    """Return the outputs of these feeds with any failed or refused run in their whole history."""
    tried = run.c.feed.in_([*map(str, feeds)]) & run.c.state.in_(sorted(attempts.ATTEMPTS))
    rows = connection.execute(sa.select(run.c.feed, run.c.partition).where(tried).distinct())
    return {Partition(Feed.parse(row.feed), row.partition) for row in rows}


def last_attempts(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, str]:
    """Return how the last attempt of each output ended, if it failed or was refused and no later run succeeded."""
    return {each.output: each.state for each in open_attempts(connection, outputs)}


def start(ledger: Ledger, new: Run) -> None:
    """Record and log the start of a run.

    Raise AlreadyRunning if another run builds the output, and PartitionClosed if the output is closed.
    """
    try:
        with ledger.change() as connection:
            closures.refuse(connection, [new.output])
            began = _tell(connection, new.output, new.id, (None, RUNNING), new.started)
            connection.execute(
                sa.insert(run).values(
                    id=new.id,
                    feed=str(new.output.feed),
                    partition=new.output.key,
                    state=RUNNING,
                    dagster_run=new.dagster_run,
                    process=new.process,
                    started=new.started,
                    began=began,
                    made_with=new.made_with,
                    asked_by=new.asked_by,
                    cluster=new.cluster,
                    parameters=new.parameters,
                    why=new.why,
                    placed=new.placed,
                    cores=new.cores,
                )
            )
    except IntegrityError as error:
        with ledger.read() as connection:
            running_builds = running(connection, new.output)
        if not running_builds:
            raise
        raise AlreadyRunning(
            f"{new.output} is being built by run {running_builds[0].dagster_run or running_builds[0].id} in process "
            f"{running_builds[0].process} since {running_builds[0].started:%Y-%m-%d %H:%M:%S} UTC: "
            "expected one at a time. Wait for it, or end it."
        ) from error


def pinned(connection: sa.Connection, run_id: str, pins: str) -> None:
    """Store which input updates a run has pinned, as a digest of its pins."""
    connection.execute(sa.update(run).where(run.c.id == run_id).values(pins=pins))


def end(connection: sa.Connection, run_id: str, state: str, now: datetime, reason: str | None) -> None:
    """Record and log the end of a run.

    Call this after the run's other log changes. Failures before the end of a successful run no longer count as
    attempts. A run that ended before, and is now found to have published, keeps the log number of its first end. So
    failures after that first end still count.
    """
    before = connection.execute(sa.select(run.c.feed, run.c.partition, run.c.state).where(run.c.id == run_id)).one()
    output = Partition(Feed.parse(before.feed), before.partition)
    finished = _tell(connection, output, run_id, states=(before.state, state), now=now, why=reason)
    values: dict[str, Any] = {"state": state, "ended": now, "reason": reason}
    values |= {"finished": finished} if before.state == RUNNING else {}
    connection.execute(sa.update(run).where(run.c.id == run_id).values(values))
    if state in attempts.ATTEMPTS:
        _decide_again(connection, run_id, now)


def _tell(
    connection: sa.Connection,
    output: Partition,
    run_id: str,
    states: tuple[str | None, str],
    now: datetime,
    why: str | None = None,
) -> int:
    """Log a run's state if it is new. Return the number of the last change in the log."""
    before, after = states
    if before != after:
        log.append(
            connection, [Change(output, log.RUN, run_id, at=now, before=before, after=after, why=why, who=run_id)]
        )
    return log.last(connection)


def _decide_again(connection: sa.Connection, run_id: str, now: datetime) -> None:
    """Make the output of a failed or refused run due now: it waits for the end of this run."""
    output = sa.select(run.c.feed, run.c.partition).where(run.c.id == run_id)
    of_output = sa.tuple_(due.c.feed, due.c.partition).in_(output) & (due.c.look_at > now)
    connection.execute(sa.update(due).where(of_output).values(look_at=now))

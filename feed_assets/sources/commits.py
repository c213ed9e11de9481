"""Wait for the writers of a PostgreSQL table, because transactions may commit in another order than their numbers.

INSERT locks its table before it draws a number from a sequence. PostgreSQL releases the lock after the transaction's
commit is visible. So when a row with number h is visible, each transaction with a lower number has ended, or still has
its lock. After these transactions have ended, a new snapshot has all rows up to h. docs/event-sources.md lists the
exceptions.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.message_words import shortened

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.005


_BELOW = """
    WITH RECURSIVE below(oid) AS (
        SELECT to_regclass(:table)::oid
        UNION
        SELECT next.oid FROM below CROSS JOIN LATERAL (
            SELECT inhrelid AS oid FROM pg_inherits WHERE inhparent = below.oid
            UNION ALL
            SELECT refobjid FROM pg_rewrite
            JOIN pg_depend ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid
            WHERE ev_class = below.oid AND refclassid = 'pg_class'::regclass
        ) AS next
    )"""
"""SQL that selects the table, its partitions and child tables, and the tables that a view reads."""


def _of_all_below(select: str) -> sa.TextClause:
    return sa.text(" ".join((_BELOW, select)))


# INSERT, UPDATE, DELETE, MERGE and COPY take a RowExclusiveLock, even after a stronger LOCK TABLE. A stronger lock
# alone does not mean that rows are written. Waiting for such locks would mean waiting for every vacuum.
_WRITERS = _of_all_below("""
    SELECT l.virtualtransaction AS id, l.pid, extract(epoch FROM clock_timestamp() - min(a.xact_start)) AS seconds
    FROM pg_locks AS l JOIN below ON below.oid = l.relation LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY l.virtualtransaction, l.pid""")
_UNSEEN = _of_all_below("""
    SELECT CASE WHEN pg_is_in_recovery() THEN 'a replica, which does not show its writers'
    WHEN to_regclass(:table) IS NULL THEN 'not a table that PostgreSQL knows' ELSE (
        SELECT CASE relkind WHEN 'f' THEN 'a foreign table: ' ELSE 'a materialized view: ' END || relname
        FROM pg_class JOIN below USING (oid) WHERE relkind IN ('f', 'm') LIMIT 1
    ) END""")
_Writers = list[sa.Row[tuple[str, int | None, float | None]]]


@dataclass(frozen=True)
class Waiting:
    """The time for which a read waits for transactions that may still commit an earlier event."""

    limit: timedelta = timedelta(seconds=5)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def await_writers(connection: sa.Connection, table: sa.TableClause, waiting: Waiting) -> str | None:
    """Wait until all transactions that now write to the table have ended. Return a message if that takes too long.

    Transactions that begin later draw higher numbers, so they are not awaited. The connection must be in READ COMMITTED
    mode, so that each query sees the latest commits. Raise SourceUnavailable for a table whose writers cannot be seen.
    """
    name = connection.dialect.identifier_preparer.format_table(table)
    if unseen := connection.execute(_UNSEEN, {"table": name}).scalar():
        raise SourceUnavailable(
            f"{name} is {unseen}: expected a table that shows its writers, because a writer may commit an event after "
            "a later event was read. Read the primary's table."
        )
    began, waited_for = waiting.clock(), None
    while writers := _writers(connection, name, waited_for):
        if waiting.clock() - began >= waiting.limit.total_seconds():
            return _in_words(name, writers, waiting.clock() - began)
        waited_for = {writer.id for writer in writers}
        waiting.sleep(_POLL_SECONDS)
    return None


def _writers(connection: sa.Connection, name: str, among: set[str] | None) -> _Writers:
    """Return the transactions that write to a table. With `among`, return only those with an id in `among`.

    Prepared transactions, which have no pid, are always returned.
    """
    writers = connection.execute(_WRITERS, {"table": name}).all()
    return [writer for writer in writers if among is None or writer.id in among or writer.pid is None]


def _in_words(name: str, writers: _Writers, seconds: float) -> str:
    listed = shortened([_writer_text(writer.pid, writer.seconds) for writer in writers], 3)
    message = (
        f"{name}: waited {seconds:.1f} s for transactions that write to it: {listed}. They may still commit earlier "
        "events, so no later event is read until they have ended: see pg_stat_activity."
    )
    _log.warning(message)
    return message


def _writer_text(pid: int | None, seconds: float | None) -> str:
    if pid is None:
        return "a prepared one (pg_prepared_xacts: COMMIT PREPARED or ROLLBACK PREPARED)"
    return f"pid {pid}" + (f", open for {seconds:.0f} s" if seconds is not None else "")

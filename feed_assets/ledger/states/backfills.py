"""Functions that start, end and give up backfills of windows, each by compare-and-set in one transaction.

A window stays `backfilling` until its backfill ends, even if the backfilling process is killed. When the backfill ends,
counts and checks decide the window's state. A check that failed before must run again. Until it passes, the complete
windows inside stay `complete_with_issue`.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import IllegalTransition, PartitionClosed
from feed_assets.core.transitions import check_transition
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import quality
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import PUBLISHED
from feed_assets.ledger.runs import RUNNING
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.count_reports import ReportOutcome
from feed_assets.ledger.states.rollup import Judging
from feed_assets.ledger.states.window_queries import look_at_checks, placed
from feed_assets.ledger.states.window_rows import BACKFILLING, COLUMNS, WindowRow, row_of
from feed_assets.ledger.tables import change, run, window

_Prepare = Callable[[sa.Connection, WindowRow], WindowState]


def begin(
    ledger: Ledger, address: WindowAddress, why: str, by: str, now: datetime, expected: WindowState | None = None
) -> ReportOutcome:
    """Record that the backfill of a window begins. Return `known=1` if it has begun already.

    Raise IllegalTransition if the window is open, or not in the `expected` state. Raise PartitionClosed if the window
    is closed, and InvalidName if the dataset does not have the window.
    """

    def prepare(_: sa.Connection, row: WindowRow) -> WindowState:
        check_transition(str(row.address.partition), row.state, WindowState.BACKFILLING)
        return WindowState.BACKFILLING

    return _move(ledger, address, WindowState.BACKFILLING, prepare=prepare, why=why, by=by, now=now, expected=expected)


def finish(
    ledger: Ledger, address: WindowAddress, why: str, by: str, now: datetime, expected: WindowState | None = None
) -> ReportOutcome:
    """Record that the backfill of a window ended. Return `known=1` if the window is backfilled already.

    The window becomes backfilled, or open if its counts say so. Its failed checks become stale: they must run again.
    Raise the errors of `begin`, and IllegalTransition if no backfill was begun.
    """

    def prepare(connection: sa.Connection, row: WindowRow) -> WindowState:
        check_transition(str(row.address.partition), row.state, WindowState.BACKFILLED)
        lock_log(connection)
        quality.make_stale(connection, row.address.partition, by, now)
        look_at_checks(connection, row)
        return WindowState.BACKFILLED

    return _move(ledger, address, WindowState.BACKFILLED, prepare=prepare, why=why, by=by, now=now, expected=expected)


def give_up(ledger: Ledger, address: WindowAddress, why: str, by: str, now: datetime) -> ReportOutcome:
    """Give up a window's backfill, so that counts and checks decide its state. Return `known=1` if none was begun.

    Raise InvalidName if the dataset does not have the window.
    """

    def prepare(_: sa.Connection, row: WindowRow) -> WindowState:
        return WindowState.OPEN if row.state is WindowState.BACKFILLING else row.state

    return _move(ledger, address, None, prepare=prepare, why=why, by=by, now=now, expected=None)


def _move(
    ledger: Ledger,
    address: WindowAddress,
    target: WindowState | None,
    prepare: _Prepare,
    why: str,
    by: str,
    now: datetime,
    expected: WindowState | None,
) -> ReportOutcome:
    with ledger.write() as connection:
        tracked = window_policies.lock(connection, [address.dataset], now)[address.dataset]
        address = placed(tracked, address)
        judging = Judging(connection, address.dataset, tracked, now, by)
        row = judging.row(address)
        if expected is not None and row.state is not expected:
            raise IllegalTransition(
                f"{address.partition} is {row.state}, expected {expected}: another process changed it first."
            )
        if row.state is target:
            return ReportOutcome(known=1)
        state = prepare(connection, row)
        if state is row.state:
            return ReportOutcome(known=1)
        return ReportOutcome(accepted=1, transitions=len(judging.move(address, state, why)))


def settle(ledger: Ledger, now: datetime) -> None:
    """End the backfills of ended runs. If the run has published, finish its backfills; otherwise give them up.

    A run may be killed at any time after it began a backfill. So call this wherever runs are reconciled. A repeated
    call changes nothing.
    """
    with ledger.read() as connection:
        ended_backfills = _of_ended_runs(connection)
    for address, run_id, state, reason in ended_backfills:
        with suppress(IllegalTransition, PartitionClosed):  # The window was changed or closed meanwhile.
            if state == PUBLISHED:
                finish(ledger, address, f"run {run_id} has published it", run_id, now)
            else:
                give_up(ledger, address, f"run {run_id} was {state}: {reason or state}", run_id, now)


def _of_ended_runs(connection: sa.Connection) -> list[tuple[WindowAddress, str, str, str | None]]:
    """Return the windows whose backfill was begun by a run that has ended, with the run's id, state and reason."""
    query = sa.select(*COLUMNS, run.c.id, run.c.state, run.c.reason).select_from(window)
    query = query.join(change, change.c.sequence == window.c.changed)
    query = query.join(run, (run.c.id == change.c.who) & (run.c.state != RUNNING)).where(BACKFILLING)
    width = len(COLUMNS)
    return [(row_of(row[:width]).address, *row[width:]) for row in connection.execute(query)]

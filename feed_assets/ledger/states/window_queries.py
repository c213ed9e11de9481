"""Queries about windows, and functions that record what people and checks report about windows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.errors import FeedAssetsError, InvalidDefinition, InvalidName, InvalidReport
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Life, Tracked, above, dated
from feed_assets.core.windows import DAY, WindowAddress, minutes_of, window_of
from feed_assets.ledger import log, quality
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states import offset_checks, window_policies
from feed_assets.ledger.states.count_reports import ReportOutcome, all_deltas
from feed_assets.ledger.states.rollup import Judging
from feed_assets.ledger.states.window_rows import WindowRow, all_rows, place, remove, rows


def stored_windows(connection: sa.Connection, addresses: Iterable[WindowAddress]) -> dict[WindowAddress, WindowRow]:
    """Return the ledger's rows of these windows. A window without a row is open.

    Cost: one index lookup for each window.
    """
    return rows(connection, addresses)


def accept(ledger: Ledger, address: WindowAddress, reason: str, by: str, now: datetime) -> bool:
    """Accept an incomplete window as complete. Later counts are still added. Return whether the window's state changed.

    Raise InvalidName for an unknown window or dataset, and PartitionClosed if the window is closed.
    """
    with ledger.write() as connection:
        if not window_policies.tracked(connection, [address.dataset]):
            raise InvalidName(
                f"nothing is known of {address.dataset}: expected a dataset that was reported or declared."
            )
        tracked = window_policies.lock(connection, [address.dataset], now)[address.dataset]
        address = placed(tracked, address)
        judging = Judging(connection, address.dataset, tracked, now, by)
        judging.row(address).accepted = f"accepted by {by}: {reason}"
        return address in judging.judge_again([address])


def report_quality(
    ledger: Ledger,
    address: WindowAddress,
    check: str,
    state: str,
    reason: str | None,
    by: str,
    now: datetime,
    version: str | None = None,
) -> ReportOutcome:
    """Record the state of a check of a window, if `quality.report` accepts it.

    A failed check makes the window invalid when all its data have arrived. Raise InvalidName if the dataset does not
    have the window. Raise InvalidReport if the same version was reported with different content. Raise PartitionClosed
    if the window, or a window that contains it, is closed.
    """
    with ledger.write() as connection:
        tracked = window_policies.lock(connection, [address.dataset], now)[address.dataset]
        address = placed(tracked, address)
        judging = Judging(connection, address.dataset, tracked, now, by)
        row = judging.row(address)
        lock_log(connection)
        if not quality.report(
            connection, address.partition, check, state=state, reason=reason, by=by, now=now, version=version
        ):
            return ReportOutcome(known=1)
        look_at_checks(connection, row)
        return ReportOutcome(accepted=1, transitions=len(judging.judge_again([address])))


def open_again(ledger: Ledger, addresses: Iterable[WindowAddress], by: str, now: datetime) -> None:
    """Judge reopened windows: nothing judged them while they were closed. A repeated call changes nothing."""
    grouped: dict[Feed, list[WindowAddress]] = {}
    for each in addresses:
        grouped.setdefault(each.dataset, []).append(each)
    for dataset, windows in grouped.items():
        with ledger.write() as connection:
            tracked = window_policies.lock(connection, [dataset], now)[dataset]
            Judging(connection, dataset, tracked, now, by).open_again(windows)


def look_at_checks(connection: sa.Connection, row: WindowRow) -> None:
    """Read the states of a window's checks into its row: `issue` (failed), `stale`, and `marked` (made of bad data)."""
    at = row.address.partition
    row.issue, row.stale, row.marked = (
        quality.failed(connection, [at], [state]).get(at) for state in (quality.FAILED, quality.STALE, quality.MARKED)
    )


def placed(tracked: Tracked, address: WindowAddress) -> WindowAddress:
    """Return a window's address with the levels of its sub-partition in the declared order.

    Raise InvalidName for a wrong sub-partition or grain (length of windows).
    """
    path = tracked.path_of(address.sub_partition)
    tracked.check(path)
    tracked.window(path, address.grain, address.key)
    return address._replace(sub_partition=path)


def declare(ledger: Ledger, declared: Mapping[Feed, Tracked], now: datetime) -> dict[Feed, FeedAssetsError]:
    """Store the changed policies of datasets, and judge their windows again. Return refusals by dataset.

    Sub-partitions that join or leave get dates, so the past does not change. A policy is refused, for example, if its
    base grain is smaller than the grain of existing counts. A refusal affects only its own dataset. A repeated call
    changes nothing.
    """
    with ledger.read() as connection:
        differing = window_policies.differing(connection, declared)
    refused: dict[Feed, FeedAssetsError] = {}
    for name in sorted(differing):
        try:
            with ledger.write() as connection:
                _redeclare(connection, name, declared[name], now)
        except (InvalidDefinition, InvalidReport) as error:
            refused[name] = error
    return refused


def _redeclare(connection: sa.Connection, name: Feed, declared: Tracked, now: datetime) -> None:
    before = window_policies.lock(connection, [name], now)[name]
    place(connection, name, declared)
    kept = all_rows(connection, name)
    new = dated(declared, before, _counted(before, kept), partial(_today, kept, now))
    window_policies.put(connection, name, new)
    if not kept:
        return
    _remove(connection, name, [row for row in kept if row.address.grain not in new.grains], now)
    kept = [row for row in kept if row.address.grain in new.grains]
    judging = Judging(connection, name, new, now, BY)
    if new.base == before.base:
        judging.recount(kept, offset_checks.again(connection, name, new))
    else:
        _check_base(name, before, new, kept)
        compared = offset_checks.rebuild(connection, name, new, judging.base_of)
        judging.count_again(kept, all_deltas(connection, name), compared)


BY = "declaration"
"""The author of transitions that follow from a changed declaration."""


def _counted(before: Tracked, kept: Iterable[WindowRow]) -> set[str]:
    """Return the sub-partitions for which counts were reported.

    Skip sub-partitions whose counts are sums over the sub-partitions below.
    """
    paths = {row.address.sub_partition for row in kept if row.address.grain == before.base and row.parts}
    return {path for path in paths if path not in before.below}


def _today(kept: Sequence[WindowRow], now: datetime, path: str, life: Life) -> date:
    """Return the date on which a sub-partition joins or leaves its dataset.

    This is the current batch date in the sub-partition's time zone. If complete windows of the sub-partition above
    reach further, the date is the first date after these windows.
    """
    complete = (row.end for row in kept if row.address.sub_partition == above(path) and row.state in DONE)
    day = window_of(DAY, now, life.zone)
    last = max(complete, default=day.start)
    while day.start < last:
        day = window_of(DAY, day.end, life.zone)
    return date.fromisoformat(day.key)


def _remove(connection: sa.Connection, name: Feed, gone: Sequence[WindowRow], now: datetime) -> None:
    """Remove windows of grains that are no longer declared. Log the removed windows that were not open."""
    if not_open := [row for row in gone if row.state is not WindowState.OPEN]:
        lock_log(connection)
        why = "its grain is no longer declared"
        changes = [
            Change(
                row.address.partition,
                log.WINDOW,
                row.address.grain,
                at=now,
                before=row.state.value,
                after="open",
                why=why,
                who=BY,
            )
            for row in not_open
        ]
        log.append(connection, changes)
    remove(connection, name, {row.address.grain for row in gone})


def _check_base(name: Feed, before: Tracked, new: Tracked, kept: Iterable[WindowRow]) -> None:
    """Raise InvalidDefinition if existing counts cannot be converted to a new base grain."""
    if minutes_of(new.base) % minutes_of(before.base) or any(row.folded for row in kept):
        raise InvalidDefinition(
            f"{name} has counts by windows of {before.base}, its declaration says {new.base}: expected the grain of "
            "the counts, or a multiple of it. Correct the declaration, or give the dataset another name or version."
        )

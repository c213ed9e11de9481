"""Explanations of incomplete windows.

A larger window's text names the smaller window or sub-partition that lacks data.
"""

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState, why
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger.states.window_rows import WindowRow, empty, rows


def whys(
    connection: sa.Connection, windows: Iterable[WindowRow], tracked: Mapping[Feed, Tracked]
) -> dict[WindowAddress, str]:
    """Return a text for each window: why it is incomplete or bad, who accepted it, or otherwise its counts.

    Cost: one statement for each level of windows.
    """
    row_by_address = {row.address: row for row in windows}
    blamed = followed = row_by_address
    while followed:
        parts = {at: _parts(tracked[at.dataset], row) for at, row in followed.items()}
        part_by_address = rows(connection, {each for below in parts.values() for each in below})
        below = {
            at: [part_by_address.get(each) or empty(tracked[at.dataset], each) for each in parts[at]] for at in parts
        }
        followed = {at: part for at, row in followed.items() if (part := _blamed(row, below[at]))}
        blamed = blamed | followed
    return {at: _explanation(tracked[at.dataset], row_by_address[at], row) for at, row in blamed.items()}


def _parts(tracked: Tracked, row: WindowRow) -> tuple[WindowAddress, ...]:
    """Return the parts (smaller windows or sub-partitions) that may explain a window's state.

    Return () if the window's own row explains its state.
    """
    is_open = row.state is WindowState.OPEN
    looks = is_open or row.state is WindowState.COMPLETE_WITH_ISSUE
    return tracked.parts(row.address, row.window) if looks and row.is_kept and not row.bad else ()


def _blamed(row: WindowRow, parts: Sequence[WindowRow]) -> WindowRow | None:
    """Return the first part (smaller window or sub-partition) that causes a window's state.

    Return None if no part does.

    `parts` is empty unless the window is open, or complete with an issue.
    """
    is_open = row.state not in DONE
    return next((each for each in parts if (each.state not in DONE if is_open else each.state is row.state)), None)


def _explanation(tracked: Tracked, row: WindowRow, blamed: WindowRow) -> str:
    at, name = row.address, blamed.address
    if blamed is row:
        return _own(tracked, row)
    if blamed.bad and blamed.bad in (blamed.held, blamed.flagged):  # Such texts already name the bad window.
        return blamed.bad
    of = f" in {name.sub_partition}" if name.sub_partition != at.sub_partition else ""
    window = f"{name.grain} {name.key}{of}"
    if blamed.bad or blamed.state is WindowState.BACKFILLING or not blamed.is_kept:
        return f"{window} is {blamed.state.value.replace('_', ' ')}: {_own(tracked, blamed)}"
    return f"{window} has {_own(tracked, blamed)}"


def _own(tracked: Tracked, row: WindowRow) -> str:
    """Explain a window by itself, without its parts."""
    at = row.address
    if row.state is WindowState.BACKFILLING:
        return (
            f"its backfill began at {row.since:%Y-%m-%d %H:%M} UTC; `feed-assets state transitions` says who began it"
        )
    if reason := row.bad or (row.accepted if row.state is WindowState.COMPLETE else None):
        return reason
    if not row.is_kept:
        return "nothing is reported of it"
    if at.grain == tracked.base and tracked.is_leaf(at.sub_partition, row.window):
        return why(row.records, row.counts, tracked.tiers, row.offsets)
    return "" if row.state in DONE else "none of its parts is expected at that time"

"""Nested windows, and the spread of bad quality from one window to other windows.

Bad quality spreads to the windows inside, and to a larger window that has no other problem.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import Window, WindowAddress, minutes_of, tiles
from feed_assets.ledger.states.window_rows import WindowRow


def inside(tracked: Tracked, at: WindowAddress, window: Window) -> Iterator[WindowAddress]:
    """Yield the windows inside of a window: smaller windows, and equal or smaller windows of sub-partitions below."""
    zone = tracked.zone_of(at.sub_partition)
    for grain in tracked.grains:
        if minutes_of(grain) < minutes_of(at.grain):
            for each in tiles(window.start, window.end, (grain,), zone):
                yield WindowAddress(at.dataset, at.sub_partition, grain, each.key)
    for path in tracked.children(at.sub_partition, window):
        below = WindowAddress(at.dataset, path, at.grain, at.key)
        yield below
        yield from inside(tracked, below, tracked.window(path, at.grain, at.key))


def holding(tracked: Tracked, at: WindowAddress, start: datetime) -> list[WindowAddress]:
    """Return a window, and all windows that contain it. These are larger, or belong to a sub-partition above."""
    addresses = tracked.holding(at.dataset, at.sub_partition, start)
    return [at, *(each for each in addresses if each != at and minutes_of(each.grain) >= minutes_of(at.grain))]


def inner(tracked: Tracked, row: WindowRow) -> tuple[WindowAddress, ...]:
    """Return the parts (smaller windows or sub-partitions) of a window if it has missing data.

    Return () for other windows, and for base windows.
    """
    lacks = row.state is WindowState.OPEN and not row.held
    return tracked.parts(row.address, row.window) if lacks else ()


def held_by(parts: Sequence[WindowRow], *, is_accepted: bool) -> str | None:
    """Describe the bad parts (smaller windows or sub-partitions) of a window, if only these keep the window open.

    Otherwise return None.

    Only bad parts keep a window open if all its data have arrived, or if a person accepted the window as it is. The
    text has the reason of the first part and the names of the other parts, so it changes if another part becomes bad.
    """
    bad = [part for part in parts if part.judged_as is WindowState.INVALID or part.held]
    lacks = any(not part.held and part.state is not WindowState.INVALID and part.state not in DONE for part in parts)
    if not bad or (lacks and not is_accepted):
        return None
    other_names = ", ".join(part.named for part in bad[1:])
    return f"{bad[0].held or bad[0].suspicion}{f'; and {other_names}' if other_names else ''}"

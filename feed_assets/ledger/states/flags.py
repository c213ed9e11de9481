"""How quality spreads over windows: down to all that lie in a bad one, and up to what has nothing else against it."""

from collections.abc import Iterable, Iterator

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.members import Tracked
from feed_assets.core.windows import Window, WindowAddress, minutes_of, tiles
from feed_assets.ledger.states.rows import Row


def inside(tracked: Tracked, at: WindowAddress, window: Window) -> Iterator[WindowAddress]:
    """The smaller windows in one, and all of these of the sub-partitions below."""
    zone = tracked.zone_of(at.sub_partition)
    for grain in tracked.grains:
        if minutes_of(grain) < minutes_of(at.grain):
            for each in tiles(window.start, window.end, (grain,), zone):
                yield WindowAddress(at.dataset, at.sub_partition, grain, each.key)
    for path in tracked.children(at.sub_partition, window):
        below = WindowAddress(at.dataset, path, at.grain, at.key)
        yield below
        yield from inside(tracked, below, tracked.window(path, at.grain, at.key))


def held_by(parts: Iterable[Row]) -> str | None:
    """The first bad part of a window that nothing else keeps open: then all of its data are there."""
    found: str | None = None
    for part in parts:
        if not part.held and part.state is not WindowState.INVALID and part.state not in DONE:
            return None
        if part.judged_as is WindowState.INVALID or part.held:
            found = found or part.held or part.suspicion
    return found

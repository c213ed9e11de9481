"""Find the new valid updates of foreign feeds on the blackboard, and let the ledger learn of them."""

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from feed_assets.core.errors import FeedAssetsError, InvalidName
from feed_assets.core.feeds import Feed, Partition, is_update_id
from feed_assets.feeds import read
from feed_assets.ledger.database import get_cursor, put_cursor
from feed_assets.ledger.facts import pins_of
from feed_assets.runs.observe import observe
from feed_assets.runs.workbench import Workbench

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrivals:
    """One look at foreign feeds: whether all of it was seen, and what could not be read, by feed."""

    is_complete: bool
    failed: dict[Feed, FeedAssetsError]


def arrive(
    bench: Workbench, feeds: Sequence[Feed], is_over: Callable[[], bool], appendable: Set[Feed] = frozenset()
) -> Arrivals:
    """Observe the partitions of foreign feeds, newest first, until the time is over; the next call goes on there.

    Of `appendable` ones every batch is observed. A feed that cannot be read does not hold up the others; if none can,
    the first error is raised.
    """
    failed: dict[Feed, FeedAssetsError] = {}
    complete: list[bool] = []
    for feed in feeds:
        try:
            complete.append(_look_through(bench, feed, is_over, is_appendable=feed in appendable))
        except FeedAssetsError as error:
            _log.warning("%s could not be read: %s", feed, error)
            failed[feed] = error
    if feeds and len(failed) == len(feeds):
        raise next(iter(failed.values()))
    return Arrivals(all(complete), failed)


def _look_through(bench: Workbench, feed: Feed, is_over: Callable[[], bool], *, is_appendable: bool) -> bool:
    """Go through the names right below the feed, from the newest or where the last look ended."""
    position = _position(bench, feed)
    if is_appendable:
        _observe_gone(bench, {Partition(feed)}, {*bench.board.children(str(feed))})
    for name in _below(bench, feed, position):
        found = [*_partitions(bench, feed, name, is_appendable=is_appendable)]
        for partition in found:
            observe(bench.board, bench.ledger, partition, bench.now())
        if is_appendable:
            holders = {batch.holder for batch in found if batch.holder and batch.holder.key}
            _observe_gone(bench, holders, {batch.key for batch in found})
        if name and is_over():  # After one name at least: a feed whose turn always comes late would starve.
            _put_position(bench, feed, name)
            return False
    if position:
        _put_position(bench, feed, "")
    return True


def _observe_gone(bench: Workbench, holders: Set[Partition], found: Set[str]) -> None:
    """Look again at the batches that the ledger believes to be in some partitions, and that were not found there."""
    with bench.ledger.read() as connection:
        known = pins_of(connection, sorted(holders)).values()
    for batch in [pin.partition for pins in known for pin in pins if pin.partition.key not in found]:
        observe(bench.board, bench.ledger, batch, bench.now())


def _below(bench: Workbench, feed: Feed, position: str) -> Iterator[str]:
    names = sorted(bench.board.children(str(feed)), reverse=True)
    if any(map(is_update_id, names)):
        yield ""  # A feed without partitions.
        return
    yield from (name for name in names if not position or name < position)


def _partitions(bench: Workbench, feed: Feed, name: str, *, is_appendable: bool) -> Iterator[Partition]:
    try:
        Partition(feed, name)
    except InvalidName as error:
        _log.warning("%s: %s is skipped: %s", feed, name, error)
        return
    for found in read.walk(bench.board, feed, name, is_appendable=is_appendable):
        if isinstance(found, Partition):
            yield found
        else:
            _log.warning("%s: %s is skipped: %s", feed, found.id, found.reason)


def _position(bench: Workbench, feed: Feed) -> str:
    with bench.ledger.read() as connection:
        return get_cursor(connection, f"looked through {feed}") or ""


def _put_position(bench: Workbench, feed: Feed, name: str) -> None:
    with bench.ledger.write() as connection:
        put_cursor(connection, f"looked through {feed}", name)

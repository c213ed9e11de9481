"""Find the new valid updates of foreign feeds on the blackboard, and let the ledger learn of them."""

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from feed_assets.core.errors import BlackboardError, FeedAssetsError, InvalidName
from feed_assets.core.feeds import Feed, Partition, Version, is_update_id
from feed_assets.feeds import read
from feed_assets.ledger import updates
from feed_assets.ledger.database import get_cursor, put_cursors
from feed_assets.ledger.facts import pins_of
from feed_assets.runs.observe import observe
from feed_assets.runs.workbench import Workbench

RECENT = 10
"""Known names, the newest, that each look visits: late data mostly come for these."""

ROTATION = 40
"""Known names that each look visits besides, in turn: of 10,000 each one has its turn every 250 looks."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrivals:
    """One look at foreign feeds: whether all that is new was seen, and what could not be read, by feed."""

    is_complete: bool
    failed: dict[Feed, FeedAssetsError]


def arrive(
    bench: Workbench, feeds: Sequence[Feed], is_over: Callable[[], bool], appendable: Set[Feed] = frozenset()
) -> Arrivals:
    """Observe what is new in foreign feeds, the newest first, until the time is over; the next call goes on there.

    Then some of what the ledger knows already, which may have newer updates: see `_Look`. Of `appendable` feeds every
    batch is observed. A feed that cannot be read does not hold up the others. Raises what the store says if it gives
    access to none of them.
    """
    return _each(feeds, lambda feed: _Look(bench, feed, is_over, feed in appendable).run())


def arrive_all(bench: Workbench, feeds: Sequence[Feed], appendable: Set[Feed] = frozenset()) -> Arrivals:
    """Observe every partition of foreign feeds, however long that takes."""
    return _each(feeds, lambda feed: _Look(bench, feed, _never, feed in appendable).run_all())


def _never() -> bool:
    return False


def _each(feeds: Sequence[Feed], look: Callable[[Feed], bool]) -> Arrivals:
    failed: dict[Feed, FeedAssetsError] = {}
    complete: list[bool] = []
    for feed in feeds:
        try:
            complete.append(look(feed))
        except FeedAssetsError as error:
            _log.warning("%s could not be read: %s", feed, error)
            failed[feed] = error
    down = [error for error in failed.values() if isinstance(error, BlackboardError)]
    if feeds and len(down) == len(feeds):
        raise down[0]
    return Arrivals(all(complete), failed)


@dataclass(frozen=True)
class _Look:
    """One look at the names right below a feed, each of which is a partition or holds some.

    Names without a published update in the ledger come first, all of them. Then the newest known ones; then a few of
    all known ones, in rotation. Of each of these at least one, whatever the time: none may starve for another.
    """

    bench: Workbench
    feed: Feed
    is_over: Callable[[], bool]
    is_appendable: bool

    def run(self) -> bool:
        """Whether the names without a published update were looked at to the last one."""
        names, known = self._names(), self._known()
        strange = [name for name in names if name not in known]
        familiar = [name for name in names if name in known]
        is_complete = self._go_round("looked through", strange, len(strange))
        recent = self._visit(familiar[:RECENT])
        self._go_round("looked again through", familiar[recent:], ROTATION)
        return is_complete

    def run_all(self) -> bool:
        """Look at every name."""
        names = self._names()
        return self._visit(names) == len(names)

    def _names(self) -> list[str]:
        """The newest first; only '' if the feed has no partitions. A version below is another feed's."""
        names = self.bench.board.children(str(self.feed))
        if self.feed.version is None:
            names = [name for name in names if Version.parse(name) is None]
        if self.is_appendable:
            self._observe_gone({Partition(self.feed)}, set(names))
        return [""] if any(map(is_update_id, names)) else names[::-1]

    def _known(self) -> set[str]:
        with self.bench.ledger.read() as connection:
            return {key.split("/", 1)[0] for key in updates.published_keys(connection, self.feed)}

    def _go_round(self, cursor: str, names: Sequence[str], most: int) -> bool:
        """Visit so many names at most, from where the last call ended; whether that was the end of a round."""
        name = f"{cursor} {self.feed}"
        with self.bench.ledger.read() as connection:
            position = get_cursor(connection, name) or ""
        turn = [each for each in names if each < position] or names
        count = self._visit(turn[:most])
        ended = turn[count - 1] if count < len(turn) else ""
        if ended != position:
            with self.bench.ledger.write() as connection:
                put_cursors(connection, {name: ended})
        return count == len(turn)

    def _visit(self, names: Sequence[str]) -> int:
        """How many names were visited before the time was over: one at least, if there is one."""
        for count, name in enumerate(names):
            if count and self.is_over():
                return count
            self._observe(name)
        return len(names)

    def _observe(self, name: str) -> None:
        found = [*_partitions(self.bench, self.feed, name, is_appendable=self.is_appendable)]
        for partition in found:
            observe(self.bench.board, self.bench.ledger, partition, self.bench.now(), is_batch=self.is_appendable)
        if self.is_appendable:
            holders = {batch.holder for batch in found if batch.holder and batch.holder.key}
            self._observe_gone(holders, {batch.key for batch in found})

    def _observe_gone(self, holders: Set[Partition], found: Set[str]) -> None:
        """Look again at the batches that the ledger believes to be in some partitions and that were not found."""
        with self.bench.ledger.read() as connection:
            known = pins_of(connection, sorted(holders)).values()
        for batch in [pin.partition for pins in known for pin in pins if pin.partition.key not in found]:
            observe(self.bench.board, self.bench.ledger, batch, self.bench.now())


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

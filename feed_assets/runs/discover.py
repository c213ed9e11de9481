"""Find the new valid updates of foreign feeds on the blackboard, and record them in the ledger."""

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from feed_assets.core.errors import BlackboardError, FeedAssetsError, InvalidName, UnreadableUpdate
from feed_assets.core.feeds import Feed, Partition, Version, is_update_id
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.walk_limit import MOST_LISTINGS, WalkLimit
from feed_assets.ledger import log, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.database import get_cursor, get_cursors, put_cursors
from feed_assets.runs.listing import Listing, name_of
from feed_assets.runs.services import Services
from feed_assets.runs.shared_discovery import SharedDiscovery
from feed_assets.runs.sync import record, sync
from feed_assets.runs.unchanged import unchanged

RECENT = 10
"""Number of the newest known names that each pass visits, because most late data arrive in them."""

ROTATION = 40
"""Number of further known names that each pass visits, in rotation.

Of 10,000 names, each is visited every 250 passes.
"""


_NEW, _NEWEST, _KNOWN, _ALL = "looked through", "looked at the newest of", "looked again through", "looked at all of"
"""Groups of names that a pass visits one after the other. Each has cursors of its own."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Discovered:
    """Result of one pass over foreign feeds: whether all new names were visited, and errors by feed."""

    is_complete: bool
    failed: dict[Feed, FeedAssetsError]


def discover(
    services: Services,
    feeds: Sequence[Feed],
    out_of_time: Callable[[], bool],
    appendable: Set[Feed] = frozenset(),
    location: str = "",
) -> Discovered:
    """Record new partitions of foreign feeds, newest first, until the time is over.

    Then visit some known partitions, which may have newer updates (see `_Look`). The next call continues where this
    call stopped, also within a name. Every batch of `appendable` feeds is synced. If a feed cannot be read, the other
    feeds are still visited. Raise the store's error if none of the feeds on our own blackboard can be read.

    `location` names the code location, in a tick of the daemon. It skips the feeds that another one has just discovered
    at the same store, and lets the others skip its own. Without a name, nothing is shared.
    """
    shared = SharedDiscovery.begin(services, location, appendable)

    def discover_feed(feed: Feed) -> bool:
        if shared.is_fresh(feed):
            return True
        look = _Look(services, feed, out_of_time, feed in appendable)
        is_complete = look.run()
        if look.is_whole:
            shared.add(feed)
        return is_complete

    try:
        discovered = _each(services, feeds, discover_feed)
    except BlackboardError:
        shared.record(feeds)
        raise
    shared.record(discovered.failed)
    return discovered


def discover_all(services: Services, feeds: Sequence[Feed], appendable: Set[Feed] = frozenset()) -> Discovered:
    """Visit every partition of foreign feeds, without a time limit."""
    return _each(services, feeds, lambda feed: _Look(services, feed, _never, feed in appendable).run_all())


def _never() -> bool:
    return False


def _each(services: Services, feeds: Sequence[Feed], look: Callable[[Feed], bool]) -> Discovered:
    failed: dict[Feed, FeedAssetsError] = {}
    complete: list[bool] = []
    for feed in feeds:
        try:
            complete.append(look(feed))
        except FeedAssetsError as error:
            _log.warning("%s could not be read: %s", feed, error)
            failed[feed] = error
    own_feeds = [feed for feed in feeds if feed not in services.elsewhere]
    down = [error for feed in own_feeds if isinstance(error := failed.get(feed), BlackboardError)]
    if own_feeds and len(down) == len(own_feeds):
        raise down[0]
    return Discovered(all(complete), failed)


@dataclass(frozen=True)
class _KnownUpdates:
    """The keys below a feed that the ledger has published updates of, and the last log change when they were read."""

    as_of: int
    keys: Sequence[str]


@dataclass
class _Look:
    """One pass over the names directly below a feed. Each name is a partition or contains partitions.

    A name is known if the ledger has a published update of it. First visit all unknown names, then the newest known
    names, then a few of the other known names in rotation. At least one name of each group is visited even if the time
    is over, so that no group starves. Known names that are unchanged are not visited (`runs/unchanged.py`).

    A visit may stop within a name, and the next pass continues there. After too many listings without an update the
    feed is reported, and the next name has its turn.
    """

    services: Services
    feed: Feed
    out_of_time: Callable[[], bool]
    is_appendable: bool
    listing: Listing | None = None
    """The files of the newest names, if one request could list them."""
    as_before: dict[str, bool] = field(default_factory=dict[str, bool])
    """Known names that were compared with the ledger; True if the name is unchanged."""
    is_whole: bool = True
    """False if the time was over, or if it was the rest of an earlier call: it proves nothing to others."""
    skipped: list[read.Skipped] = field(default_factory=list[read.Skipped])
    """Names that are no partitions. They are logged together."""
    empty: list[str] = field(default_factory=list[str])
    """Keys at which a visit stopped after too many listings without an update."""

    @property
    def board(self) -> Blackboard:
        """Return the blackboard that the feed is on."""
        return self.services.board_of(self.feed)

    def run(self) -> bool:
        """Visit as many names of partitions as the time allows.

        Return whether all names without a published update were visited.
        """
        names, published = self._names(), {name_of(key) for key in self._known_updates.keys}
        strange = [name for name in names if name not in published]
        familiar = [name for name in names if name in published]
        window = familiar[: RECENT + ROTATION]
        self._list([name for name in strange[: RECENT + ROTATION] if name >= min(window, default="")] + window)
        is_complete = self._go_round(_NEW, strange, len(strange))
        self._compare(window)
        recent = self._visit(familiar[:RECENT], _NEWEST)
        self.is_whole &= recent == len(familiar[:RECENT])
        self._go_round(_KNOWN, familiar[recent:], ROTATION, are_known=True)
        self._report()
        return is_complete

    def run_all(self) -> bool:
        """Visit every name. Return whether all were visited."""
        names = self._names()
        count = self._visit(names, _ALL)
        self._report()
        return count == len(names)

    def _report(self) -> None:
        """Log the names that are no partitions. Raise UnreadableUpdate if too many folders have no update."""
        read.warn_skipped(self.feed, self.skipped)
        if self.empty:
            raise UnreadableUpdate(
                f"{self.feed}: more than {MOST_LISTINGS:,} folders in a row, up to {self.empty[0]}, have no update: "
                "expected fewer. Remove them. Until then, partitions after them are found late."
            )

    def _names(self) -> list[str]:
        """Return the names, newest first, or [''] for a feed without partitions.

        Skip the names of versions, because each version is another feed.
        """
        names = self.board.children(str(self.feed))
        if self.feed.version is None:
            names = [name for name in names if Version.parse(name) is None]
        if self.is_appendable:
            self._sync_gone({Partition(self.feed)}, set(names))
        return [""] if any(map(is_update_id, names)) else names[::-1]

    @cached_property
    def _known_updates(self) -> _KnownUpdates:
        with self.services.ledger.read() as connection:
            return _KnownUpdates(log.last(connection), [*updates.published_keys(connection, self.feed)])

    def _list(self, names: Sequence[str]) -> None:
        """List all files below some names by one request. Do nothing for an appendable feed: each batch is visited."""
        has_all = self.listing and all(map(self.listing.has, names))
        if names and not self.is_appendable and not has_all:
            self.listing = Listing.of(self.board, self.feed, names)

    def _go_round(self, cursor: str, names: Sequence[str], most: int, *, are_known: bool = False) -> bool:
        """Visit at most `most` names, from where the last call ended. Return whether the round is complete."""
        name = f"{cursor} {self.feed}"
        with self.services.ledger.read() as connection:
            position = get_cursor(connection, name) or ""
        turn = [each for each in names if each < position] or names
        if are_known:
            self._list([each for each in turn[:most] if each not in self.as_before])
            self._compare(turn[:most])
        count = self._visit(turn[:most], cursor)
        self.is_whole &= count == len(turn[:most]) and (are_known or len(turn) == len(names))
        ended = "" if count == len(turn) else turn[count - 1] if count else position
        if ended != position:
            with self.services.ledger.write() as connection:
                put_cursors(connection, {name: ended})
        return count == len(turn)

    def _compare(self, names: Sequence[str]) -> None:
        """Determine which known names need no visit. Skip names that were compared before."""
        undecided = [name for name in names if name not in self.as_before]
        if undecided and not self.is_appendable:
            unchanged_names = unchanged(
                self.services,
                self.feed,
                undecided,
                known_keys=self._known_updates.keys,
                listing=self.listing,
                out_of_time=self.out_of_time,
            )
            self.as_before.update((name, name in unchanged_names) for name in undecided)

    def _visit(self, names: Sequence[str], group: str) -> int:
        """Visit at least one name, and more until the time is over. Return how many were visited or are unchanged."""
        visited = 0
        for count, name in enumerate(names):
            if self.as_before.get(name):
                continue
            if (visited and self.out_of_time()) or not self._sync(name, group):
                return count
            visited += 1
        return len(names)

    def _sync(self, name: str, group: str) -> bool:
        """Visit a name, from where the last visit stopped. Return False if the time was over within the name.

        If the process is killed before the cursor is written, the same folders are listed again.
        """
        if name not in self.as_before and self._record_listed(name):
            return True
        limit, batches = self._limit(name, group), list[Partition]()
        for partition in self._partitions(name, limit):
            sync(self.board, self.services.ledger, partition, self.services.now(), is_batch=self.is_appendable)
            batches.append(partition)
        if self.is_appendable:
            parents = {batch.parent for batch in batches if batch.parent and batch.parent.key}
            self._sync_gone(parents, {batch.key for batch in batches}, limit)
        self._put_stop(name, group, limit)
        is_empty = limit.fruitless >= MOST_LISTINGS
        if limit.stopped is not None and is_empty:
            self.empty.append(limit.stopped)
        return limit.stopped is None or is_empty

    @cached_property
    def _stops(self) -> dict[str, str]:
        """Return where the last visits stopped within a name, by cursor: listings without an update, and a key."""
        with self.services.ledger.read() as connection:
            return {**get_cursors(connection, [self._stop_cursor(group) for group in (_NEW, _NEWEST, _KNOWN, _ALL)])}

    def _stop_cursor(self, group: str) -> str:
        return f"{group} {self.feed}, within"

    def _limit(self, name: str, group: str) -> WalkLimit:
        carried, _, key = self._stops.get(self._stop_cursor(group), "").partition(" ")
        if key and name in ("", name_of(key)):
            return WalkLimit(key, self.out_of_time, int(carried))
        return WalkLimit(name, self.out_of_time)

    def _put_stop(self, name: str, group: str, limit: WalkLimit) -> None:
        """Write where a visit stopped. If it ended, remove what an earlier visit of this name wrote."""
        cursor = self._stop_cursor(group)
        last = self._stops.get(cursor, "")
        if limit.stopped is not None:
            position = f"{limit.fruitless} {limit.stopped}"
        else:
            position = "" if limit.start != name else last
        if position != last:
            self._stops[cursor] = position
            with self.services.ledger.write() as connection:
                put_cursors(connection, {cursor: position})

    def _record_listed(self, name: str) -> bool:
        """Record the updates of a new name as they were listed. Return False if the name must be visited."""
        valid_updates = self.listing.valid_updates(name) if self.listing else []
        for update in valid_updates:
            reading = read.Reading(update.partition, update, ())
            record(self.services.ledger, reading, self.services.now(), self._known_updates.as_of)
        return bool(valid_updates)

    def _partitions(self, name: str, limit: WalkLimit) -> Iterator[Partition]:
        """Yield the partitions at a name and below it. Add names that are no partitions to `skipped`."""
        try:
            Partition(self.feed, name)
        except InvalidName as error:
            self.skipped.append(read.Skipped(name, str(error)))
            return
        for entry in read.walk(self.board, self.feed, name, is_appendable=self.is_appendable, limit=limit):
            if isinstance(entry, Partition):
                yield entry
            else:
                self.skipped.append(entry)

    def _sync_gone(self, parents: Set[Partition], listed: Set[str], limit: WalkLimit | None = None) -> None:
        """Sync batches that the ledger has in these partitions and that were not listed, as far as the walk reached."""
        with self.services.ledger.read() as connection:
            pin_lists = pins_of(connection, sorted(parents)).values()
        gone = [pin.partition for pins in pin_lists for pin in pins if pin.partition.key not in listed]
        for batch in gone:
            if limit is None or limit.covers(batch.key):
                sync(self.board, self.services.ledger, batch, self.services.now())

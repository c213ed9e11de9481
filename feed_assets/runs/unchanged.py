"""Search for partitions of a foreign feed that are unchanged since the ledger recorded them, without visiting each."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from secrets import choice

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.walk_limit import WalkLimit
from feed_assets.ledger import updates
from feed_assets.runs.listing import Listing, name_of
from feed_assets.runs.services import Services

_Newest = Mapping[Partition, Update | None]

_LISTINGS = 100
"""The most listings in a row without an update. A name with more of them is visited, because a visit can be resumed."""


def unchanged(
    services: Services,
    feed: Feed,
    names: Collection[str],
    known_keys: Collection[str],
    listing: Listing | None,
    out_of_time: Callable[[], bool],
) -> set[str]:
    """Return the names directly below a feed whose newest updates and files are all as recorded in the ledger.

    On S3, return no names if there is no listing of all their files, so that each name is visited. On other stores
    without a listing, read name by name until the time is over. The ledger is queried once for all names, which saves
    most of the cost of visits. `known_keys` are the keys below the feed that the ledger has published updates of.
    """
    board = services.board_of(feed)
    if listing is None and board.is_paged:
        return set()
    newest: _Newest = listing.newest if listing else _read(board, feed, names, out_of_time)
    names_read = {name_of(at.key) for at in newest} & {*names}
    with services.ledger.read() as connection:
        known_partitions = {Partition(feed, key) for key in known_keys if name_of(key) in names_read}
        listed = {at for at in newest if name_of(at.key) in names_read}
        recorded = updates.newest(connection, listed | known_partitions)
    changed = {name_of(at.key) for at in {*recorded, *listed} if not updates.agrees(recorded.get(at), newest.get(at))}
    unchanged_names = (names_read & {name_of(at.key) for at in recorded}) - changed
    return unchanged_names - _miscounted(listing, unchanged_names) if listing else unchanged_names


def _read(board: Blackboard, feed: Feed, names: Iterable[str], out_of_time: Callable[[], bool]) -> _Newest:
    """Return the newest valid update of each partition of the names, until the time is over."""
    newest: dict[Partition, Update | None] = {}
    for name in names:
        if newest and out_of_time():
            break
        with suppress(FeedAssetsError):  # A visit of this name will raise the error.
            limit = WalkLimit(name, out_of_time, most=_LISTINGS)
            walked = read.walk(board, feed, name, limit=limit)
            of_name = {at: read.latest(board, at).update for at in walked if isinstance(at, Partition)}
            newest |= of_name if limit.stopped is None else {}
    return newest


def _miscounted(listing: Listing, names: Collection[str]) -> set[str]:
    """Read the manifests of one name, chosen at random. Return the name if a manifest does not match its files.

    A listing shows that a manifest exists, but not its content. Later calls find other manifests that were rewritten in
    place. At the latest, the run that reads the update finds them.
    """
    if not names:
        return set()
    name = choice(sorted(names))
    picked = [each for at, each in listing.newest.items() if name_of(at.key) == name]
    return set() if all(map(listing.is_counted, picked)) else {name}

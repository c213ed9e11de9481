"""Partitions of a foreign feed that are unchanged since the ledger recorded them, found without a visit of each."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from secrets import choice

from feed_assets.core.errors import FeedAssetsError, InvalidName
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, Feed, File, Partition, Update, is_update_id, why_invalid
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.runs.services import Services

_Newest = Mapping[Partition, Update | None]


def unchanged(
    services: Services,
    feed: Feed,
    names: Collection[str],
    known_keys: Collection[str],
    out_of_time: Callable[[], bool],
) -> set[str]:
    """Return the names directly below a feed whose newest updates and files are all as recorded in the ledger.

    On S3 one listing has all files. Return no name if one request cannot list them: then each name must be visited.
    Other stores are read name by name, until the time is over. The ledger is queried once for all names, which saves
    most of the cost of visits. `known_keys` are the keys below the feed that the ledger has published updates of.
    """
    board = services.board_of(feed)
    newest = _listed(board, feed, names) if board.is_paged else _read(board, feed, names, out_of_time)
    if not newest:
        return set()
    names_read = {_name(at.key) for at in newest} & {*names}
    with services.ledger.read() as connection:
        known_partitions = {Partition(feed, key) for key in known_keys if _name(key) in names_read}
        recorded = updates.newest(connection, {*newest, *known_partitions})
    changed = {_name(at.key) for at in {*recorded, *newest} if not updates.agrees(recorded.get(at), newest.get(at))}
    unchanged_names = (names_read & {_name(at.key) for at in recorded}) - changed
    return unchanged_names - _miscounted(board, newest, unchanged_names) if board.is_paged else unchanged_names


def _read(board: Blackboard, feed: Feed, names: Iterable[str], out_of_time: Callable[[], bool]) -> _Newest:
    """Return the newest valid update of each partition of the names, until the time is over."""
    newest: dict[Partition, Update | None] = {}
    for name in names:
        if newest and out_of_time():
            break
        with suppress(FeedAssetsError):  # A visit of this name will raise the error.
            partitions = [at for at in read.walk(board, feed, name) if isinstance(at, Partition)]
            newest |= {at: read.latest(board, at).update for at in partitions}
    return newest


def _listed(board: Blackboard, feed: Feed, names: Collection[str]) -> _Newest:
    """Return the newest update of each partition from one listing, or {} if one request cannot list all files."""
    files = board.page_of_files(str(feed), f"{feed}/{min(names)}")
    return {each.partition: each for each in _newest(feed, files or ())}


def _miscounted(board: Blackboard, newest: _Newest, names: Collection[str]) -> set[str]:
    """Read the manifests of one name, chosen at random. Return the name if a manifest does not match its files.

    A listing shows that a manifest exists, but not its content. Later calls find other manifests that were rewritten in
    place. At the latest, the run that reads the update finds them.
    """
    if not names:
        return set()
    name = choice(sorted(names))
    picked = [each for at, each in newest.items() if each and _name(at.key) == name]
    return set() if all(_is_counted(board, each) for each in picked) else {name}


def _name(key: str) -> str:
    return key.split("/", 1)[0]


def _newest(feed: Feed, files: Iterable[File]) -> Iterable[Update]:
    """Yield the newest listed update of each partition, without files if its manifest is missing."""
    files_by_partition: dict[Partition, dict[str, list[File]]] = {}
    for file in files:
        segments = file.key.removeprefix(f"{feed}/").split("/")
        at = next((number for number, segment in enumerate(segments) if is_update_id(segment)), None)
        with suppress(InvalidName):  # Skip it here: a visit will report that the name is invalid.
            if at is not None:
                by_id = files_by_partition.setdefault(Partition(feed, "/".join(segments[:at])), {})
                by_id.setdefault(segments[at], []).append(file)
    for partition, by_id in files_by_partition.items():
        newest = max(by_id)
        manifest = f"{partition.path}/{newest}/{MANIFEST}"
        data_files = tuple(sorted(file for file in by_id[newest] if file.key != manifest))
        yield Update(partition, newest, data_files if len(data_files) < len(by_id[newest]) else ())


def _is_counted(board: Blackboard, update: Update) -> bool:
    manifest = board.get(f"{update.path}/{MANIFEST}", MANIFEST_LIMIT + 1)
    return why_invalid(manifest, update.files) is None

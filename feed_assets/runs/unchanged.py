"""Partitions of a foreign feed that are unchanged since the ledger recorded them, found by one listing of all files."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from secrets import choice

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, Feed, File, Partition, Update, is_update_id, why_invalid
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.runs.services import Services


def unchanged(services: Services, feed: Feed, names: Collection[str]) -> set[str]:
    """Return the names directly below a feed whose newest updates and files are all as recorded in the ledger.

    The listing shows that a manifest exists, but not its content. To find manifests that were rewritten in place, read
    the manifest of one name, chosen at random. Later calls find the other rewritten manifests, at the latest the run
    that reads the update. Return no name if one request cannot list all files: then each name must be visited.
    """
    board = services.board_of(feed)
    files = board.page_of_files(str(feed), f"{feed}/{min(names)}")
    if files is None:
        return set()
    listed = {each.partition: each for each in _newest(feed, files)}
    with services.ledger.read() as connection:
        keys = {key for key in updates.published_keys(connection, feed) if _name(key) in names}
        recorded = updates.newest(connection, {*listed, *(Partition(feed, key) for key in keys)})
    changed = {_name(at.key) for at in {*recorded, *listed} if not updates.agrees(recorded.get(at), listed.get(at))}
    same_names = {name for name in names if name not in changed and any(_name(at.key) == name for at in recorded)}
    if same_names and (name := choice(sorted(same_names))):
        picked = [each for at, each in listed.items() if _name(at.key) == name]
        same_names -= {name} if not all(_is_counted(board, each) for each in picked) else set()
    return same_names


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

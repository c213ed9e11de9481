"""Read a File Feed: the newest valid update of a partition, as an exact list of files.

A reader reads the manifest first and lists the files second. A producer writes its manifest last, so all counted files
exist by then. In the other order, an update finished in between would look incomplete. The listing must show the
manifest, too: otherwise the update was invalidated between the two requests. A slow listing may miss files that a prune
removes, and the number of the remaining files may be right by accident. A prune removes the manifest first, so the
reader looks for the manifest once more after a slow listing.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from feed_assets.core.errors import (
    InvalidName,
    NoValidUpdate,
    TargetNotEmpty,
    UnreadableUpdate,
    UpdateChanged,
    UpdatePruned,
)
from feed_assets.core.feeds import (
    MANIFEST,
    MANIFEST_LIMIT,
    Feed,
    File,
    Partition,
    Skipped,
    Update,
    Version,
    is_update_id,
    parse_manifest,
    why_invalid,
)
from feed_assets.core.limits import check_feed, check_partition
from feed_assets.core.message_words import shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.newest_names import newest_first
from feed_assets.feeds.walk_limit import WalkLimit

PRUNED = "_feed_assets/pruned"
"""The prefix of promises. A prune writes a promise, an empty object under this prefix and the partition's path.

Its name is the update id from which on the partition's history is complete.
"""

MOST_SKIPPED = 200
"""The most invalid names that a reading skips to find a valid update. Each skipped update costs requests."""

_REASONS_SHOWN = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """Result of reading a partition: the newest valid update, and the newer names that were skipped, with reasons."""

    partition: Partition
    update: Update | None
    skipped: tuple[Skipped, ...]


def latest(
    board: Blackboard, partition: Partition, as_of: datetime | None = None, known_id: str | None = None
) -> Reading:
    """Return the newest valid update. With `as_of` (timezone-aware) only ids up to this time count.

    A call usually costs one or two requests for names, at most about twice the logarithm of the number of their pages
    (`newest_names`). Each checked update costs one read and one listing of files. If an update was skipped, or with
    `as_of`, the promises of prunes (PRUNED) are listed, too. `known_id`, an update seen before, only saves requests.

    Raise UpdatePruned if `as_of` is before a prune, UnreadableUpdate if more than MOST_SKIPPED names were skipped.
    """
    promised: str | None = None
    while True:
        reading = _look_through(board, partition, as_of, known_id)
        if as_of is None and not any(is_update_id(skipped.id) for skipped in reading.skipped):
            return reading
        kept = kept_from(board, partition)
        if kept is None or (reading.update and reading.update.id >= kept):
            return reading
        if kept == promised:  # No prune happened during the reading, so the reading is right.
            return reading if as_of is None else _refuse_pruned(reading, as_of, kept)
        promised = kept  # A prune may have removed an update during the reading, so read again.


def kept_from(board: Blackboard, partition: Partition) -> str | None:
    """Return the update id from which on no valid update has been pruned. Return None if there was never a prune.

    A prune writes this id before it removes anything. So a call after a reading finds every prune that happened during
    the reading.
    """
    return max(promises(board, partition), default=None)


def promises(board: Blackboard, partition: Partition) -> list[str]:
    """Return the update ids in the promises (PRUNED) of a partition's prunes, in order. Only the last one is valid."""
    prefix = f"{PRUNED}/{partition.path}"
    names = [file.key.removeprefix(f"{prefix}/") for file in board.files(prefix)]
    return [name for name in names if "/" not in name]  # The other promises belong to partitions below this one.


def _refuse_pruned(reading: Reading, as_of: datetime, kept: str) -> Reading:
    raise UpdatePruned(
        f"{reading.partition} as of {as_of:%Y-%m-%d %H:%M:%S %Z} is not known: valid updates before {kept} were "
        f"pruned, and the newest update that is left up to this time is "
        f"{reading.update.id if reading.update else 'none'}. Ask for {kept} or later, or name an update."
    )


def _look_through(board: Blackboard, partition: Partition, as_of: datetime | None, known_id: str | None) -> Reading:
    skipped: list[Skipped] = []
    for name in chain.from_iterable(newest_first(board, partition.path, as_of, known_id)):
        entry = _look(board, partition, name)
        if isinstance(entry, Update):
            return Reading(partition, entry, tuple(skipped))
        skipped.append(entry)
        if len(skipped) > MOST_SKIPPED:
            raise UnreadableUpdate(
                f"{partition}: found more than {MOST_SKIPPED} invalid updates that are newer than any valid one "
                f"({in_words(skipped)}): expected fewer. Remove them, or publish a valid one."
            )
    return Reading(partition, None, tuple(skipped))


def named(board: Blackboard, partition: Partition, update_id: str) -> Update:
    """Return the update with this id. Raise NoValidUpdate if it is not valid."""
    if not is_update_id(update_id):
        raise NoValidUpdate(f"{partition}: {_no_update_id(update_id)}.")
    entry = _look(board, partition, update_id)
    if isinstance(entry, Skipped):
        kept = kept_from(board, partition)
        pruned = f" (updates before {kept} were pruned)" if kept and update_id < kept else ""
        raise NoValidUpdate(f"{partition} has no valid update {update_id}: {entry.reason}{pruned}. Read another one.")
    return entry


def require(reading: Reading, as_of: datetime | None = None) -> Update:
    """Return the update of a reading. If there is none, raise NoValidUpdate with the reason for each candidate."""
    if reading.update:
        return reading.update
    if not reading.skipped:
        raise NoValidUpdate(nothing(reading.partition, "update", as_of))
    raise NoValidUpdate(
        f"{reading.partition} has no valid update. {in_words(reading.skipped)}. Its producer has to publish it again."
    )


def nothing(partition: Partition, noun: str, as_of: datetime | None) -> str:
    """Return the message that a partition has no `noun` (update or batch), or had none at `as_of`."""
    if as_of:
        return f"{partition} has no {noun} of {as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC or before."
    return f"{partition} has no {noun}: there is nothing at {partition.path}/."


def in_words(skipped: Sequence[Skipped]) -> str:
    """Describe the first skipped names with their reasons, and how many more there are."""
    reasons = "; ".join(f"{each.id}: {each.reason}" for each in skipped[:_REASONS_SHOWN])
    further = len(skipped) - _REASONS_SHOWN
    return f"{reasons}; and {further} more" if further > 0 else reasons


def history(board: Blackboard, partition: Partition) -> tuple[Update | Skipped, ...]:
    """Return every update of a partition, valid or not, and every other name, newest first."""
    return tuple(_look(board, partition, name) for name in reversed(board.children(partition.path)))


def partitions(board: Blackboard, feed: Feed) -> Iterator[Partition]:
    """Yield in order the partitions of a feed that have an update, valid or not. Log one warning for other names."""
    skipped = list[Skipped]()
    for entry in walk(board, feed):
        if isinstance(entry, Partition):
            yield entry
        else:
            skipped.append(entry)
    warn_skipped(feed, skipped)


def warn_skipped(feed: Feed, skipped: Sequence[Skipped]) -> None:
    """Log one line about the skipped names of a feed, however many there are. Log nothing if none were skipped."""
    if skipped:
        names = shortened([f"{each.id} ({each.reason})" for each in skipped], 3)
        _log.warning("%s: these names are skipped: %s", feed, names)


def walk(
    board: Blackboard, feed: Feed, key: str = "", *, is_appendable: bool = False, limit: WalkLimit | None = None
) -> Iterator[Partition | Skipped]:
    """Yield the partitions of a feed, lazily and in order, and each other name with the reason.

    A prefix with update ids is a partition (in an appendable feed: a batch), and nothing below it is listed. Appendable
    feeds have one exception: if a prefix holds updates and batches, the batches are listed, too. The paths of `limit`
    are keys below the feed.
    """
    limit = limit or WalkLimit.unlimited()
    if not limit.allows(key):
        return
    path = f"{feed}/{key}" if key else str(feed)
    names = board.children(path)
    for no_file, kind in board.no_files(path, below=False):
        yield Skipped(no_file.removeprefix(f"{feed}/"), f"{kind}, which is not part of a feed and is not followed")
    if any(map(is_update_id, names)):
        limit.add_result()
        yield Partition(feed, key)
        if not is_appendable:
            return
    for name in names:
        below = f"{key}/{name}" if key else name
        # The same name with a version is a different feed.
        is_other_feed = not key and feed.version is None and Version.parse(name)
        if is_other_feed or (is_appendable and is_update_id(name)) or limit.leaves_out(below):
            continue
        try:
            check_partition(Partition(feed, below))
        except InvalidName as error:
            yield Skipped(below, str(error))
            continue
        yield from walk(board, feed, below, is_appendable=is_appendable, limit=limit)


def feeds(board: Blackboard, prefix: str = "", limit: WalkLimit | None = None) -> Iterator[Feed]:
    """Yield the feeds of a blackboard: prefixes that end in a version, or that have updates without one."""
    limit = limit or WalkLimit.unlimited()
    for name in board.children(prefix):
        path = f"{prefix}/{name}" if prefix else name
        if limit.leaves_out(path) or not limit.allows(path):
            continue
        try:
            feed = check_feed(Feed.parse(path))
        except InvalidName:
            continue  # This is `_feed_assets`, or a name that a feed cannot have.
        if feed.version or any(map(is_update_id, board.children(path))):
            limit.add_result()
            yield feed
        else:
            yield from feeds(board, path, limit)


def newer_versions(board: Blackboard, feed: Feed) -> tuple[Feed, ...]:
    """Return newer versions of a feed. They do not affect readers of this version."""
    versions = (Version.parse(name) for name in board.children(feed.name)) if feed.version else ()
    return tuple(sorted(Feed(feed.name, found) for found in versions if found and found > (feed.version or found)))


def download(board: Blackboard, update: Update, folder: Path) -> None:
    """Copy exactly the validated files into `folder`. The folder appears only when it is complete."""
    check_target(folder)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as unfinished, ThreadPoolExecutor(8) as pool:
        complete = Path(unfinished, "complete")
        complete.mkdir()
        copies = [pool.submit(_copy, board, file, complete / PurePosixPath(name)) for file, name in _targets(update)]
        for copy in copies:
            copy.result()
        complete.rename(folder)


def check_target(folder: Path) -> None:
    """Raise TargetNotEmpty unless the folder is new or empty. Create its parent folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TargetNotEmpty(f"{folder} is not an empty folder: expected a new or an empty one. Choose another.")
    folder.parent.mkdir(parents=True, exist_ok=True)


def _targets(update: Update) -> list[tuple[File, str]]:
    """Return each file with its name in the folder. Skip directory markers, which are empty objects."""
    folders = {str(parent) for file in update.files for parent in PurePosixPath(file.key).parents}
    files = [file for file in update.files if file.size or file.key not in folders]
    return [(file, file.key.removeprefix(f"{update.path}/")) for file in files]


def _copy(board: Blackboard, file: File, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    check_served(file, board.download(file.key, target, file))


def check_served(file: File, served: File | None) -> None:
    """Raise UpdateChanged unless the served object equals the listed file by size and etag."""
    if served is None:
        raise UpdateChanged(f"{file.key} is gone since it was listed. Look for the newest valid update again.")
    if (served.size, served.etag) != (file.size, file.etag):
        raise UpdateChanged(
            f"{file.key} has {served.size} bytes ({served.etag}) and had {file.size} ({file.etag}) when it was listed. "
            "Look for the newest valid update again."
        )


def _look(board: Blackboard, partition: Partition, update_id: str) -> Update | Skipped:
    """Return one update, or why it is skipped. The module's docstring explains the order of the requests."""
    if not is_update_id(update_id):
        return Skipped(update_id, _no_update_id(update_id))
    path = f"{partition.path}/{update_id}"
    try:
        manifest = board.get(f"{path}/{MANIFEST}", MANIFEST_LIMIT + 1)
        if manifest is None or isinstance(parse_manifest(manifest), str):
            return Skipped(update_id, str(why_invalid(manifest, ())))
        objects = board.files(path)
    except InvalidName as error:
        return Skipped(update_id, str(error))
    files = tuple(file for file in objects if file.key != f"{path}/{MANIFEST}")
    reason = why_invalid(manifest if len(files) < len(objects) else None, files)
    if reason is None and not board.is_of_one_moment(objects) and board.get(f"{path}/{MANIFEST}", 0) is None:
        reason = why_invalid(None, files)
    if reason:
        return Skipped(update_id, reason + _in_the_way(board, path))
    return Update(partition, update_id, files)


def _in_the_way(board: Blackboard, path: str) -> str:
    """Describe the first links, FIFOs, sockets and devices under an update, which are not counted as files.

    Return '' if there are none.
    """
    irregular = [f"{key} is {kind}" for key, kind in board.no_files(path, below=True)]
    return f"; not counted: {shortened(irregular, _REASONS_SHOWN)}" if irregular else ""


def _no_update_id(name: str) -> str:
    return f"{name!r} is not an update id: expected YYYYMMDD.HHMMSS, a moment that exists"

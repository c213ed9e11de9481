"""Publication of a copy in a place: the files of exactly one update, then its manifest.

The process may be killed after any step. Before the manifest nothing is visible, and the next attempt continues with
the files that the ledger has as verified. An attempt that finds files under the id may meet another process that lost
its turn without noticing: it puts a guard there first, so that a manifest of the other one would be wrong. Each turn
has a guard of its own, and removes another one only after the ledger said that nobody else has the turn.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from feed_assets.core.errors import CopyDamaged, UpdateChanged
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, File, Partition, Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.replication import replicas
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.file_copies import compared, copy_file
from feed_assets.replication.replicas import CopiedFile, Replica

_FILES_PER_RECORD = 64
"""Number of files after which the verified ones are recorded. A kill repeats at most so many."""

_BYTES_PER_RECORD = 256 << 20
"""Number of bytes after which the verified files are recorded."""

_T = TypeVar("_T")

_MANIFEST_TRIES = 3
"""Number of times that a manifest of an earlier attempt is removed."""


def copy_update(ends: CopyEnds, update: Update, since: datetime, again: Collection[str] | None = None) -> Replica:
    """Copy an update and publish it. Return its row.

    A file that the ledger has as verified, and that is unchanged in the place, is not sent again, unless `again` names
    it. An update that is there without the ledger's knowledge is compared, and not sent if it is equal. With `again`,
    the update in the place is made invalid first, and put right.
    Raise UpdateChanged if the source is invalid or has other files meanwhile, CopyDamaged, TurnLost, and the errors of
    the stores. Then nothing is visible.
    """
    copy = _begin(ends, update, since)
    existing = {file.key: file for file in ends.board.files(update.path)}
    manifest, guard = f"{update.path}/{MANIFEST}", ends.guard(update.path)
    unchanged = {name: each for name, each in copy.files.items() if _is_same(update, name, each, existing)}
    kept = {name: each for name, each in unchanged.items() if name not in (again or ())}
    may_be_whole = manifest in existing and again is None
    kept |= _equal_files(ends, update, kept, existing) if may_be_whole else {}
    copy = replace(copy, files=kept)
    if may_be_whole and _is_whole(ends, update, kept, existing):
        return _record_published(ends, copy)
    if existing:
        ends.turn.keep()
        _record(ends, copy)  # After a kill, the row must not say that the copy is published.
        ends.board.delete([manifest])
        ends.board.put(guard, b"")
    for group in _groups([file for file in update.files if _name(update, file) not in kept]):
        copy = _record(ends, replace(copy, files={**copy.files, **_copied(ends, update, group)}))
        ends.services.on_step("files recorded")
    _make_visible(ends, update, copy, bool(existing))
    return _record_published(ends, copy)


def _begin(ends: CopyEnds, update: Update, since: datetime) -> Replica:
    """Return the row of a copy with the files that are still those of the source."""
    place, partition = ends.place.name, update.partition
    with ends.services.ledger.read() as connection:
        before = replicas.find(connection, place, partition, update.id)
        # Restored files have other etags than the ledger's. The copy is one of the update as the ledger has it.
        digest = (updates.recorded(connection, partition, update.id) or update).files_digest
    listed = {_name(update, file): file for file in update.files}
    files = {
        name: each
        for name, each in (before.files.items() if before else ())
        if name in listed and (each.size, each.source_etag) == (listed[name].size, listed[name].etag)
    }
    now = ends.services.now()
    return Replica(
        place,
        partition,
        update.id,
        state=replicas.COPYING,
        files_digest=digest,
        size=update.size,
        files=files,
        since=since,
        at=now,
    )


def _is_same(update: Update, name: str, copied: CopiedFile, existing: dict[str, File]) -> bool:
    file = existing.get(f"{update.path}/{name}")
    return file is not None and (file.size, file.etag) == (copied.size, copied.etag)


def _is_whole(ends: CopyEnds, update: Update, kept: dict[str, CopiedFile], existing: dict[str, File]) -> bool:
    """Return whether an update in the place has exactly the verified files, and the right manifest."""
    content = ends.board.get(f"{update.path}/{MANIFEST}", MANIFEST_LIMIT + 1)
    return len(kept) == len(update.files) == len(existing) - 1 and content == _content(update)


def _content(update: Update) -> bytes:
    return str(len(update.files)).encode()


def _name(update: Update, file: File) -> str:
    return file.key.removeprefix(f"{update.path}/")


def _groups(files: Sequence[File]) -> Iterator[list[File]]:
    """Yield files in groups that are recorded together."""
    group, size = list[File](), 0
    for file in files:
        if group and (len(group) == _FILES_PER_RECORD or size + file.size > _BYTES_PER_RECORD):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def _copied(ends: CopyEnds, update: Update, files: Sequence[File]) -> dict[str, CopiedFile]:
    """Copy files at the same time, and return what was verified, by name."""

    def copy_one(file: File) -> tuple[str, CopiedFile]:
        with ends.slots:
            ends.turn.keep()
            copied = copy_file(ends.source_of(update.partition), ends.board, file, ends.sent)
        ends.services.on_step("file copied")
        return _name(update, file), copied

    return dict(_at_once(ends, copy_one, files))


def _at_once(ends: CopyEnds, do: Callable[[File], _T], files: Sequence[File]) -> list[_T]:
    """Return the result of a function for each file, of several at the same time."""
    if len(files) <= 1:
        return [*map(do, files)]
    with ThreadPoolExecutor(ends.place.center.at_once) as threads:
        return [*threads.map(do, files)]


def _equal_files(
    ends: CopyEnds, update: Update, kept: Mapping[str, CopiedFile], existing: Mapping[str, File]
) -> dict[str, CopiedFile]:
    """Return the files of a visible update that have the source's bytes, and that the ledger does not have.

    So a ledger from a backup, or a place that has another name, hides nothing from readers, and sends nothing again.
    Return none if the update has other names or sizes.
    """
    sizes = {file.key: file.size for file in update.files}
    if sizes != {key: file.size for key, file in existing.items() if key != f"{update.path}/{MANIFEST}"}:
        return {}

    def compare(file: File) -> tuple[str, CopiedFile | None]:
        with ends.slots:
            ends.turn.keep()
            source, copy = ends.source_of(update.partition), existing[file.key]
            return _name(update, file), compared(source, ends.board, file, copy, ends.read)

    results = _at_once(ends, compare, [file for file in update.files if _name(update, file) not in kept])
    return {name: each for name, each in results if each}


def _record(ends: CopyEnds, copy: Replica) -> Replica:
    copy = replace(copy, at=ends.services.now())
    with ends.services.ledger.write() as connection:
        ends.turn.check(connection)
        replicas.put(connection, copy)
    return copy


def _record_published(ends: CopyEnds, copy: Replica) -> Replica:
    """Record a published copy, and its event in the same transaction: after a kill there are both, or neither."""
    copy = replace(copy, state=replicas.PUBLISHED, at=ends.services.now())
    with ends.services.ledger.change() as connection:
        ends.turn.check(connection)
        before = replicas.find(connection, copy.place, copy.partition, copy.id)
        replicas.put(connection, copy)
        ends.events_of(copy.partition).published(connection, before, copy)
    return copy


def _make_visible(ends: CopyEnds, update: Update, copy: Replica, is_guarded: bool) -> None:
    """Put the manifest of a copy if the place has exactly the verified files, and the source is still valid."""
    path, guard = update.path, ends.guard(update.path)
    expected = {f"{path}/{name}": (each.size, each.etag) for name, each in copy.files.items()}
    listed = {file.key: (file.size, file.etag) for file in ends.board.files(path) if file.key != guard}
    if wrong := sorted(key for key, facts in expected.items() if listed.get(key) != facts):
        raise CopyDamaged(
            f"{wrong[0]}: the copy on {ends.board.title} was changed or removed meanwhile. Copy it again."
        )
    check_source(ends, update)
    ends.services.on_step("before the manifest")
    # Manifests and guards of earlier attempts are among these. They go while the own guard is there.
    if unexpected := listed.keys() - expected.keys():
        ends.board.delete(unexpected)
    if is_guarded:
        ends.board.delete([guard])
        ends.services.on_step("guard removed")
    _put_manifest(ends.board, f"{path}/{MANIFEST}", _content(update))
    ends.services.on_step("manifest")


def _put_manifest(board: Blackboard, key: str, content: bytes) -> None:
    """Create the manifest. Remove one of an earlier attempt that says another number."""
    for _ in range(_MANIFEST_TRIES):
        if board.create(key, content) or board.get(key, MANIFEST_LIMIT + 1) == content:
            return
        board.delete([key])
    raise CopyDamaged(f"{key}: another process puts a manifest with another number. Find it; then copy it again.")


def check_source(ends: CopyEnds, update: Update) -> None:
    """Raise UpdateChanged unless an update is still published and unchanged, by the ledger and at the source.

    Also raise TurnLost if another process has the turn.
    """
    with ends.services.ledger.read() as connection:
        ends.turn.check(connection)
        row = updates.find(connection, update.partition, update.id)
    if row is None or row.state != updates.PUBLISHED:
        state = row.state if row else "unknown"
        raise UpdateChanged(
            f"{update.path} is {state} at the source meanwhile. It is not published in {ends.place.name}."
        )
    current = read.named(ends.source_of(update.partition), update.partition, update.id)
    if current.files != update.files:
        raise UpdateChanged(f"{update.path} has other files at the source meanwhile. It is copied again.")


def withdraw(ends: CopyEnds, partition: Partition, update_id: str) -> bool:
    """Make a copy invalid. Return False if there is none.

    The manifest goes first. Then the guard makes a manifest wrong that a process without a turn may still put.
    """
    path = Update(partition, update_id, ()).path
    files = ends.board.files(path)
    if not files:
        return False
    ends.board.delete([f"{path}/{MANIFEST}"])
    ends.services.on_step("manifest removed")
    ends.board.put(ends.guard(path), b"")
    ends.services.on_step("withdrawn")
    return True

"""Files of a source that were restored after the update was published: the same bytes, and other etags."""

from dataclasses import replace

from feed_assets.core.errors import CopyDamaged, UpdateChanged
from feed_assets.core.feeds import File, Update
from feed_assets.feeds import read
from feed_assets.replication import replicas
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.file_copies import digest_of
from feed_assets.replication.replicas import CopiedFile, Replica


def with_current_etags(ends: CopyEnds, recorded: Update, copy: Replica) -> Update:
    """Return a recorded update as the source lists it now, and record its etags in the copy's row.

    A file that is not as it was recorded must have the bytes that were copied. Raise CopyDamaged if it has others: then
    the place has the good ones. Also raise NoValidUpdate, UpdateChanged, TurnLost, and the errors of the store.
    """
    current = read.named(ends.source_of(recorded.partition), recorded.partition, recorded.id)
    if {file.key for file in current.files} != {file.key for file in recorded.files}:
        raise UpdateChanged(f"{current.path} has other files at the source than those that were published.")
    changed = [file for file in current.files if file not in recorded.files]
    if not changed:
        return current
    restored = {file.key.removeprefix(f"{current.path}/"): file for file in changed}
    files = {name: _verified(ends, recorded, file, copy.files.get(name)) for name, file in restored.items()}
    with ends.services.ledger.write() as connection:
        ends.turn.check(connection)
        replicas.put(connection, replace(copy, files={**copy.files, **files}))
    return current


def _verified(ends: CopyEnds, recorded: Update, file: File, before: CopiedFile | None) -> CopiedFile:
    if before and (before.size, before.source_etag) == (file.size, file.etag):
        return before  # An earlier try has read it.
    like = before.checksum if before else ""
    digest, served = digest_of(ends.source_of(recorded.partition), file, ends.read, like=like)
    read.check_served(file, served)
    if before is None or (digest.size, digest.checksum) != (before.size, before.checksum):
        raise CopyDamaged(
            f"{file.key} at the source is not the file that was published, nor has it the bytes that were copied to "
            f"{ends.board.title}: restore it from there, or publish the data again as a new update."
        )
    return replace(before, source_etag=file.etag)

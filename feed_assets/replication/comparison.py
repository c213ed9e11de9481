"""Comparison of a place with the source, file by file, from the two blackboards alone; and repair of the differences.

The ledger is used for one question: if the ends differ, which of them still has what was copied?
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from feed_assets.core.errors import CopyDamaged, InvalidName, UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, File, Partition, Skipped, Update
from feed_assets.feeds import read, removal
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.reading.pages import is_parquet, read_pages
from feed_assets.replication import replicas
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.file_copies import digest_of
from feed_assets.replication.places import Place, without_rejects
from feed_assets.replication.publication import copy_update, withdraw
from feed_assets.replication.replicas import Replica
from feed_assets.runs.services import Services

MISSING, EXTRA, DIFFERENT, DAMAGED = "missing", "extra", "different", "damaged source"
"""Kinds of differences. `DAMAGED`: the source no longer has what was copied, or the update, and the place has it."""


@dataclass(frozen=True)
class Difference:
    """A difference between a place and the source in one update. `files` are names that have to be copied again."""

    partition: Partition
    update_id: str
    kind: str
    reason: str
    files: tuple[str, ...] = ()


def feeds_of(services: Services, place: Place) -> list[Feed]:
    """Return the feeds of a place that are at the source or in the place, rejects before their datasets."""
    names = {*chain.from_iterable(map(read.feeds, (*services.boards(), place.board)))} - services.of_others()
    chosen = [each for each in names if place.has(each)]
    return sorted(chosen, key=lambda feed: (without_rejects(feed), feed == without_rejects(feed)))


def compare(
    services: Services, place: Place, feeds: Iterable[Feed], key: str | None = None, *, is_deep: bool = True
) -> Iterator[Difference]:
    """Yield the differences of feeds, or of one partition with its batches, lazily.

    The newest valid update of each partition and batch must be valid in the place. Each valid update of the place must
    be valid at the source, or pruned there, and have the same files. Unless `is_deep`, files are compared by name and
    size alone; otherwise both ends are read completely. Of a feed that the place does not get, everything is extra.
    """
    for feed in feeds:
        for partition in _partitions(services, place, feed, key):
            yield from (
                _compare_partition(services, place, partition, is_deep=is_deep)
                if place.has(feed)
                else _left_over(place, partition)
            )


def check_names(services: Services, place: Place, feed: Feed, key: str) -> None:
    """Raise InvalidName if neither the source nor the place has this feed, or this partition of it.

    Also raise it for a feed that the place neither has nor gets. Otherwise these would count as equal.
    """
    partitions = _partitions(services, place, feed, key or None)
    if not place.has(feed) and not any(removal.find(place.board, each) for each in partitions):
        raise InvalidName(
            f"the data center {place.name} does not get {feed}, and has nothing of it: expected a feed that one of "
            "its `datasets` matches. Add a pattern for it, or correct the name."
        )
    if not partitions:
        raise InvalidName(
            f"neither the source nor the data center {place.name} has {f'{feed} {key}'.rstrip()}: expected names "
            "that one of them has. Correct the name."
        )


def _partitions(services: Services, place: Place, feed: Feed, key: str | None) -> list[Partition]:
    boards = services.board_of(feed), place.board
    entries = chain.from_iterable(read.walk(board, feed, is_appendable=True) for board in boards)
    partitions = sorted({each for each in entries if isinstance(each, Partition)})
    return [each for each in partitions if key is None or each.key == key or each.key.startswith(f"{key}/")]


def _left_over(place: Place, partition: Partition) -> Iterator[Difference]:
    for each in removal.find(place.board, partition):
        yield Difference(partition, each.id, EXTRA, "none of the `datasets` of the place matches its feed")


def _compare_partition(
    services: Services, place: Place, partition: Partition, *, is_deep: bool
) -> Iterator[Difference]:
    copies = {each.id: each for each in read.history(place.board, partition) if isinstance(each, Update)}
    source = services.board_of(partition.feed)
    history = read.history(source, partition)
    originals = {each.id: each for each in history if isinstance(each, Update)}
    newest = max(originals, default="")
    if newest and newest not in copies:
        yield Difference(partition, newest, MISSING, "the newest update of the source is not valid in the place")
    for update_id in sorted(copies):
        if update_id in originals:
            yield from _compare_update(services, place, originals[update_id], copies[update_id], is_deep=is_deep)
        else:
            yield from _compare_extra(services, place, copies[update_id], history, is_deep=is_deep)


def _compare_extra(
    services: Services, place: Place, copy: Update, history: Sequence[Update | Skipped], *, is_deep: bool
) -> Iterator[Difference]:
    """Yield the difference of an update that is not valid at the source.

    If the source has lost what it published, the place may have the last copy, which `repair` must not withdraw.
    """
    reason = _why_extra(services.board_of(copy.partition.feed), copy.partition, copy.id, history)
    with services.ledger.read() as connection:
        row = updates.find(connection, copy.partition, copy.id)
        replica = replicas.find(connection, place.name, copy.partition, copy.id)
    is_lost = row is not None and row.state == updates.PUBLISHED and copy.id not in {each.id for each in history}
    if reason and is_lost:
        reason = "the source has lost it, and the place still has it: restore it there, or publish it again"
        yield Difference(copy.partition, copy.id, DAMAGED, reason)
    elif reason:
        yield Difference(copy.partition, copy.id, EXTRA, reason)
    elif is_deep and replica and (name := _changed_file(place, copy, replica)):
        reason = f"{name} is not what was copied, and the source has pruned it"
        yield Difference(copy.partition, copy.id, EXTRA, reason)


def _changed_file(place: Place, copy: Update, replica: Replica) -> str | None:
    """Return the first file of a copy that is not what was copied. Return None if all of them are."""
    files = _by_name(copy)
    for name in sorted(files.keys() | replica.files.keys()):
        recorded = replica.files.get(name)
        if recorded is None or name not in files or files[name].size != recorded.size:
            return name
        if _checksum(place, files[name], like=recorded.checksum) != recorded.checksum:
            return name
    return None


def _why_extra(
    source: Blackboard, partition: Partition, update_id: str, history: Sequence[Update | Skipped]
) -> str | None:
    """Return why an update should not be valid in the place. Return None if the source has pruned it."""
    for each in history:
        if isinstance(each, Skipped) and each.id == update_id:
            return f"it is not valid at the source: {each.reason}"
    kept = read.kept_from(source, partition)
    return None if kept and update_id < kept else "the source does not have it, and has not pruned it"


def _compare_update(
    services: Services, place: Place, original: Update, copy: Update, *, is_deep: bool
) -> Iterator[Difference]:
    files, copies = _by_name(original), _by_name(copy)
    wrong = dict.fromkeys(files.keys() - copies.keys(), "is not there")
    wrong |= dict.fromkeys(copies.keys() - files.keys(), "is not at the source")
    both = sorted(files.keys() & copies.keys())
    wrong |= {name: f"has {copies[name].size} bytes" for name in both if files[name].size != copies[name].size}
    damaged = ""
    for name in both if is_deep else ():
        ends = _ends_that_differ(services, place, original, files[name]) if name not in wrong else None
        damaged = damaged or (name if ends == DAMAGED else "")
        wrong |= {name: "has other bytes"} if ends else {}
    if damaged:
        reason = f"{damaged} is no longer what was copied, and the place still has that: restore or publish it again"
        yield Difference(original.partition, original.id, DAMAGED, reason)
    elif wrong:
        reason = "; ".join(f"{name} {what}" for name, what in sorted(wrong.items())[:3])
        yield Difference(original.partition, original.id, DIFFERENT, reason, tuple(sorted(files.keys() & wrong.keys())))
    elif is_deep and (reason := _wrong_page(place.board, copy)):
        yield Difference(original.partition, original.id, DAMAGED, f"the source has the same bytes: {reason}")


def _wrong_page(board: Blackboard, copy: Update) -> str | None:
    """Return the damage of the first Parquet file with a wrong page checksum or footer. Return None if there is none.

    Equal bytes at both ends do not show it: the source may have been damaged before it was copied. The next comparison
    reports a file that changes meanwhile.
    """
    try:
        read_pages(board, replace(copy, files=tuple(each for each in copy.files if is_parquet(board, each))))
    except UnreadableUpdate as error:
        return str(error).rstrip(".")
    except UpdateChanged:
        return None
    return None


def _by_name(update: Update) -> dict[str, File]:
    return {file.key.removeprefix(f"{update.path}/"): file for file in update.files}


def _ends_that_differ(services: Services, place: Place, update: Update, file: File) -> str | None:
    """Return DAMAGED or DIFFERENT if the bytes of a file differ between both ends. Return None if they are equal."""
    original, _ = digest_of(services.board_of(update.partition.feed), file, _go_on)
    copy, _ = digest_of(place.board, file, _go_on)
    if original.checksum == copy.checksum:
        return None
    with services.ledger.read() as connection:
        replica = replicas.find(connection, place.name, update.partition, update.id)
    recorded = replica.files.get(file.key.removeprefix(f"{update.path}/")) if replica else None
    # A file that was written again at the source has another etag: then the place is behind, and nothing is damaged.
    if recorded is None or recorded.source_etag != file.etag:
        return DIFFERENT
    return DAMAGED if _checksum(place, file, like=recorded.checksum) == recorded.checksum else DIFFERENT


def _checksum(place: Place, file: File, *, like: str) -> str:
    """Return the checksum of a file in a place. It is of the same kind as `like`, which the ledger has."""
    return digest_of(place.board, file, _go_on, like=like)[0].checksum


def _go_on(_size: int) -> None:
    """Do nothing: a comparison has no turn to keep."""


def repair(ends: CopyEnds, difference: Difference) -> None:
    """Make one update of a place equal to the source. Raise CopyDamaged if the source is damaged.

    The files of a feed that the place does not get any more are removed. After a kill, the next call finds the rest.
    """
    partition, update_id = difference.partition, difference.update_id
    if difference.kind == DAMAGED:
        raise CopyDamaged(f"{partition} {update_id} is not repaired: {difference.reason}.")
    if difference.kind == EXTRA:
        withdraw(ends, partition, update_id)
        ends.set_withdrawn(partition, update_id)
        if not ends.place.has(partition.feed):
            ends.sweep(partition, update_id)
        return
    update = read.named(ends.source_of(partition), partition, update_id)
    copy_update(ends, update, ends.services.now(), again=difference.files)

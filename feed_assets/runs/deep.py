"""Read updates to the last byte, and compare those that our runs published with what was written then.

Pages are compared with their checksums, rows with the number and the digest in the ledger. So bits that a disk or a
copy alters later are found before a reader finds them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File, Partition, Update
from feed_assets.core.message_words import shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import local_root
from feed_assets.ledger import updates
from feed_assets.ledger.database import Ledger
from feed_assets.reading.pages import is_parquet, read_pages
from feed_assets.reading.row_digest import RowDigest, is_flat
from feed_assets.runs.maker import Maker


@dataclass(frozen=True)
class PublishedFacts:
    """The ledger's facts about an update that a run of ours published."""

    files: tuple[File, ...] = ()
    records: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    version: str | None = None


ADVICE = "Invalidate the update (`feed-assets feed invalidate`): it is built again."

UNKNOWN = PublishedFacts()
"""The facts about an update of others: the ledger has no digest of its rows."""


@dataclass(frozen=True)
class Deep:
    """One update that was read to the last byte."""

    partition: Partition
    id: str
    files: int
    rows: int = 0
    is_compared: bool = False
    """True if its rows were compared with their digest in the ledger."""
    damage: str = ""
    """Reason why it is damaged; empty if it is not."""


def published_of(ledger: Ledger, partition: Partition, update_id: str) -> PublishedFacts:
    """Return what the ledger has of an update that a run of ours published; UNKNOWN for any other."""
    with ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        if row is None or row.origin != updates.RUN:
            return UNKNOWN
        listed = updates.recorded(connection, partition, update_id)
        columns = updates.columns_of(connection, row.pin)
    return PublishedFacts(listed.files if listed else (), row.records, columns, row.version)


def look_deep(
    board: Blackboard,
    update: Update,
    published: PublishedFacts = UNKNOWN,
    *,
    maker: Callable[[], Maker] | None = None,
    files: Sequence[File] | None = None,
    out_of_time: Callable[[], bool] | None = None,
) -> Deep:
    """Read an update to the last byte, and compare its rows with those that were published.

    Rows with arrays or structs are digested by `maker`; without one they are counted. With `files` only their pages are
    read, and no rows compared. Raise UpdateChanged if a file is gone or altered since it was listed, OutOfTime and
    BlackboardError.
    """
    look = _DeepReading(board, update, published)
    if problem := look.other_files():
        return look.end(damage=problem)
    try:
        if files is not None:
            return look.end(
                read_pages(board, Update(update.partition, update.id, tuple(files)), None, out_of_time).rows
            )
        rows, version = look.rows(maker, out_of_time)
    except UnreadableUpdate as error:
        return look.end(damage=f"{error} {look.how}")
    if look.is_of_parquet and published.records not in (None, rows):
        why = f"{update.path} holds {rows:,} rows, and {published.records:,} were published."
        return look.end(rows, damage=f"{why} {look.how} {ADVICE}")
    if version not in (None, published.version):
        why = f"{update.path} holds other rows than were published (digest {version}, expected {published.version})."
        return look.end(rows, is_compared=True, damage=f"{why} {look.how} {ADVICE}")
    return look.end(rows, is_compared=version is not None)


def other_sizes(listed: Sequence[File], expected: Sequence[File], since: str) -> str:
    """Return the first file whose size is another one; empty if none is, or nothing is known."""
    was, now = ({file.key: file.size for file in files} for files in (expected, listed))
    if not was or was == now:
        return ""
    key = next(key for key in sorted({*was, *now}) if was.get(key) != now.get(key))
    sizes = [f"{size:,} bytes" if size is not None else "not there" for size in (now.get(key), was.get(key))]
    return f"{key} has changed since it was {since}: found {sizes[0]}, expected {sizes[1]}"


def _written_again(listed: Sequence[File], expected: Sequence[File]) -> list[str]:
    was = {file.key: file.etag for file in expected}
    return [file.key for file in listed if was.get(file.key, file.etag) != file.etag]


def edits_of(update: Update, recorded: Update | None) -> tuple[str, str]:
    """Return why files of an update are not those that the ledger recorded, and a note if they may be; '' if not.

    Files of the same size that were written again may be equal: a copy of a blackboard on local disk has such ones.
    """
    if recorded is None:
        return "", ""
    why = other_sizes(update.files, recorded.files, "recorded")
    again = shortened([key.rpartition("/")[2] for key in _written_again(update.files, recorded.files)], 3)
    note = (
        f"{again} was written again since it was recorded, and is as large: `--deep` compares rows of ours, and of a "
        "foreign feed its producer knows whether it is the same"
    )
    cure = "; put back what was recorded, or publish a new update"
    return f"{why}{cure}" if why else "", note if again and not why else ""


@dataclass(frozen=True)
class _DeepReading:
    board: Blackboard
    update: Update
    published: PublishedFacts

    @property
    def is_of_parquet(self) -> bool:
        """Return whether all its files are Parquet, as all are that Spark writes."""
        return all(is_parquet(self.board, file) for file in self.update.files)

    @property
    def written_again(self) -> list[str]:
        """Return the files whose etags are others than when they were published."""
        return _written_again(self.update.files, self.published.files)

    @property
    def how(self) -> str:
        """Return how the bytes came to differ, as far as the store reports it."""
        if not self.published.files:
            return ""
        if files := self.written_again:
            return f"{shortened(files, 3)} was written again in place since it was published."
        return "The store tells of no write since it was published, so bits have changed at rest."

    def other_files(self) -> str:
        """Return which file has another size than was published, and advice; empty if none has."""
        why = other_sizes(self.update.files, self.published.files, "published")
        return f"{why}. {self.how} {ADVICE}" if why else ""

    def rows(self, maker: Callable[[], Maker] | None, out_of_time: Callable[[], bool] | None) -> tuple[int, str | None]:
        """Return the rows of all files, and their digest if it can be compared."""
        columns = self.published.columns
        is_digested = bool(columns and self.published.version) and self.is_of_parquet
        digest = RowDigest(columns) if is_digested and is_flat(columns) else None
        pages = read_pages(self.board, self.update, digest, out_of_time)
        if digest:
            return pages.rows, digest.version
        if is_digested and maker:
            return maker().measure(self.board, self.update)
        return pages.rows, None

    def end(self, rows: int = 0, *, is_compared: bool = False, damage: str = "") -> Deep:
        # On local disk a copy of a blackboard has other etags (inode, time), and equal bytes.
        if not damage and not is_compared and self.written_again and not local_root(self.board.url):
            damage = f"{self.how} Its rows were not compared: `feed-assets feed verify --deep` does, with Spark."
        return Deep(self.update.partition, self.update.id, len(self.update.files), rows, is_compared, damage.strip())

"""Deep verification: read updates completely, and compare the updates of our runs with what was published.

Pages are compared with their checksums. Rows are compared with their number and digest in the ledger. So bits that a
disk or a copy altered later are found before a reader gets them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feed_assets.core.batch_names import numbers_in
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
    """The ledger's facts about an update that one of our runs published."""

    files: tuple[File, ...] = ()
    records: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    version: str | None = None


ADVICE = "Invalidate the update (`feed-assets feed invalidate`): then it is built again."

UNKNOWN = PublishedFacts()
"""Facts about an update that no run of ours published: the ledger has no digest of its rows."""


@dataclass(frozen=True)
class Deep:
    """The result of reading one update completely."""

    partition: Partition
    id: str
    files: int
    rows: int = 0
    is_compared: bool = False
    """True if the update's rows were compared with their digest in the ledger."""
    damage: str = ""
    """The reason why the update is damaged. Empty if it is intact."""


def published_of(ledger: Ledger, partition: Partition, update_id: str) -> PublishedFacts:
    """Return the ledger's facts about an update. Return UNKNOWN if no run of ours published the update."""
    with ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        if row is None or not _has_digest(row):
            return UNKNOWN
        listed = updates.recorded(connection, partition, update_id)
        columns = updates.columns_of(connection, row.pin)
    return PublishedFacts(listed.files if listed else (), row.records, columns, row.version)


def _has_digest(row: updates.UpdateRow) -> bool:
    """Return whether the version of an update is the digest of its rows.

    A compacted range of batches has another version.
    """
    return row.origin == updates.RUN or (row.origin == updates.COMPACTED and not numbers_in(row.partition.name))


def look_deep(
    board: Blackboard,
    update: Update,
    published: PublishedFacts = UNKNOWN,
    *,
    maker: Callable[[], Maker] | None = None,
    files: Sequence[File] | None = None,
    out_of_time: Callable[[], bool] | None = None,
) -> Deep:
    """Read an update completely, and compare its rows with the published rows.

    `maker` computes the digest of rows with arrays or structs; without it such rows are only counted. With `files` only
    the pages of these files are read, and no rows are compared. Raise UpdateChanged if a file has been removed or
    altered since it was listed. Raise OutOfTime if the time is over. Raise BlackboardError if the store
    fails.
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
        why = (
            f"{update.path} holds other rows than the published ones (digest {version}, expected {published.version})."
        )
        return look.end(rows, is_compared=True, damage=f"{why} {look.how} {ADVICE}")
    return look.end(rows, is_compared=version is not None)


def other_sizes(listed: Sequence[File], expected: Sequence[File], since: str) -> str:
    """Return a message about the first file with an unexpected size.

    Return '' if there is no such file, or if the expected sizes are not known.
    """
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
    """Return an error text if files differ from the recorded files, and a note if they may differ.

    Each text is '' if it does not apply. Files that were written again with the same size may be equal, as in a copy of
    a blackboard on local disk.
    """
    if recorded is None:
        return "", ""
    why = other_sizes(update.files, recorded.files, "recorded")
    again = shortened([key.rpartition("/")[2] for key in _written_again(update.files, recorded.files)], 3)
    note = (
        f"{again} was written again with the same size since it was recorded: `--deep` compares the rows of our own "
        "feeds; for a foreign feed, only its producer knows whether it is the same"
    )
    cure = "; restore the recorded files, or publish a new update"
    return f"{why}{cure}" if why else "", note if again and not why else ""


@dataclass(frozen=True)
class _DeepReading:
    board: Blackboard
    update: Update
    published: PublishedFacts

    @property
    def is_of_parquet(self) -> bool:
        """Return whether all files are Parquet, as Spark writes them."""
        return all(is_parquet(self.board, file) for file in self.update.files)

    @property
    def written_again(self) -> list[str]:
        """Return the files whose etags have changed since they were published."""
        return _written_again(self.update.files, self.published.files)

    @property
    def how(self) -> str:
        """Return a text about how the bytes may have changed, as far as the store reports this."""
        if not self.published.files:
            return ""
        if files := self.written_again:
            return f"{shortened(files, 3)} was written again in place since it was published."
        return "The store reports no write since it was published, so stored bits have changed."

    def other_files(self) -> str:
        """Return a message with advice about a file with another size than published.

        Return '' if there is no such file.
        """
        why = other_sizes(self.update.files, self.published.files, "published")
        return f"{why}. {self.how} {ADVICE}" if why else ""

    def rows(self, maker: Callable[[], Maker] | None, out_of_time: Callable[[], bool] | None) -> tuple[int, str | None]:
        """Return the number of rows in all files, and their digest.

        The digest is None if there is nothing to compare it with.
        """
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
        # On local disk a copied blackboard has other etags (inode, time) with the same bytes.
        if not damage and not is_compared and self.written_again and not local_root(self.board.url):
            damage = f"{self.how} Its rows were not compared: run `feed-assets feed verify --deep`, which uses Spark."
        return Deep(
            self.update.partition,
            self.update.id,
            len(self.update.files),
            rows=rows,
            is_compared=is_compared,
            damage=damage.strip(),
        )

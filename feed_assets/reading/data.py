"""The data of some partitions, as `feed_assets.read` found them valid: exact files, and the rows in them."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from feed_assets.core.csv_dialect import CsvDialect, Encoding
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Skipped, Update
from feed_assets.core.file_checks import Format
from feed_assets.core.message_words import shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import local_root
from feed_assets.reading import parquet
from feed_assets.spark.urls import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 3


@dataclass(frozen=True)
class FeedData:
    """The data of some partitions that were valid when `feed_assets.read` ran; it does not change when the feed does.

    Rows are read on demand, from exactly these files. A file that is gone or altered by then raises UpdateChanged: read
    again.

    Attributes:
        feed: The feed.
        updates: One for each partition, or batch, in order of the partitions: `.partition`, `.id`, `.files`.
        left_out: Batches, and partitions by `partial=True`, that have no valid update: `.id` is the key, `.reason` why.
        as_of: The time as of which was read; None if no time was given.
        batches: True if the updates are those of batches.
        union_by_name: True if parts may lack columns.
    """

    feed: Feed
    updates: tuple[Update, ...]
    left_out: tuple[Skipped, ...]
    as_of: datetime | None
    batches: bool
    union_by_name: bool
    board: Blackboard = field(compare=False, repr=False)

    @property
    def paths(self) -> list[str]:
        """Return the files, exactly those that were found valid: paths on this machine, or URLs such as `s3://lake/…`.

        Credentials are the reader's own. Raises InvalidName for `memory://`, which only this process can see.
        """
        root = local_root(self.board.url)
        keys = [file.key for update in self.updates for file in update.files]
        if root:
            return [str(root / key) for key in keys]
        return [spark_path(self.board.url, key).replace("s3a://", "s3://", 1) for key in keys]

    @property
    def update_id(self) -> str:
        """Return the update's id. Raise InvalidName if there are several: `update_ids` has each."""
        if len(self.updates) != 1:
            raise InvalidName(f"{self!r} has {len(self.updates)} ids: take `update_ids`, by the key of each.")
        return self.updates[0].id

    @property
    def update_ids(self) -> dict[str, str]:
        """Return the id of each update by its partition's key, of a batch by that of the batch."""
        return {update.partition.key: update.id for update in self.updates}

    @cached_property
    def schema(self) -> Any:
        """Return the columns of all parts, a `pyarrow.Schema`, by a request or two for each file; timestamps are UTC.

        Raises UnreadableUpdate for what is not Parquet, for parts that differ, and if no part has columns;
        UpdateChanged and BlackboardError.
        """
        return parquet.schema_of(self.board, self.updates, union_by_name=self.union_by_name)

    def to_arrow(self, *, partition_column: str | None = None) -> Any:
        """Read all rows into memory, with the packed files besides; `to_reader` has a batch of them at a time.

        Args:
            partition_column: Add a column of this name with the key of the partition that a row is from.

        Returns:
            A `pyarrow.Table` with the columns of `schema`.

        Raises:
            UnreadableUpdate: A file is not Parquet, or is damaged, or parts differ; the message names it.
            UpdateChanged: A file is gone or altered since `read`.
            InvalidName: The feed has a column of that name.
            BlackboardError: The store refuses, or does not answer.
        """
        self._check_is_new(partition_column)
        return parquet.rows_of(self.board, self.updates, self.schema, partition_column, [*map(self._key, self.updates)])

    def to_reader(self, *, partition_column: str | None = None) -> Any:
        """Read all rows one batch after the other, of at most 16,384 rows and about 32 MiB: memory is bounded.

        Args:
            partition_column: Add a column of this name with the key of the partition that a row is from.

        Returns:
            A `pyarrow.RecordBatchReader` with the columns of `schema`, which is read once, from the first batch on.

        Raises:
            UnreadableUpdate: See `to_arrow`; also at a later batch: then the batches before it are no whole update.
            UpdateChanged: See `to_arrow`; also at a later batch.
            InvalidName: The feed has a column of that name.
            BlackboardError: The store refuses, or does not answer, also at a later batch.
        """
        self._check_is_new(partition_column)
        keys = [*map(self._key, self.updates)]
        return parquet.stream_of(self.board, self.updates, self.schema, partition_column, keys)

    def to_pandas(self, *, partition_column: str | None = None) -> Any:
        """Read all rows as a `pandas.DataFrame`, into memory, twice for a moment: as a `pyarrow.Table`, too.

        Nothing is rounded, as integers have pandas' types that take NULL. Decimals are `decimal.Decimal`, dates
        `datetime.date`. Args and Raises are those of `to_arrow`.
        """
        return parquet.to_pandas(self.to_arrow(partition_column=partition_column))

    def to_spark(
        self,
        session: "SparkSession",
        schema: str | None = None,
        *,
        format: Format | None = None,  # noqa: A002
        delimiter: str = ",",
        quote: str | None = '"',
        encoding: Encoding = "UTF-8",
        header: bool = True,
        null_value: str | None = None,
    ) -> "DataFrame":
        """Read the rows by a Spark session of yours, which has to reach the blackboard itself.

        Args:
            session: A session, classic or of Connect.
            schema: The columns in Spark's DDL, as the feed is declared: CSV and JSON cannot be read without. With it
                rows come as a run's tagged input, with `_raw`, `_file` and `_reasons`, which `is_clean()` is about.
            format: `csv`, `json` or `parquet`; by default as the files' names end, and else Parquet.
            delimiter: With `quote`, `encoding`, `header` and `null_value` those of the feed's declaration, for CSV.
            quote: See `delimiter`.
            encoding: See `delimiter`.
            header: See `delimiter`.
            null_value: See `delimiter`.

        Returns:
            The frame. Spark reads at an action: a file that is gone by then fails it, with Spark's own error.

        Raises:
            InvalidDefinition: CSV or JSON has no schema, or settings of CSV are given for another format.
            UnreadableUpdate: A file is not of this format or these columns.
            UpdateChanged: A file is gone since `read`.
        """
        from feed_assets.reading.spark_rows import rows  # Only a caller with a session loads Spark.

        return rows(
            session,
            board=self.board,
            feed=self.feed,
            updates=self.updates,
            columns=lambda: self.schema,
            schema=schema,
            form=format,
            dialect=CsvDialect(delimiter, quote, encoding, header, null_value),
        )

    def _check_is_new(self, column: str | None) -> None:
        if column in self.schema.names:
            raise InvalidName(f"{self.feed} has a column {column!r} of its own: give another name.")

    def _key(self, update: Update) -> str:
        """Return the key of the partition that an update is of, or in."""
        parent = update.partition.parent if self.batches else None
        return parent.key if parent else update.partition.key

    def __repr__(self) -> str:
        files, size = sum(len(each.files) for each in self.updates), sum(each.size for each in self.updates)
        as_of = f", as of {self.as_of.isoformat()}" if self.as_of else ""
        without = f", without {shortened([left.id for left in self.left_out], _SHOWN)}" if self.left_out else ""
        summary = f"{files} files, {size:,} bytes on {self.board.title}"
        return f"FeedData({self._title()}{as_of}{without}: {summary})"

    def _title(self) -> str:
        first, last = self.updates[0], self.updates[-1]
        if len(self.updates) == 1:
            return f"{first.partition}, update {first.id}"
        return f"{self.feed}, {len(self.updates)} updates from {first.partition.key} to {last.partition.key}"

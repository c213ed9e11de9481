"""The result of `feed_assets.read`: exact files of valid updates, and the rows in them."""

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
    """The data that were valid when `feed_assets.read` ran. Later changes of the feed do not change this object.

    Rows are read on demand, from exactly these files. If a file is gone or altered by then, reading raises
    UpdateChanged: call `feed_assets.read` again.

    Attributes:
        feed: The feed.
        updates: One update for each partition or batch, in order: `.partition`, `.id`, `.files`.
        left_out: Batches without a valid update, and with `partial=True` also partitions without one. `.id` is the key,
            `.reason` the reason.
        as_of: The `as_of` of the call; None if not given.
        batches: True if the updates are updates of batches.
        union_by_name: True if files may lack columns.
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
        """Return exactly the validated files: paths on this machine, or URLs such as `s3://lake/…`.

        A program that reads the URLs needs credentials. Raise InvalidName for `memory://`, which only this process can
        read.
        """
        root = local_root(self.board.url)
        keys = [file.key for update in self.updates for file in update.files]
        if root:
            return [str(root / key) for key in keys]
        return [spark_path(self.board.url, key).replace("s3a://", "s3://", 1) for key in keys]

    @property
    def update_id(self) -> str:
        """Return the id of the only update. Raise InvalidName if there are several: see `update_ids`."""
        if len(self.updates) != 1:
            raise InvalidName(f"{self!r} has {len(self.updates)} ids: use `update_ids`, which has them by key.")
        return self.updates[0].id

    @property
    def update_ids(self) -> dict[str, str]:
        """Return the ids of updates by the key of their partition or batch."""
        return {update.partition.key: update.id for update in self.updates}

    @cached_property
    def schema(self) -> Any:
        """Return the joint `pyarrow.Schema` of all files, by one or two requests for each file. Timestamps are UTC.

        Raise UnreadableUpdate if there is no file, if a file is not Parquet, or if files have different columns. Raise
        UpdateChanged or BlackboardError as `to_arrow` does.
        """
        return parquet.schema_of(self.board, self.updates, union_by_name=self.union_by_name)

    def to_arrow(self, *, partition_column: str | None = None) -> Any:
        """Read all rows into memory, which must also hold the packed files. `to_reader` reads in batches instead.

        Args:
            partition_column: Add a column of this name with the key of the partition that a row is from.

        Returns:
            A `pyarrow.Table` with the columns of `schema`.

        Raises:
            UnreadableUpdate: A file is not Parquet, is damaged, or has other columns than the other files. The message
                names the file.
            UpdateChanged: A file is gone or altered since `read`.
            InvalidName: The feed has a column of that name.
            BlackboardError: The store refuses, or does not answer.
        """
        self._check_is_new(partition_column)
        return parquet.rows_of(self.board, self.updates, self.schema, partition_column, [*map(self._key, self.updates)])

    def to_reader(self, *, partition_column: str | None = None) -> Any:
        """Read all rows in batches of at most 16,384 rows and about 32 MiB, so memory is bounded.

        Args:
            partition_column: Add a column of this name with the key of the partition that a row is from.

        Returns:
            A `pyarrow.RecordBatchReader` with the columns of `schema`. It can be read once.

        Raises:
            UnreadableUpdate: See `to_arrow`. If a later batch raises it, the earlier batches are incomplete data.
            UpdateChanged: See `to_arrow`; also at a later batch.
            InvalidName: The feed has a column of that name.
            BlackboardError: The store refuses, or does not answer, also at a later batch.
        """
        self._check_is_new(partition_column)
        keys = [*map(self._key, self.updates)]
        return parquet.stream_of(self.board, self.updates, self.schema, partition_column, keys)

    def to_pandas(self, *, partition_column: str | None = None) -> Any:
        """Read all rows as a `pandas.DataFrame`. For a moment, memory also holds the rows as a `pyarrow.Table`.

        Integers have pandas' nullable types, so nothing is rounded. Decimals are `decimal.Decimal`, dates
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
        """Read the rows with your Spark session, which must be able to reach the blackboard.

        Args:
            session: A classic session or one of Spark Connect.
            schema: The declared columns in Spark's DDL, required for CSV and JSON. With a schema the frame also has the
                columns `_raw`, `_file` and `_reasons`, as in a run. `is_clean()` uses them.
            format: `csv`, `json` or `parquet`. The default is the format that the files' names show, or else Parquet.
            delimiter: The delimiter of CSV files. Give this and the next four arguments as in the feed's declaration.
            quote: The character around CSV fields, or None.
            encoding: The encoding of CSV files.
            header: Whether the first record of a CSV file names the columns.
            null_value: A text that means NULL in CSV.

        Returns:
            The frame. Spark reads the files at an action. If a file is gone by then, Spark raises its own error.

        Raises:
            InvalidDefinition: CSV or JSON is without a schema, or CSV settings are given for another format.
            UnreadableUpdate: A file is not of this format or these columns.
            UpdateChanged: A file is gone since `read`.
        """
        from feed_assets.reading.spark_rows import rows  # Import here, so that only callers with a session load Spark.

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
        """Return the key of an update's partition. For a batch, this is the partition that holds the batch."""
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

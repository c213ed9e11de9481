"""A sink that registers feeds of intake in an AWS Glue catalog: a table per feed, a partition per batch.

The location of a partition is the newest valid update of its batch. After a kill, the same location is set again. If an
update becomes invalid, the location moves back to the update before it. The valid files of several batches are not in
one folder, so each batch is a partition of its own, with the partition key `batch`.
"""

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.errors import SinkUnavailable
from feed_assets.core.message_words import sentence
from feed_assets.core.schemas import column_types

GLUE_SECONDS = 10
"""Seconds for Glue to answer a request."""

_HIVE = "org.apache.hadoop.hive"
_TEXT = (f"{_HIVE}.ql.io.HiveIgnoreKeyTextOutputFormat", "org.apache.hadoop.mapred.TextInputFormat")
_FORMATS: Mapping[str, tuple[str, str, str]] = {
    "csv": (*_TEXT, f"{_HIVE}.serde2.OpenCSVSerde"),
    "json": (*_TEXT, "org.openx.data.jsonserde.JsonSerDe"),
    "parquet": (
        f"{_HIVE}.ql.io.parquet.MapredParquetOutputFormat",
        f"{_HIVE}.ql.io.parquet.MapredParquetInputFormat",
        f"{_HIVE}.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
}
_TYPES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp",
    "variant": "string",
    "void": "string",
}
"""Glue's name for each type that has another name in Spark."""


@dataclass(frozen=True)
class GlueTable:
    """A feed as a table: its columns in Spark's DDL, the names of its partition keys, and its location."""

    name: str
    schema: str
    format: str
    keys: tuple[str, ...]
    location: str
    dialect: CsvDialect | None = None

    @classmethod
    def name_of(cls, feed: str) -> str:
        """Return a feed's name in Glue: `partners/women/v1.0` is `partners_women_v1_0`."""
        return re.sub(r"\W", "_", feed).lower()

    def described(self, location: str) -> dict[str, Any]:
        """Return the storage description of the table, or of a partition."""
        written, read, serde = _FORMATS[self.format]
        columns = [{"Name": name.lower(), "Type": glue_type(kind)} for name, kind in column_types(self.schema)]
        return {
            "Columns": columns,
            "Location": location,
            "InputFormat": read,
            "OutputFormat": written,
            "SerdeInfo": {"SerializationLibrary": serde, **self._written},
            "Parameters": self._reading,
        }

    @property
    def _reading(self) -> dict[str, str]:
        """Return the parameters with which engines read the files.

        Some engines look for them at the table, others at its storage.
        """
        has_header = self.format == "csv" and (self.dialect is None or self.dialect.header)
        return {"skip.header.line.count": "1"} if has_header else {}

    @property
    def _written(self) -> dict[str, Any]:
        """Return the serde's parameters for a CSV dialect. The serde has none for an encoding or a text for NULL."""
        if self.dialect is None:
            return {}
        return {"Parameters": {"separatorChar": self.dialect.delimiter, "quoteChar": self.dialect.quote or "\0"}}

    @property
    def input(self) -> dict[str, Any]:
        """Return Glue's description of the table."""
        keys = [{"Name": key, "Type": "string"} for key in self.keys]
        parameters = {"classification": self.format, "EXTERNAL": "TRUE", **self._reading}
        described = {"StorageDescriptor": self.described(self.location), "Parameters": parameters}
        return {"Name": self.name, "TableType": "EXTERNAL_TABLE", "PartitionKeys": keys, **described}


@dataclass(frozen=True)
class Registered:
    """A batch to register: the values of its partition keys, and its location, which is None without a valid update."""

    table: GlueTable
    values: tuple[str, ...]
    location: str | None


@dataclass(frozen=True)
class GlueSink:
    """A database of the Glue catalog. boto3 takes region, credentials and endpoint from the environment."""

    database: str

    def publish(self, events: Sequence[tuple[int, Registered | None]]) -> tuple[str, ...]:
        """Register the last state of each batch. Raise SinkUnavailable if Glue fails."""
        newest = {(each.table.name, each.values): each for _, each in events if each}
        with self._translated():
            for table in {each.table.name: each.table for each in newest.values()}.values():
                self._declare(table)
            for each in newest.values():
                self._put(each) if each.location else self._remove(each)
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return (): other writers' tables have other names, so they hide none of our events."""
        return ()

    def _declare(self, table: GlueTable) -> None:
        """Create the database and the table, or update its columns."""
        with suppress(self._client.exceptions.AlreadyExistsException):
            self._client.create_database(DatabaseInput={"Name": self.database})
        try:
            self._client.create_table(DatabaseName=self.database, TableInput=table.input)
        except self._client.exceptions.AlreadyExistsException:
            existing = self._client.get_table(DatabaseName=self.database, Name=table.name)["Table"]
            if existing["StorageDescriptor"]["Columns"] != table.input["StorageDescriptor"]["Columns"]:
                self._client.update_table(DatabaseName=self.database, TableInput=table.input)

    def _put(self, each: Registered) -> None:
        at = {"DatabaseName": self.database, "TableName": each.table.name}
        definition = {"Values": [*each.values], "StorageDescriptor": each.table.described(each.location or "")}
        try:
            self._client.create_partition(**at, PartitionInput=definition)
        except self._client.exceptions.AlreadyExistsException:
            self._client.update_partition(**at, PartitionValueList=[*each.values], PartitionInput=definition)

    def _remove(self, each: Registered) -> None:
        at = {"DatabaseName": self.database, "TableName": each.table.name}
        with suppress(self._client.exceptions.EntityNotFoundException):
            self._client.delete_partition(**at, PartitionValues=[*each.values])

    @cached_property
    def _client(self) -> Any:
        connect: Any = boto3.client  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        retries = {"mode": "standard", "total_max_attempts": 2}
        return connect("glue", config=Config(connect_timeout=GLUE_SECONDS, read_timeout=GLUE_SECONDS, retries=retries))

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise SinkUnavailable(
                f"Glue's database {self.database} cannot be updated: {sentence(str(error))} Check region, credentials "
                "and permissions."
            ) from error


def glue_type(kind: str) -> str:
    """Return Glue's name for a type in Spark's DDL. A struct's field names only become lower case."""
    return re.sub(r"\w+(?!\w|:)", lambda match: _TYPES.get(match[0], match[0]), kind.lower())

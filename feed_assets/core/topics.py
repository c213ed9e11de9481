"""Declaration of a Kafka topic, and the names of the topics that belong to it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from feed_assets.core.chunks import CSV, PACKED_CSV, PARQUET
from feed_assets.core.message_words import with_article
from feed_assets.core.record_columns import MOST_LEVELS, SEPARATOR
from feed_assets.core.schemas import column_types
from feed_assets.core.topic_columns import has_one_text, has_order, record_schema

OPERATIONS = ("create", "update", "delete", "refresh")
"""The types of messages. Source: the S3 Spolt of "Streaming Messages from Kafka into Redshift" (Yelp, 2016)."""

DEBEZIUM = "debezium"
"""The place of a message's type in an envelope of Debezium, which has the row, too."""

ValueFormat = Literal["avro", "json", "json_schema", "protobuf"]
"""Formats of values: Avro, JSON with declared columns, and JSON and Protobuf whose schema is in a registry."""

KeyFormat = Literal["avro", "protobuf", "string", "int", "long", "uuid", "json"]
"""Formats of keys. `string`, `int`, `long` and `uuid` are those of Kafka's own serializers."""

Framing = Literal["confluent", "apicurio_content_id", "apicurio_global_id", "glue"]
"""Forms in which a key or value names its schema: of Confluent, of Apicurio with one of its ids, of AWS Glue."""

PLAIN_KEYS = frozenset({"string", "int", "long", "uuid"})
"""Formats of keys that are a single value without a schema."""

ChunkFormat = Literal["csv", "parquet"]
"""File formats of chunks."""

Conflicts = Literal["stop", "refuse", "variant"]
"""Choices for rows that a warehouse table cannot take: a key from a second partition, or a field of another type.

With `variant`, a field of another type gets a column of its own. All else is refused.
"""

Mask = Literal["hash", "last4", "null"]
"""Kinds of masks. A chunk has a keyed hash of a value, its last four characters, or null."""

NO_MASKS: Mapping[str, Mask] = {}
"""The masks of a topic without masked columns."""

OPTIONAL = "?"
"""The ending of a masked column's name if schemas may lack the column."""

MOST_MESSAGES, MOST_SECONDS = 1_000_000, 86_400


def _key(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("expected one field or more, which identify a row")
    if len({*value}) < len(value) or {"", "_operation", "_offset"} & {*value}:
        raise ValueError("expected different names of fields, without _operation and _offset, which chunks add")
    return value


def _operation(value: str | None) -> str | None:
    kind, _, name = (value or "header:operation").partition(":")
    if value != DEBEZIUM and (kind not in ("header", "field") or not name):
        raise ValueError(
            f"expected header:NAME or field:NAME, where messages say create, update, delete or refresh, or {DEBEZIUM}"
        )
    return value


def _snapshot_markers(value: str | None) -> str | None:
    if value is None:
        return None
    kind, _, name = value.partition(":")
    if value != DEBEZIUM and (kind not in ("header", "field") or not name):
        raise ValueError(
            f"expected header:NAME or field:NAME, where messages say begin or end, or {DEBEZIUM} for its own marks"
        )
    return value


def _columns(value: str | None) -> str | None:
    if value is not None:
        if match := re.search(r"\w+\s+\S+\s+not\s+null\b", value, re.IGNORECASE):
            raise ValueError(f"{match[0]!r}: expected it without NOT NULL, because each column but the key may be null")
        record_schema(column_types(value))
    return value


def _mask(value: Mapping[str, Mask]) -> Mapping[str, Mask]:
    names = [each.removesuffix(OPTIONAL) for each in value]
    if nested := [each for each in names if "." in each]:
        column, flat = nested[0].partition(".")[0], nested[0].replace(".", SEPARATOR)
        raise ValueError(
            f"{nested[0]} is a field in a column, expected a whole column: mask {column!r}, or with flatten {flat!r}"
        )
    if odd := [each for each in names if each.strip() != each or OPTIONAL in each]:
        raise ValueError(f"{odd[0]!r} is no name of a column: expected it without blanks, and one {OPTIONAL} at most")
    if twice := [each for each in names if names.count(each) > 1]:
        raise ValueError(f"{twice[0]!r} is masked with and without {OPTIONAL}: remove one of both")
    if {"", "_operation", "_offset"} & {*names}:
        raise ValueError("expected names of columns, without _operation and _offset, which chunks add")
    return value


class Topic(BaseModel):
    """Rules for how the messages of one topic become chunks.

    Attributes:
        key: The fields that identify a row. A field that the message's value lacks is taken from the message's key.
        messages: The message limit: chunks end at multiples of this many offsets.
        seconds: The time limit: a chunk ends at most this long after its first message arrived.
        operation: Where a message has its type: `header:NAME`, `field:NAME`, or `debezium` for values that are
            Debezium's envelopes. Without it every message is an update.
        format: The file format of chunks.
        gzip: True if chunks in CSV are packed.
        values: The format of values: Avro, JSON or Protobuf with schemas of a registry, or JSON with the declared
            `columns`.
        columns: The columns of values in JSON, in Spark's DDL.
        keys: The format of keys.
        framing: How keys and values with a schema name it.
        conflicts: What a warehouse table does with a key from a second partition, and with fields of another type.
        mask: The masked columns. A name that ends with `?` is a column that schemas may lack.
        newest_by: The field whose greatest value wins for a key in a warehouse table, whichever partition it is from.
        snapshot_markers: Where messages mark the begin and the end of a snapshot: `debezium`, `header:NAME` or
            `field:NAME`. A snapshot that was loaded whole removes the rows of its partition that it did not name, so
            every snapshot must have all rows of the partition, and the topic the rows of one source table.
        flatten: The levels of nested records whose fields become columns: the field `city` of the record `home` is the
            column `home__city`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[tuple[str, ...], AfterValidator(_key)]
    messages: Annotated[int, Field(ge=1, le=MOST_MESSAGES)] = 10_000
    seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 60
    operation: Annotated[str | None, AfterValidator(_operation)] = None
    format: ChunkFormat = "csv"
    gzip: bool = False
    values: ValueFormat = "avro"
    columns: Annotated[str | None, AfterValidator(_columns)] = None
    keys: KeyFormat = "avro"
    framing: Framing = "confluent"
    conflicts: Conflicts = "stop"
    mask: Annotated[Mapping[str, Mask], AfterValidator(_mask)] = Field(default_factory=dict[str, Mask])
    newest_by: Annotated[str, Field(min_length=1)] | None = None
    snapshot_markers: Annotated[str | None, AfterValidator(_snapshot_markers)] = None
    flatten: Annotated[int, Field(ge=0, le=MOST_LEVELS)] = 0

    def __hash__(self) -> int:
        """Return a hash without `mask`, which is a mapping and has none."""
        return hash((self.key, self.messages, self.seconds, self.operation, self.columns, self.newest_by))

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        if self.format == "parquet" and self.gzip:
            raise ValueError("gzip packs CSV, and chunks are Parquet, which is compressed anyway: remove gzip")
        if self.values == "json" and self.columns is None:
            raise ValueError("values are JSON, and no schema is given: expected schema='…' with their columns")
        if self.values != "json" and self.columns is not None:
            cure = "add values='json'" if self.values == "avro" else "remove schema"
            raise ValueError(f"schema is given, and values are {self.values}, whose schemas have the columns: {cure}")
        if self.values not in ("avro", "json") and self.is_debezium:
            raise ValueError(f"Debezium's envelopes are declared, and values are {self.values}: expected avro or json")
        if self.is_debezium and (self.snapshot_markers or "").startswith("field:"):
            raise ValueError(
                "operation is debezium, and snapshot_markers names a field: expected debezium or header:NAME, because "
                "Debezium's envelopes have their own fields"
            )
        if self.newest_by and self.snapshot_markers:
            raise ValueError(
                "newest_by and snapshot_markers are declared: expected one of them, because a row of a snapshot may "
                "lose to an older one, which would then be removed"
            )
        self._check_order()
        return self

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        columns = [name for name, _ in column_types(self.columns)] if self.columns else []
        for option, where in (("operation", self.operation), ("snapshot_markers", self.snapshot_markers)):
            place, _, field = (where or "").partition(":")
            if columns and place == "field" and field not in columns:
                raise ValueError(f"{option} is {where}: expected a column of schema, one of {', '.join(columns)}")
        return self

    @model_validator(mode="after")
    def _check_mask(self) -> Self:
        for name, kind in self.masks.items():
            if name in self.key and kind != "hash":
                raise ValueError(f"mask of the key field {name} is {kind!r}, expected 'hash': others would merge rows")
        kinds = dict(column_types(self.columns)) if self.columns else {}
        keys = {*self.key} & self.masks.keys()
        if wrong := [name for name, kind in kinds.items() if name in keys and not has_one_text(kind)]:
            raise ValueError(
                f"mask of the key field {wrong[0]}: expected the type of a text, a whole number or a boolean, "
                "because equal values of others may have different texts, and so different hashes"
            )
        declared = {*self.key, *kinds}
        if kinds and (unknown := sorted(self.masks.keys() - declared)):
            raise ValueError(f"mask of {unknown[0]!r}: expected one of the columns {', '.join(sorted(declared))}")
        return self

    def _check_order(self) -> None:
        """Raise ValueError for a `newest_by` that cannot order the rows of a key."""
        if self.newest_by in (*self.key, "_operation", "_offset", "_partition"):
            raise ValueError(
                f"newest_by is {self.newest_by}, which is a key field or a column of ours: expected a field whose "
                "value grows with each change of a row"
            )
        if self.newest_by and self.is_debezium:
            raise ValueError(
                "newest_by is declared, and an envelope's delete has the row before it, without a value of its own: "
                "expected unwrapped events, such as operation='field:__op' and newest_by='__source_lsn'"
            )
        if self.newest_by in self.masks:
            raise ValueError(f"newest_by is {self.newest_by}, which is masked and has no order: expected another field")
        kinds = dict(column_types(self.columns)) if self.columns else {}
        if self.newest_by and kinds and self.newest_by not in kinds:
            raise ValueError(f"newest_by is {self.newest_by}: expected a column of schema, one of {', '.join(kinds)}")
        if self.newest_by and kinds and not has_order(kinds[self.newest_by]):
            raise ValueError(
                f"newest_by is {self.newest_by}, which is {with_article(kinds[self.newest_by])}: expected a whole "
                "number, a decimal, a date or a timestamp"
            )

    @property
    def masks(self) -> dict[str, Mask]:
        """Return the masks by the names of their columns, without the mark of optional ones."""
        return {name.removesuffix(OPTIONAL): kind for name, kind in self.mask.items()}

    @property
    def ending(self) -> str:
        """Return the ending of the keys of chunks."""
        if self.format == "parquet":
            return PARQUET
        return PACKED_CSV if self.gzip else CSV

    @property
    def is_debezium(self) -> bool:
        """Return whether values are Debezium's envelopes."""
        return self.operation == DEBEZIUM

    @property
    def has_envelope_schemas(self) -> bool:
        """Return whether schemas are those of Debezium's envelopes. The declared columns of JSON are those of rows."""
        return self.is_debezium and self.values == "avro"


TOPIC_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
"""The pattern of a topic's name. It is valid in an object's key, and leaves room for `-signals` and `-dead-letters`."""


def signals_of(topic: str) -> str:
    """Return the name of the topic with the signals of `topic`.

    It has a signal for each chunk, in the partition with the number of the chunk's partition.
    """
    return f"{topic}-signals"


def dead_letters_of(topic: str) -> str:
    """Return the name of the topic with the dead letters of `topic`.

    Dead letters are messages that are not valid records. Each keeps the number of its partition.
    """
    return f"{topic}-dead-letters"


HISTORY = "_history"
"""The ending of a history table's name, after the name of its topic."""


def history_of(topic: str) -> str:
    """Return the name of the history table of a topic in a warehouse: it has a row for each message."""
    return f"{topic}{HISTORY}"


def versions_of(topic: str) -> str:
    """Return the name of the view of a topic's history, in which each row has the range in which it was valid."""
    return f"{topic}_versions"


@dataclass(frozen=True)
class TopicHistory:
    """A topic that is loaded into a history table, as a loader gets it: its name and rules."""

    topic: str
    rules: Topic

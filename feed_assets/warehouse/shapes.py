"""A table's shape, made from an Avro schema: its columns, each of a kind for which every warehouse has a type."""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict

from feed_assets.core.errors import InvalidShape
from feed_assets.core.sql_text import storable
from feed_assets.core.topics import NO_MASKS, Mask
from feed_assets.kafka.avro_types import branches, is_decimal, named_types
from feed_assets.warehouse.defaults import Types, default_of

if TYPE_CHECKING:
    from feed_assets.kafka import avro

OPERATION, PARTITION, OFFSET = "_operation", "_partition", "_offset"
"""Columns that are not fields of the schema. Chunks have OPERATION and OFFSET, topics' tables PARTITION and OFFSET.

Only a history table has OPERATION, too.
"""

TAKEN = frozenset({OPERATION, PARTITION, OFFSET})

DELETED_AT = "_deleted_at"
"""The column with the time of a deletion, in the table of deleted keys."""

ORDER = "_newest_by"
"""The column with the order value of a deletion, in the table of deleted keys. Only tables with `newest_by` have it."""

MOST_COLUMNS = 1_598
"""The most columns of a table, with dropped ones. PostgreSQL and Redshift allow 1,600, including our two columns."""

Schema = Mapping[str, Any]


class Kind(BaseModel):
    """A type of column values, independent of a warehouse. A decimal has `scale` digits after the point.

    `length` is the length of a text in bytes, if the warehouse needs it; else 0.
    """

    model_config = ConfigDict(frozen=True)

    name: Literal[
        "boolean",
        "integer",
        "bigint",
        "real",
        "double",
        "decimal",
        "text",
        "uuid",
        "bytes",
        "date",
        "time",
        "timestamp",
        "local_timestamp",
        "json",
    ]
    precision: int = 0
    scale: int = 0
    length: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})" if self.name == "decimal" else self.name


class Column(BaseModel):
    """A column of a warehouse table.

    `default` is a text of the chunks' dialect, and `aliases` are former names.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Kind
    is_nullable: bool = True
    default: str | None = None
    comment: str = ""
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.kind}{'' if self.is_nullable else ' not null'}"


class Variant(NamedTuple):
    """A column for values of another type: its name, the field in the files, and the column with the first type."""

    column: str
    field: str
    of: str


class Shape(BaseModel):
    """The columns of a table except PARTITION and OFFSET, and the names of its key columns.

    The table of a dataset has no key.
    """

    model_config = ConfigDict(frozen=True)

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    """Columns that were dropped because a newer schema lacks them. Rows of older schemas do not add them again."""
    variants: tuple[Variant, ...] = ()
    owners: tuple[str, ...] = ()
    """The owners in the schema's attribute `owners`."""
    newest_by: str = ""
    """The column whose greatest value wins for a key. If it is empty, the highest offset wins."""
    is_history: bool = False
    """True for a history table: it has a row for each message, and OPERATION as a column."""
    has_snapshots: bool = False
    """True for a history whose versions end with a snapshot that does not name their key."""
    is_union: bool = False
    """True for a table of several topics: a column has the topic of each row, and no schema drops a column."""
    is_flat: bool = False
    """True if fields of records are columns, with names such as `home__city`."""
    kept: tuple[str, ...] = ()
    """Columns of fields that were of another type, or in a record, in an earlier schema. They are never dropped."""

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.columns))})"

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns of the key, in order."""
        column_by_name = {each.name: each for each in self.columns}
        return tuple(column_by_name[name] for name in self.key)


TEXT = Kind(name="text")
_PRIMITIVE: dict[str, Kind] = {
    "boolean": Kind(name="boolean"),
    "int": Kind(name="integer"),
    "long": Kind(name="bigint"),
    "float": Kind(name="real"),
    "double": Kind(name="double"),
    "string": TEXT,
    "enum": TEXT,
    "bytes": Kind(name="bytes"),
    "fixed": Kind(name="bytes"),
}
_LOGICAL: dict[tuple[str, str], Kind] = {
    ("string", "uuid"): Kind(name="uuid"),
    ("int", "date"): Kind(name="date"),
    ("int", "time-millis"): Kind(name="time"),
    ("long", "time-micros"): Kind(name="time"),
    ("long", "timestamp-millis"): Kind(name="timestamp"),
    ("long", "timestamp-micros"): Kind(name="timestamp"),
    ("long", "local-timestamp-millis"): Kind(name="local_timestamp"),
    ("long", "local-timestamp-micros"): Kind(name="local_timestamp"),
}
"""Logical types that chunks support. All other logical types are ignored, as Avro requires."""

_JSON = Kind(name="json")
_DIGITS = {"integer": 10, "bigint": 19}
_TEXTS = frozenset({"boolean", "integer", "bigint", "decimal", "uuid", "date"})
"""Kinds whose values every warehouse casts to the same texts that chunks have. So such columns can become texts."""


def shape_of(
    schema: "avro.Schema",
    key: Sequence[str],
    *,
    is_debezium: bool = False,
    masks: Mapping[str, Mask] = NO_MASKS,
    flatten: int = 0,
) -> Shape:
    """Return the shape of a table for a parsed schema. A key field that the schema lacks becomes a text column.

    `is_debezium` means that the schema is an envelope of Debezium, with the rows inside. `masks` and `flatten` are
    those of the topic. Raise InvalidShape if no table can have this shape.
    """
    # Import these modules here, because they need Kafka's packages, which only topics need.
    from feed_assets.kafka import avro, debezium
    from feed_assets.kafka.flat_records import flattened
    from feed_assets.kafka.masks import masked_record
    from feed_assets.kafka.schema_limits import InvalidSchema

    record = debezium.row_type(schema) if is_debezium else avro.record_of(schema)
    if record is None:
        raise InvalidShape("the schema is not a record: expected one, or a union of null and one.")
    try:
        record = masked_record(flattened(record, flatten).record, masks)
    except InvalidSchema as error:
        raise InvalidShape(f"the schema cannot be flattened: {error}.") from error
    check_columns(len(record["fields"]))
    named: Schema = record.get("__named_schemas", {})
    fields = {str(each["name"]): each for each in record["fields"]}
    if reserved := fields.keys() & TAKEN:
        raise InvalidShape(
            f"the schema has a field {min(reserved)}: that is a column of every table. Rename the field."
        )
    if reserved := {DELETED_AT, ORDER} & {*key}:
        raise InvalidShape(
            f"the key has a field {min(reserved)}, which is reserved in the table of deleted keys. Rename the field."
        )
    absent = [Column(name=name, kind=TEXT, is_nullable=False) for name in key if name not in fields]
    types = Types(named)
    columns = (*absent, *[_column(each, key, types) for each in fields.values()])
    if odd := [each.name for each in columns if each.name in key and each.kind == _JSON]:
        raise InvalidShape(f"the key field {odd[0]} is an array, map or record: expected a value that can be compared.")
    return Shape(columns=columns, key=tuple(key), owners=_owners(record), is_flat=flatten > 0)


def check_columns(count: int) -> None:
    """Raise InvalidShape for more columns than a table may have."""
    if count > MOST_COLUMNS:
        raise InvalidShape(
            f"the table would have {count:,} columns, with those that were dropped: expected at most "
            f"{MOST_COLUMNS:,}. Put some fields into a record or map, or make the table anew."
        )


def check_case(columns: Iterable[Column], warehouse: str, fold: Callable[[str], str] = str.lower) -> None:
    """Raise InvalidShape for names that differ only in case, in a warehouse that folds names."""
    names = dict[str, str]()
    for each in columns:
        if (other := names.setdefault(fold(each.name), each.name)) != each.name:
            raise InvalidShape(f"{other} and {each.name} are the same name in {warehouse}. Rename one of the fields.")


def _owners(record: Schema) -> tuple[str, ...]:
    """Return the owners; () if the attribute is not a list of texts. Avro does not define this attribute."""
    attribute: Any = record.get("owners")
    texts = _texts(attribute)
    return texts if isinstance(attribute, list) and len(texts) == len(cast(list[Any], attribute)) else ()


def _texts(attribute: Any) -> tuple[str, ...]:
    """Return those texts of a list that a warehouse can store. Return () if the attribute is not a list."""
    entries = cast(list[Any], attribute) if isinstance(attribute, list) else []
    return tuple(each for each in entries if isinstance(each, str) and each == storable(each))


def _column(field: Schema, key: Sequence[str], types: Types) -> Column:
    name, is_key, doc = str(field["name"]), field["name"] in key, field.get("doc")
    return Column(
        name=name,
        kind=kind_of(field["type"], types.named),
        is_nullable=not is_key and "null" in branches(field["type"]),
        default=None if is_key or "default" not in field else _default(field, types),
        comment=storable(doc) if isinstance(doc, str) else "",
        aliases=_texts(field.get("aliases")),
    )


def _default(field: Schema, types: Types) -> str | None:
    try:
        return default_of(field["type"], field["default"], types)
    except Exception as error:  # A schema may give any JSON as the default of any type.
        expected = "expected a moment from year 1 to 9999, or another value of its type"
        default = reprlib.repr(field["default"])
        raise InvalidShape(f"the default of {field['name']} is {default} ({error!s:.200}): {expected}.") from error


def kind_of(schema: Any, named: Schema) -> Kind:
    """Return the kind of an Avro type. For a union, it is the kind that can store all branches, or else text."""
    kinds = [*dict.fromkeys(_kind(name, definition) for name, definition in named_types(schema, named))]
    widest = kinds[0] if kinds else TEXT
    for each in kinds:  # Do not compare each with all: a union may have many branches.
        widest = widest if widens(each, widest) else each
    return widest if all(widens(each, widest) for each in kinds) else TEXT


def _kind(name: str, schema: Schema) -> Kind:
    if name in ("bytes", "fixed") and is_decimal(schema):
        return Kind(name="decimal", precision=schema["precision"], scale=schema.get("scale", 0))
    return _LOGICAL.get((name, str(schema.get("logicalType", "")))) or _PRIMITIVE.get(name, _JSON)


def widens(old: Kind, new: Kind) -> bool:
    """Return whether kind `new` can store each value of kind `old`, and gives a text in a chunk the same meaning."""
    match old.name, new.name:
        case ("integer", "bigint" | "double") | ("real", "double"):
            return True
        case "decimal", "decimal":
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case "integer" | "bigint", "decimal":
            return new.precision - new.scale >= _DIGITS[old.name]
        case "text", "text":
            return new.length >= old.length
        case _, "text" if old.name in _TEXTS:
            return True
        case _:
            return old == new

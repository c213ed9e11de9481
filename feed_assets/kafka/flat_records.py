"""Rows whose records become columns: the field `city` of the record `home` is the column `home__city`.

The type alone decides which columns there are, so chunks and tables have the same ones. Maps, arrays, unions of several
types, and records below the declared depth are one column each.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from feed_assets.core.record_columns import column_of, records_of
from feed_assets.kafka.avro_types import branches, named_types
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.schema_limits import MOST_COLUMNS, NAME_CHARACTERS, InvalidSchema, check_most

_MOST_ALIASES = 10_000
"""The most aliases of columns. Each alias of a record is one of each of its columns."""

_NULLS = ("null", {"type": "null"})


class _RecordFields(NamedTuple):
    """The fields of a record by name, and of those that become columns their own fields. `width` counts columns."""

    names: tuple[str, ...]
    nested: Mapping[str, "_RecordFields"]
    width: int


class FlatRecord(NamedTuple):
    """An Avro record without records down to a depth. `record` is its type, and `columns` are its fields."""

    record: Mapping[str, Any]
    columns: tuple[str, ...]
    fields: _RecordFields
    records: frozenset[str] = frozenset()
    """The names that the records whose fields are columns would have as columns."""

    def row(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a value as a row of columns. A record that is null has only nulls. Raise Poison for other fields."""
        if not self.fields.nested:
            return value
        return dict(zip(self.columns, _cells(value, self.fields), strict=True))


def flattened(record: Mapping[str, Any], depth: int) -> FlatRecord:
    """Return an Avro record in which the fields of records are columns, down to a depth. Raise InvalidSchema.

    Such a column may be null, because its record may be. It has no default, because a row without the record has none.
    """
    if not depth:
        names = tuple(str(each["name"]) for each in record["fields"])
        return FlatRecord(record, names, _RecordFields(names, {}, len(names)))
    flat = _FlatColumns(record.get("__named_schemas", {}))
    fields = flat.of(record, _RecordPlace("", "", ()), depth)
    return FlatRecord({**record, "fields": flat.columns}, (*flat.paths,), fields, frozenset(flat.records))


def aliases_of(field: Mapping[str, Any]) -> list[str]:
    """Return the aliases of a field. A schema may give this attribute any JSON."""
    aliases = field.get("aliases")
    return [each for each in cast(list[Any], aliases) if isinstance(each, str)] if isinstance(aliases, list) else []


def with_key_columns(fields: Mapping[str, Any], names: Iterable[str], depth: int) -> Mapping[str, Any]:
    """Return the fields of a message's key, with those in its records that have the names of columns."""
    if not depth:
        return fields
    return {**fields, **{column: each for name in names for column, each in _key_field(fields, name, depth).items()}}


def _key_field(fields: Mapping[str, Any], name: str, depth: int) -> Mapping[str, Any]:
    """Return the field of a message's key that has the name of a column, as `{name: value}`; {} without the field."""
    if name in fields or not depth:
        return {name: fields[name]} if name in fields else {}
    for record in records_of(name):
        if isinstance(inner := fields.get(record), dict):
            inner_name = name.removeprefix(column_of(record, ""))
            if inner_field := _key_field(cast(Mapping[str, Any], inner), inner_name, depth - 1):
                return {name: inner_field[inner_name]}
    return {}


def _cells(value: Any, fields: _RecordFields) -> Iterator[Any]:
    """Yield the cells of a record. A deleted row of Debezium may have other fields than its schema has for new rows."""
    if not isinstance(value, dict) or (*(cells := cast(dict[str, Any], value)),) != fields.names:
        raise Poison.plain(f"a record of the row has other fields than {', '.join(fields.names):.200}")
    for name, cell in cells.items():
        if name not in fields.nested:
            yield cell
        elif cell is None:
            yield from [None] * fields.nested[name].width
        else:
            yield from _cells(cell, fields.nested[name])


class _RecordPlace(NamedTuple):
    """A record in a row: its name as a column, its path for messages, and its former names as a column."""

    name: str
    path: str
    aliases: tuple[str, ...]

    def has(self, field: Mapping[str, Any]) -> "_RecordPlace":
        """Return the place of a field of the record. An alias of either stands beside the name of the other one."""
        name = str(field["name"])
        by_record = [column_of(alias, name) for alias in self.aliases]
        aliases = (*by_record, *(column_of(self.name, alias) for alias in aliases_of(field)))
        return _RecordPlace(column_of(self.name, name), f"{self.path}.{name}" if self.path else name, aliases)


class _FlatColumns:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self.columns: list[Mapping[str, Any]] = []
        self.paths: dict[str, str] = {}
        """The path of each column in the row, by the column's name."""
        self.records = set[str]()
        self._named, self._aliases = named, 0

    def of(self, record: Mapping[str, Any], place: _RecordPlace, depth: int) -> _RecordFields:
        nested, begin = dict[str, _RecordFields](), len(self.columns)
        for field in record["fields"]:
            inner = self._record_in(field["type"]) if depth else None
            if inner is None:
                self._add(field, place)
            else:
                within = self._place(field, place)
                self.records.add(within.name)
                nested[str(field["name"])] = self.of(inner, within, depth - 1)
        names = tuple(str(each["name"]) for each in record["fields"])
        return _RecordFields(names, nested, len(self.columns) - begin)

    def _record_in(self, schema: Any) -> Mapping[str, Any] | None:
        """Return the record of a type that is a record, or a union of null and one; else None."""
        types = [definition for _, definition in named_types(schema, self._named)]
        return types[0] if len(types) == 1 and types[0].get("fields") else None

    def _place(self, field: Mapping[str, Any], record: _RecordPlace) -> _RecordPlace:
        place = record.has(field)
        check_most(len(place.name), NAME_CHARACTERS, "characters of a column's name")
        self._aliases += len(place.aliases)
        check_most(self._aliases, _MOST_ALIASES, "aliases of columns that are fields of records")
        return place

    def _add(self, field: Mapping[str, Any], record: _RecordPlace) -> None:
        place = self._place(field, record)
        if place.name in self.paths:
            raise InvalidSchema(
                f"the fields {self.paths[place.name]} and {place.path} would both be the column {place.name}: rename "
                "one of them, or declare a smaller flatten"
            )
        self.paths[place.name] = place.path
        if not record.name:
            self.columns.append(field)
            return
        check_most(len(self.columns) + 1, MOST_COLUMNS, "columns, with the fields of records")
        types = [each for each in branches(field["type"]) if each not in _NULLS]
        doc = {"doc": field["doc"]} if "doc" in field else {}
        column = {"name": place.name, "type": ["null", *types], "aliases": [*place.aliases], **doc}
        self.columns.append(column)

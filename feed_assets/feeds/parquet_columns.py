"""Columns of Parquet files in the types that all readers use: Spark in a run, and `feed_assets.read`.

The footer's own types decide. Some writers add a second schema (Arrow's, or Spark's as JSON). This schema is ignored,
because it may be out of date after a rename or cast. Spark itself would trust it.

| in a file | here |
|---|---|
| unsigned integers | the next larger signed integer; for 64 bits `decimal(20,0)` |
| TIMESTAMP of any unit, INT96 | microseconds; a finer value is refused |
| STRING, ENUM, JSON | string |
| bytes without an annotation, BSON, UUID, GEOMETRY, GEOGRAPHY | binary |
| a column of NULLs alone (UNKNOWN) | the type that it is stored as |
| TIME, INTERVAL, FLOAT16, decimals of more than 38 digits, types of a newer format | refused |
| names that differ by case alone, no columns, a codec that Spark lacks | refused |
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File
from feed_assets.core.message_words import excerpt, shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import metadata_of
from feed_assets.feeds.parquet_metadata import wrong_codecs

DIGITS = 38
"""The most digits of a decimal."""

_AT_A_TIME = 8
_SHOWN = 3
_OLD_DATES, _OLD_INT96 = "3.0.0", "3.1.0"
"""The first Spark versions that wrote today's calendar: for dates and timestamps, and for INT96."""

_GROUP = re.compile(r"^( *)(required|optional|repeated) (\S+) field_id=-?\d+ (.*)$")
_NOTE = re.compile(r" \((\w+)[()]")
"""The annotation after a name, at the end of a line, such as ` (List)` or ` (Timestamp(isAdjustedToUTC=true, …))`."""

Wrong = tuple[str, str]
"""A column, with what was found and what is expected."""


@dataclass(frozen=True)
class FileColumns:
    """The columns and the number of rows of one file.

    `types` is the schema that readers return, `stored` the schema with which Spark must read the file first. The sets
    are names of columns: `old` with dates or timestamps in Spark's old calendar, `int96` with INT96 timestamps. Columns
    in `variants` have the type VARIANT, which only Spark reads completely.
    """

    key: str
    rows: int
    types: Any
    stored: Any
    old: frozenset[str]
    int96: frozenset[str]
    variants: frozenset[str]


def read_columns(board: Blackboard, files: Sequence[File]) -> dict[str, FileColumns]:
    """Return the columns of files by key.

    Raises:
        UnreadableUpdate: A file is not Parquet, or not all readers would return the same values for a column.
        UpdateChanged: A file is gone or altered since it was listed.
        BlackboardError: The store refuses, or does not answer.
    """
    if len(files) == 1:
        return {files[0].key: _read(board, files[0])}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip([file.key for file in files], pool.map(partial(_read, board), files), strict=True))


def columns_of(key: str, metadata: Any) -> FileColumns:
    """Return the columns of a file by its footer. Raise UnreadableUpdate for columns that not all readers support."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    pa: Any = pyarrow  # pyarrow has no type hints.
    try:
        fields = [*metadata.schema.to_arrow_schema()]
    except (ValueError, NotImplementedError, OSError) as error:  # pyarrow's own errors are of these classes.
        raise UnreadableUpdate(_refused(key, [("its schema", " ".join(str(error).split()))])) from error
    leaves = iter([metadata.schema.column(number) for number in range(len(metadata.schema))])
    walk = _Walk(pa, leaves, _old(metadata.metadata or {}))
    pairs = [walk.column(field) for field in fields]
    shape = _Shape(str(metadata.schema), sum(_maps(pa, each.type) for each in fields))
    wrong = [*walk.wrong, *_names(fields, pa), *shape.wrong(), *wrong_codecs(metadata)]
    if wrong:
        raise UnreadableUpdate(_refused(key, wrong))
    types, stored = (pa.schema([pair[number] for pair in pairs]) for number in (0, 1))
    names = (frozenset(each) for each in (walk.old, walk.int96, shape.variants))
    return FileColumns(key, metadata.num_rows, types, stored, *names)


def _read(board: Blackboard, file: File) -> FileColumns:
    return columns_of(file.key, metadata_of(board, file))


def _refused(key: str, wrong: Sequence[Wrong]) -> str:
    columns = shortened([f"{excerpt(name)}: {excerpt(what)}" for name, what in wrong], _SHOWN)
    return f"{key} has columns that not all readers support: {columns}. Have it published again without them."


def _old(notes: Mapping[bytes, bytes]) -> tuple[bool, bool]:
    """Return two flags, by Spark's rule: dates and timestamps are in Spark's old calendar, and INT96 values are."""
    version = notes.get(b"org.apache.spark.version", b"~").decode(errors="replace")
    return (
        version < _OLD_DATES or b"org.apache.spark.legacyDateTime" in notes,
        version < _OLD_INT96 or b"org.apache.spark.legacyINT96" in notes,
    )


class _Walk:
    """The types of a file's columns, found leaf by leaf in the order of its footer."""

    def __init__(self, pa: Any, leaves: Iterator[Any], old: tuple[bool, bool]) -> None:
        self._pa, self._leaves, self._is_old = pa, leaves, old
        self.wrong: list[Wrong] = []
        self.old: set[str] = set()
        self.int96: set[str] = set()
        self._name = ""

    def column(self, field: Any) -> tuple[Any, Any]:
        self._name = field.name
        types, stored = self._types(field.type)
        return self._pa.field(field.name, types), self._pa.field(field.name, stored)

    def _types(self, kind: Any) -> tuple[Any, Any]:
        pa, types = self._pa, self._pa.types
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if types.is_struct(kind):
            pairs = [(each.name, self._types(each.type)) for each in kind.fields]
            plain, stored = ([pa.field(name, pair[number]) for name, pair in pairs] for number in (0, 1))
            return pa.struct(plain), pa.struct(stored)
        if types.is_map(kind):
            key, value = self._types(kind.key_type), self._types(kind.item_type)
            if key[0] != key[1]:
                self.wrong.append((self._name, f"found {key[1]} for keys of a map, expected {key[0]}"))
            return pa.map_(key[0], value[0]), pa.map_(key[1], value[1])
        if _is_list(types, kind):
            plain, stored = self._types(kind.value_type)
            return pa.list_(plain), pa.list_(stored)
        return self._leaf(next(self._leaves))

    def _leaf(self, leaf: Any) -> tuple[Any, Any]:
        """Return the type of values, and the type that Spark must read to get all values."""
        pa, logical = self._pa, leaf.logical_type
        moments = logical.type == "TIMESTAMP" and json.loads(logical.to_json())
        is_zoned = leaf.physical_type == "INT96" or bool(moments and moments["isAdjustedToUTC"])
        if (is_zoned or logical.type == "DATE") and self._is_old[leaf.physical_type == "INT96"]:
            self.old.add(self._name)
        if leaf.physical_type == "INT96":
            self.int96.add(self._name)
        if moments and moments["timeUnit"] == "nanoseconds":
            return pa.timestamp("us", "UTC" if is_zoned else None), pa.int64()
        if logical.type == "DECIMAL" and leaf.precision <= DIGITS:
            # Spark raises NullPointerException for up to 18 digits in a byte array, but not for more.
            # Read with more digits than the type has, so that numbers that are too long are found and reported.
            plain, is_long = pa.decimal128(leaf.precision, leaf.scale), leaf.precision > _LONG_DIGITS
            return plain, pa.decimal128(DIGITS, leaf.scale) if is_long or leaf.physical_type == "BYTE_ARRAY" else plain
        plain = _plain(pa, leaf, is_zoned)
        if plain is None:
            self.wrong.append((leaf.path, f"found {leaf.physical_type} ({logical}), expected a type that Spark has"))
            return pa.null(), pa.null()
        return plain, plain


_LONG_DIGITS = 18
"""The most digits of a decimal that fits into 64 bits."""


def _plain(pa: Any, leaf: Any, is_zoned: bool) -> Any:
    """Return the type that all readers use for a leaf. Return None if no type suits all readers."""
    logical = leaf.logical_type.type
    if logical == "UNKNOWN" and leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":  # pyarrow shows INTERVAL like this, too.
        return None
    if logical == "INT":
        return _integer(pa, json.loads(leaf.logical_type.to_json()))
    if logical == "TIMESTAMP":
        return pa.timestamp("us", "UTC" if is_zoned else None)
    if logical == "DATE":
        return pa.date32()
    if logical in ("STRING", "ENUM", "JSON"):
        return pa.string()
    if logical in ("NONE", "UNKNOWN", "BSON", "UUID", "GEOMETRY", "GEOGRAPHY"):
        return _PHYSICAL[leaf.physical_type](pa)
    return None


_PHYSICAL: Mapping[str, Callable[[Any], Any]] = {
    "BOOLEAN": lambda pa: pa.bool_(),
    "INT32": lambda pa: pa.int32(),
    "INT64": lambda pa: pa.int64(),
    "INT96": lambda pa: pa.timestamp("us", "UTC"),
    "FLOAT": lambda pa: pa.float32(),
    "DOUBLE": lambda pa: pa.float64(),
    "BYTE_ARRAY": lambda pa: pa.binary(),
    "FIXED_LEN_BYTE_ARRAY": lambda pa: pa.binary(),
}
"""Types of values without an annotation."""


def _integer(pa: Any, logical_type: Mapping[str, Any]) -> Any:
    bits = logical_type["bitWidth"]
    if logical_type["isSigned"]:
        return pa.type_for_alias(f"int{bits}")
    return pa.decimal128(20, 0) if bits == 64 else pa.type_for_alias(f"int{bits * 2}")


def _is_list(types: Any, kind: Any) -> bool:
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_one(kind) for is_one in lists)


def _maps(pa: Any, kind: Any) -> int:
    """Return how many maps are in a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _maps(pa, kind.storage_type)
    if pa.types.is_map(kind):
        return 1 + _maps(pa, kind.key_type) + _maps(pa, kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_maps(pa, each.type) for each in kind.fields)
    return _maps(pa, kind.value_type) if _is_list(pa.types, kind) else 0


def _names(fields: Sequence[Any], pa: Any, parent: str = "") -> Iterator[Wrong]:
    """Yield problems of names: names that differ only in case, because Spark ignores case, and unreadable names."""
    names = [each.name for each in fields]
    if not parent and not names:
        yield "its schema", "found no columns, expected at least one"
    by_case: dict[str, list[str]] = {}
    for name in names:
        by_case.setdefault(name.lower(), []).append(name)
    for alike in (each for each in by_case.values() if len(each) > 1):
        yield f"{parent}{alike[0]}", f"found the names {', '.join(alike)}, expected names that differ by more than case"
    for name in names:
        if not name.isprintable():
            yield repr(f"{parent}{name}"), "found a name with control characters, expected printable ones"
    for each in fields:
        yield from _names([*_inner(pa, each.type)], pa, f"{parent}{each.name}.")


def _inner(pa: Any, kind: Any) -> Iterator[Any]:
    """Yield the fields of each struct in a type."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _inner(pa, kind.storage_type)
    elif pa.types.is_struct(kind):
        yield from kind.fields
    elif pa.types.is_map(kind):
        yield from [*_inner(pa, kind.key_type), *_inner(pa, kind.item_type)]
    elif _is_list(pa.types, kind):
        yield from _inner(pa, kind.value_type)


class _Shape:
    """Groups of a schema, parsed from its text, because pyarrow shows their annotations nowhere else.

    A column's name may look like an annotation. At worst, the file is then refused.
    """

    def __init__(self, text: str, maps: int) -> None:
        lines = [match.groups() for line in text.splitlines()[2:] if (match := _GROUP.match(line))]
        self._lines = [
            (len(indent) // 2, repeats, kind, *_name_and_note(rest)) for indent, repeats, kind, rest in lines
        ]
        self._maps = maps
        is_variant = [(depth, name) for depth, _, _, name, note in self._lines if note == "Variant"]
        self.variants = [name for depth, name in is_variant if depth == 1]
        self._deep_variants = [name for depth, name in is_variant if depth > 1]

    def wrong(self) -> Iterator[Wrong]:
        for name in self._deep_variants:
            yield name, "found VARIANT inside of a column, expected it as a column of its own"
        above: dict[int, tuple[str, str | None]] = {}
        maps = 0
        for depth, repeats, kind, name, note in self._lines:
            parent, parent_note = above.get(depth - 1, ("", None))
            # Old Hive and Impala annotate the repeated group inside of a map as well (MAP_KEY_VALUE).
            maps += note == "Map" and not (repeats == "repeated" and parent_note == "Map")
            if repeats == "repeated" and parent == "repeated" and parent_note is None:
                yield name, "found a list right inside of a list, expected LIST groups around both"
            above[depth] = (repeats, note if kind == "group" else None)
        if self._maps != maps:
            yield "a map", "found a map without values, expected keys and values"


def _name_and_note(line_end: str) -> tuple[str, str | None]:
    """Parse the end of a line into the name of a column or group, and its annotation, if any."""
    text = line_end.removesuffix(" {" if line_end.endswith(" {") else ";")
    notes = [*_NOTE.finditer(text)] if text.endswith(")") else []
    return (text[: notes[-1].start()], notes[-1][1]) if notes else (text, None)

"""Format, dialect and columns of sample files, read by DuckDB and pyarrow."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect, Encoding
from feed_assets.core.errors import FeedAssetsError, InvalidName
from feed_assets.core.readable import Format
from feed_assets.core.sql_text import literal, quoted
from feed_assets.core.words import sentence
from feed_assets.feeds.local_files import csv_problem, open_bytes, open_text
from feed_assets.infer.columns import LONG_INTEGER, NULLS, Column, facts_of
from feed_assets.infer.csv_faults import refuse_blank, refuse_names, refuse_uneven

_SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_ENCODINGS: Mapping[Encoding, str] = {"UTF-8": "utf-8", "UTF-16": "utf-16", "Latin-1": "latin-1"}
"""DuckDB's names of the encodings."""

_EMPTY = "(empty)"
"""DuckDB's word for a character that it did not see."""

_NUMBERS = {"BIGINT", "UBIGINT", "DOUBLE"}


@dataclass(frozen=True)
class Sample:
    """Everything that sample files show of a feed, but for its partitions."""

    format: Format
    columns: tuple[Column, ...]
    dialect: CsvDialect = RFC_4180
    notes: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """Return the columns as Spark's DDL."""
        return ", ".join(column.ddl for column in self.columns)


def sample_of(files: Sequence[Path]) -> Sample:
    """Return what files show. Raise InvalidName for files that no feed can have, or that differ in their form."""
    if empty := [file for file in files if not file.stat().st_size]:
        raise InvalidName(f"{empty[0]} is empty: expected a file with records. Leave it out.")
    formats = {_format_of(file) for file in files}
    if len(formats) > 1:
        raise InvalidName(
            f"the files are {' and '.join(sorted(formats))}: expected one format. Give those of one feed."
        )
    import duckdb

    try:
        return {"csv": _csv, "json": _json, "parquet": _parquet}[formats.pop()](files)
    except FeedAssetsError:
        raise
    except (duckdb.Error, ValueError, OSError, EOFError, zlib.error) as error:  # pyarrow's are among them.
        raise InvalidName(
            f"{files[0]}: {sentence(str(error).splitlines()[0].strip())} Correct the file, or declare it by hand."
        ) from error


def _format_of(file: Path) -> Format:
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    form = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if form is None:
        raise InvalidName(
            f"{file}: its name does not say its format: expected one that ends in {', '.join(_SUFFIXES)}, or one of "
            "these and .gz. Rename a copy."
        )
    return form


def _database() -> Any:
    """Return a DuckDB in memory that loads nothing from elsewhere."""
    import duckdb

    return duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})


def _csv(files: Sequence[Path]) -> Sample:
    with _database() as database:
        encoding = _encoding_of(files)
        dialect, names = _dialect_of(database, files[0], encoding)
        _refuse_others(files, names, dialect)
        options = {
            "delim": literal(dialect.delimiter),
            "quote": literal(dialect.quote or ""),
            "escape": literal(dialect.quote or ""),
            "header": str(dialect.header).lower(),
            "encoding": literal(_ENCODINGS[encoding]),
            "all_varchar": "true",
            "auto_detect": "false",
            "columns": "{" + ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names) + "}",
            "store_rejects": "true",
        }
        given = ", ".join(f"{name} = {value}" for name, value in options.items())
        database.execute(f"CREATE TABLE texts AS FROM read_csv({_paths(files)}, {given})")
        wrong = database.execute("SELECT count(DISTINCT (file_id, line)) FROM reject_errors").fetchone()[0]
        columns, null_value = _typed(database, names)
    dialect = CsvDialect(dialect.delimiter, dialect.quote, encoding, dialect.header, null_value)
    notes = [f"{wrong} records have another number of fields, or misplaced quotes: a run rejects them"] if wrong else []
    guess = (
        "not all is UTF-8, so Latin-1 is a guess; of UTF-8 with odd bytes take it out, and a run rejects their records"
    )
    notes += [guess] if encoding == "Latin-1" else []
    notes += [] if dialect.header else ["the files have no header: give the columns better names"]
    return Sample("csv", columns, dialect, tuple(notes))


def _encoding_of(files: Sequence[Path]) -> Encoding:
    found: set[Encoding] = {_encoding_of_one(file) for file in files}
    found.discard("UTF-8")
    if len(found) > 1:
        raise InvalidName(f"the files are in {' and '.join(sorted(found))}: expected one encoding.")
    return found.pop() if found else "UTF-8"


def _encoding_of_one(file: Path) -> Encoding:
    with open_bytes(file) as data:
        first = data.read(2)
        if first in (b"\xff\xfe", b"\xfe\xff"):
            return "UTF-16"
    try:
        with open_text(file, "utf-8") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "Latin-1"
    return "UTF-8"


def _dialect_of(database: Any, file: Path, encoding: Encoding) -> tuple[CsvDialect, list[str]]:
    """Return the dialect of a file as DuckDB's sniffer has it, and the names of its columns."""
    sniffed = "SELECT Delimiter, Quote, SkipRows, HasHeader, Columns FROM sniff_csv(?, sample_size = -1, encoding = ?)"
    row = database.execute(sniffed, [str(file), _ENCODINGS[encoding]]).fetchone()
    delimiter, quote, skipped, has_header, columns = row
    names = [column["name"] for column in columns]
    delimiter, quote = "," if len(names) == 1 else str(delimiter), '"' if quote == _EMPTY else str(quote)
    refuse_blank(file, encoding)
    if skipped or len(names) == 1:  # DuckDB has found no form that fits all lines.
        refuse_uneven(file, encoding, quote)
    if skipped:
        lines = "1 line stands" if skipped == 1 else f"{skipped} lines stand"
        raise InvalidName(f"{file}: {lines} before its header: expected none. Have the producer write none.")
    if has_header:
        refuse_names(file, encoding, delimiter, quote)
    dialect = CsvDialect(delimiter, quote, encoding, bool(has_header))
    return dialect, names if has_header else [f"column_{number}" for number in range(1, len(names) + 1)]


def _refuse_others(files: Sequence[Path], names: Sequence[str], dialect: CsvDialect) -> None:
    """Raise InvalidName for a file that a run would refuse by the columns and the dialect of the first one."""
    for file in files:
        if problem := csv_problem(file, names, dialect):
            raise InvalidName(f"{file}: {problem}. Correct the file, or declare it by hand.")


def _typed(database: Any, names: Sequence[str]) -> tuple[tuple[Column, ...], str | None]:
    """Return the columns of the table `texts`, and the text that means NULL, if one makes more columns typed."""
    plain = _columns(database, "texts", names)
    texts = [column.name for column in plain if column.kind == "string"]
    for null in NULLS if texts else ():
        without = ", ".join(f"nullif({quoted(name)}, {literal(null)}) AS {quoted(name)}" for name in texts)
        typed = {column.name: column for column in _columns(database, f"(SELECT {without} FROM texts)", texts)}
        better = [each for each in typed.values() if each.kind != "string"]
        if better:
            note = f"{null} is read as NULL in all columns"
            return tuple(
                Column(each.name, typed[each.name].kind, "; ".join(filter(None, (note, typed[each.name].note))))
                if typed.get(each.name) in better
                else each
                for each in plain
            ), null
    return plain, None


def _columns(database: Any, table: str, names: Sequence[str]) -> tuple[Column, ...]:
    found = facts_of(database, table, names)
    return tuple(found[name].column(name, keeps_digits=True) for name in names)


def _json(files: Sequence[Path]) -> Sample:
    with _database() as database:
        database.execute(f"CREATE TABLE lines AS SELECT json FROM read_ndjson_objects({_paths(files)})")
        keys = "SELECT unnest(json_keys(json)) AS key FROM lines"
        names = [row[0] for row in database.execute(f"SELECT key FROM ({keys}) GROUP BY key").fetchall()]
        if not names:
            raise InvalidName(f"{files[0]} holds no JSON objects: expected one object a line. Correct the file.")
        first: Any = json.loads(database.execute("SELECT json FROM lines LIMIT 1").fetchone()[0])
        order: list[str] = [*first] if isinstance(first, dict) else []
        names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
        pointers = {name: literal("/" + name.replace("~", "~0").replace("/", "~1")) for name in names}
        kinds = ", ".join(f"list(DISTINCT json_type(json, {each}))" for each in pointers.values())
        seen = database.execute(f"SELECT {kinds} FROM lines").fetchone()
        texts = ", ".join(f"json ->> {each} AS {quoted(name)}" for name, each in pointers.items())
        facts = facts_of(database, f"(SELECT {texts} FROM lines)", names)
    columns = [
        _of_json(files[0], facts[name].column(name, keeps_digits=False), {*types} - {"NULL", None})
        for name, types in zip(names, seen, strict=True)
    ]
    return Sample("json", tuple(columns))


def _of_json(file: Path, column: Column, types: set[str]) -> Column:
    """Return a column as JSON's own types have it: a run converts none to another."""
    if nested := types & {"OBJECT", "ARRAY"}:
        raise InvalidName(
            f"{file}: {column.name} holds {nested.pop().lower()}s, which a feed of JSON cannot have: expected texts, "
            "numbers and booleans. Have the producer write them flat, or Parquet."
        )
    if types == {"VARCHAR"}:
        return column if column.kind in ("string", "date", "timestamp") else Column(column.name, "string")
    if types and types <= _NUMBERS:
        return column if column.kind in ("bigint", "double", LONG_INTEGER) else Column(column.name, "double")
    if types in ({"BOOLEAN"}, set[str]()):
        return column
    words = {"VARCHAR": "texts", "BOOLEAN": "booleans"} | dict.fromkeys(_NUMBERS, "numbers")
    both = " and ".join(sorted({words.get(each, each.lower()) for each in types}))
    return Column(column.name, "string", f"the files have {both}: a run rejects records where it is no text")


def _parquet(files: Sequence[Path]) -> Sample:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.sql.pandas import types as spark_types

    from feed_assets.feeds.parquet_columns import columns_of

    read: Any = pq.read_metadata  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    types = [columns_of(str(file), read(file)).types for file in files]
    if others := [file for file, each in zip(files, types, strict=True) if {*each} != {*types[0]}]:
        raise InvalidName(
            f"{others[0]} has other columns than {files[0]}: expected equal ones. Give those of one feed."
        )
    in_spark: Any = spark_types  # Its stubs leave types of Arrow open.
    fields = in_spark.from_arrow_schema(types[0], prefer_timestamp_ntz=True).fields
    return Sample("parquet", tuple(Column(field.name, field.dataType.simpleString()) for field in fields))


def _paths(files: Sequence[Path]) -> str:
    return f"[{', '.join(literal(str(file)) for file in files)}]"

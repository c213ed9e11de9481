"""Inference from JSON lines: columns, and the records that a run would reject."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from feed_assets.core.csv_dialect import RFC_4180, encoding_problem
from feed_assets.core.errors import InvalidName
from feed_assets.core.repeated_values import first_repeated
from feed_assets.infer.columns import LONG_INTEGER, InferredColumn, facts_of
from feed_assets.infer.first_texts import UTF_16_MARKS, FirstBytes, first_bytes_of, size_notes
from feed_assets.infer.sample_facts import RejectedRecords, Sample
from feed_assets.infer.text_table import TextTable

_BLANK = re.compile(r"[ \t\n\v\f\r]*")

NUMBER_LENGTH = 1000
"""Maximum number of characters of a number that Spark's parser accepts."""


class _Number(str):
    """A JSON number as the text in the file."""

    __slots__ = ()


_KINDS: Mapping[type, str] = {_Number: "numbers", str: "texts", bool: "booleans", dict: "objects", list: "arrays"}


def json_sample(files: Sequence[Path]) -> Sample:
    """Infer the columns of JSON lines. Raise InvalidName for files without objects, or with nested objects."""
    beginnings = first_bytes_of(files)
    rejects, numbers, kinds = RejectedRecords(), dict[str, int](), dict[str, set[str]]()
    with TextTable() as table:
        for place, line in _lines(beginnings):
            row = _object(line)
            if isinstance(row, str):
                rejects.add(place, row)
                continue
            _require(table, numbers, row)
            for name, value in row.items():
                kinds.setdefault(name, set()).add(_kind(value))
            texts = {f"c{numbers[name]}": _text(value) for name, value in row.items()}
            table.add(place, texts | {f"k{numbers[name]}": _kind(value) for name, value in row.items()})
        table.flush()
        if not numbers:
            raise InvalidName(f"{files[0]} has no JSON objects: expected one object per line. Correct the file.")
        facts = facts_of(table.database, "texts", [f"c{number}" for number in numbers.values()])
        columns = [
            _column(files[0], facts[f"c{number}"].column(name, keeps_digits=False), kinds[name] - {"null"})
            for name, number in numbers.items()
        ]
        records = table.records + rejects.count
        _count_other_kinds(table.database, rejects, columns, kinds)
    notes = [*rejects.notes(records), *size_notes(beginnings)]
    return Sample("json", tuple(columns), notes=tuple(notes), records=records, rejects=rejects.count)


def _lines(beginnings: Sequence[FirstBytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the non-blank lines, each with its place. Skip the last line of a file that was read only in part."""
    for each in beginnings:
        if each.data.startswith(UTF_16_MARKS):
            raise InvalidName(f"{each.file}: it is UTF-16: expected JSON in UTF-8. Have the producer write UTF-8.")
        if problem := encoding_problem(each.data, RFC_4180):
            raise InvalidName(f"{each.file}: {problem}.")
        lines = each.data.split(b"\n")
        for number, line in enumerate(lines if each.is_whole else lines[:-1], 1):
            if not _BLANK.fullmatch(line.decode("latin-1")):
                yield f"line {number} of {each.file}", line


def _object(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or the reason why a run would reject the line."""

    def without_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            raise _Rejected(f"the field {first_repeated(name for name, _ in pairs)} occurs twice")
        return row

    try:
        text = line.decode().removeprefix("\ufeff")
        row: Any = json.loads(
            text,
            object_pairs_hook=without_repeated,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_no_constant,
        )
        if "\\u" in text:
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return "not UTF-8"
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    except _Rejected as error:
        return str(error)
    except (ValueError, RecursionError):
        return "no JSON object"
    return cast("dict[str, Any]", row) if isinstance(row, dict) else "no JSON object"


class _Rejected(Exception):
    """A line is JSON, but a run would reject it."""


def _number(text: str) -> _Number:
    if len(text) > NUMBER_LENGTH or abs(float(text)) == float("inf"):
        raise _Rejected("a number that is too large for a double")
    return _Number(text)


def _no_constant(text: str) -> None:
    raise _Rejected(f"{text}, which is not JSON")


def _require(table: TextTable, numbers: dict[str, int], row: dict[str, Any]) -> None:
    """Give each new field of a record a number, and two columns of the table: for its text, and for its JSON type."""
    for name in row:
        if name not in numbers:
            numbers[name] = len(numbers)
            table.require([f"c{numbers[name]}", f"k{numbers[name]}"])


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null")


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str) else None


def _column(file: Path, column: InferredColumn, kinds: set[str]) -> InferredColumn:
    """Return a column whose type fits the JSON types of its values. A run does not convert between JSON types."""
    if nested := kinds & {"objects", "arrays"}:
        raise InvalidName(
            f"{file}: {column.name} has {min(nested)}, which a JSON feed cannot have: expected texts, numbers and "
            "booleans. Have the producer write flat columns, or write Parquet."
        )
    if len(kinds) > 1:
        both = " and ".join(sorted(kinds))
        return InferredColumn(
            column.name, "string", f"the values are {both}: a run rejects records whose value is not a text"
        )
    if kinds == {"texts"}:
        return column if column.kind in ("string", "date", "timestamp") else InferredColumn(column.name, "string")
    if kinds == {"numbers"}:
        return column if column.kind in ("bigint", "double", LONG_INTEGER) else InferredColumn(column.name, "double")
    return column


def _count_other_kinds(
    database: Any, rejects: RejectedRecords, columns: Sequence[InferredColumn], kinds: dict[str, set[str]]
) -> None:
    """Count the records that a run would reject because a column of texts has a value that is not a text."""
    mixed = [at for at, column in enumerate(columns) if len(kinds[column.name] - {"null"}) > 1]
    if not mixed:
        return
    is_other = " OR ".join(f"k{at} IN ('numbers', 'booleans')" for at in mixed)
    count, place = database.execute(f"SELECT count(*), arg_min(place, rowid) FROM texts WHERE {is_other}").fetchone()
    if count:
        rejects.add(place, f"{' or '.join(columns[at].name for at in mixed)} is not a text", count=count)

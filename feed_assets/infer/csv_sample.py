"""Inference from CSV files: dialect, columns, and the records that a run would reject."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from feed_assets.core import text_forms
from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.errors import InvalidName
from feed_assets.core.sql_text import literal
from feed_assets.feeds.local_files import csv_problem
from feed_assets.infer.columns import NULLS, InferredColumn, facts_of
from feed_assets.infer.csv_form import dialect_of, line_end_of
from feed_assets.infer.csv_header import refuse_names
from feed_assets.infer.csv_parser import CsvRecord, csv_records
from feed_assets.infer.first_texts import FirstBytes, encoding_of, first_bytes_of, size_notes
from feed_assets.infer.sample_facts import RejectedRecords, Sample
from feed_assets.infer.text_table import TextTable

_FORMS = {
    "bigint": text_forms.INTEGER,
    "double": text_forms.FRACTION,
    "boolean": text_forms.BOOLEAN,
    "date": text_forms.DAY,
    "timestamp": text_forms.TIMESTAMP,
}


def csv_sample(files: Sequence[Path]) -> Sample:
    """Infer the dialect and columns of CSV files. Raise InvalidName for unusable files, or files of different forms."""
    beginnings = first_bytes_of(files)
    encoding = encoding_of(beginnings)
    first = beginnings[0]
    dialect, names = dialect_of(first.file, first.text(encoding), encoding, is_whole=first.is_whole)
    if dialect.header:
        refuse_names(first.file, names)
    _refuse_others(files, names, dialect)
    rejects, broken = RejectedRecords(), list[tuple[str, list[str]]]()
    with TextTable() as table:
        columns = [f"c{number}" for number in range(len(names))]
        table.require(columns)
        for place, record in _records(beginnings, dialect):
            if problem := _problem(record, len(names)):
                rejects.add(place, problem)
                continue
            table.add(place, dict(zip(columns, (text or None for text in record.fields), strict=True)))
            if len(names) > 1 and any("\n" in text or "\r" in text for text in record.fields):
                broken.append((place, record.fields))
        table.flush()
        typed, null_value = _typed(table.database, names)
        records = table.records + rejects.count
    for place, fields in broken:
        if name := _swallowed(fields, typed, dialect.delimiter):
            rejects.add(place, f"{name} holds what looks like another record: an unclosed quote?")
    notes = [*rejects.notes(records), *size_notes(beginnings)]
    notes += ["some bytes are not UTF-8, so Latin-1 is a guess"] if encoding == "Latin-1" else []
    notes += [] if dialect.header else ["the files have no header: give the columns better names"]
    dialect = CsvDialect(dialect.delimiter, dialect.quote, encoding, dialect.header, null_value)
    return Sample("csv", typed, dialect, notes=tuple(notes), records=records, rejects=rejects.count)


def _refuse_others(files: Sequence[Path], names: Sequence[str], dialect: CsvDialect) -> None:
    """Raise InvalidName for a file that a run would refuse if the feed had the first file's columns and dialect."""
    for file in files:
        if problem := csv_problem(file, names, dialect):
            raise InvalidName(f"{file}: {problem}. Correct the file, or declare it by hand.")


def _records(beginnings: Sequence[FirstBytes], dialect: CsvDialect) -> Iterator[tuple[str, CsvRecord]]:
    """Yield the records of all files, each with its place. Skip headers."""
    for each in beginnings:
        text = each.text(dialect.encoding)
        records = csv_records(
            text, dialect.delimiter, dialect.quote, line_end=line_end_of(text), is_whole=each.is_whole
        )
        if dialect.header:
            next(records, None)
        for record in records:
            yield f"line {record.line} of {each.file}", record


def _problem(record: CsvRecord, count: int) -> str | None:
    """Return why a run would reject a record whatever the types of its columns. Return None otherwise."""
    if record.problem:
        return record.problem
    if len(record.fields) != count:
        return f"{len(record.fields)} field{'s' if len(record.fields) > 1 else ''}, expected {count}"
    if any("\ufffd" in text for text in record.fields):
        return "bytes of another encoding, or U+FFFD"
    return None


def _swallowed(fields: Sequence[str], columns: Sequence[InferredColumn], delimiter: str) -> str | None:
    """Return the name of a column whose text contains a line that looks like a whole record, otherwise None.

    A quote that is never closed makes one text of the records after it.
    """
    mark = re.escape(delimiter)
    decimals = dict.fromkeys((each.kind for each in columns if each.kind.startswith("decimal")), text_forms.DECIMAL)
    forms = _FORMS | decimals
    pieces = (f"(?:{forms[each.kind]})?" if each.kind in forms else rf"[^{mark}\r\n]*" for each in columns)
    record = re.compile(rf"[\r\n]{mark.join(pieces)}(?=[\r\n]|\Z)")
    return next((each.name for each, text in zip(columns, fields, strict=True) if record.search(text)), None)


def _typed(database: Any, names: Sequence[str]) -> tuple[tuple[InferredColumn, ...], str | None]:
    """Infer the columns of the table `texts`, and the text that means NULL.

    A text means NULL if more columns get a type other than string when this text is read as NULL. If there is no such
    text, return None in its place.
    """
    plain = _columns(database, "texts", names, [*range(len(names))])
    texts = [at for at, column in plain.items() if column.kind == "string"]
    for null in _nulls(database, texts):
        without = ", ".join(f"nullif(c{at}, {literal(null)}) AS c{at}" for at in texts)
        typed = _columns(database, f"(SELECT {without} FROM texts)", names, texts)
        better = {at: column for at, column in typed.items() if column.kind != "string"}
        if better:
            note = f"{null} is read as NULL in all columns"
            noted = {
                at: InferredColumn(each.name, each.kind, "; ".join(filter(None, (note, each.note))))
                for at, each in better.items()
            }
            return tuple((plain | noted).values()), null
    return tuple(plain.values()), None


def _nulls(database: Any, numbers: Sequence[int]) -> list[str]:
    """Return the possible texts for NULL that occur in the columns."""
    if not numbers:
        return []
    texts = f"SELECT unnest([{', '.join(f'c{number}' for number in numbers)}]) AS text FROM texts"
    nulls = ", ".join(literal(null) for null in NULLS)
    rows = database.execute(f"SELECT DISTINCT text FROM ({texts}) WHERE text IN ({nulls})").fetchall()
    return sorted((text for (text,) in rows), key=NULLS.index)


def _columns(database: Any, table: str, names: Sequence[str], numbers: Sequence[int]) -> dict[int, InferredColumn]:
    facts = facts_of(database, table, [f"c{number}" for number in numbers])
    return {at: facts[f"c{at}"].column(names[at], keeps_digits=True) for at in numbers}

"""Inference of a CSV file's delimiter, quote and header. Most records must have as many fields as the first record."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from feed_assets.core import text_forms
from feed_assets.core.csv_dialect import CsvDialect, Encoding
from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_files import csv_problem
from feed_assets.infer.columns import NULLS, WITH_COMMA
from feed_assets.infer.csv_parser import CsvRecord, count_quoted, csv_records

DELIMITERS = ("\t", ";", "|", ",")
"""Delimiters to try. If two fit equally well, the first one is chosen. The comma is last: many texts have commas."""

QUOTES = ('"', "'")

FORM_CHARACTERS = 1 << 20
"""Number of characters of a file from which its form is inferred."""

_VALUE = re.compile(f"{text_forms.FRACTION}|{WITH_COMMA}|{text_forms.BOOLEAN}|{text_forms.DAY}|{text_forms.TIMESTAMP}")
"""A pattern of texts that are values, and not the names of columns."""


@dataclass(frozen=True)
class _Candidate:
    """The first records of a file, parsed with one delimiter and one quote."""

    delimiter: str
    quote: str | None
    records: tuple[CsvRecord, ...]
    quoted: int

    @property
    def fields(self) -> int:
        """Return the number of fields of the first record."""
        return len(self.records[0].fields)

    @property
    def alike(self) -> int:
        """Return the number of other well-formed records with as many fields as the first record."""
        return sum(each.problem is None and len(each.fields) == self.fields for each in self.records[1:])

    @property
    def is_usual(self) -> bool:
        """Return whether most other records have as many fields as the first record."""
        return 2 * self.alike > len(self.records) - 1 or len(self.records) == 1


def line_end_of(text: str) -> Literal["\n", "\r"]:
    """Return CR if the first line ends with CR alone, as on old Macs. Otherwise return LF."""
    end = re.search(r"\r*\n|\r", text)
    return "\r" if end and end[0] == "\r" else "\n"


def dialect_of(file: Path, text: str, encoding: Encoding, *, is_whole: bool) -> tuple[CsvDialect, list[str]]:
    """Infer the dialect of a file, and the names of its columns, from its beginning.

    Raise InvalidName if the file has records with different numbers of fields, or lines before its header.
    """
    candidates = [*_candidates(text[:FORM_CHARACTERS], is_whole=is_whole and len(text) <= FORM_CHARACTERS)]
    if not candidates:
        raise InvalidName(f"{file} has only blank lines: expected a file with records. Leave it out.")
    form = _chosen(file, candidates, encoding)
    has_header = _has_header(form)
    first = form.records[0].fields
    names = first if has_header else [f"column_{number}" for number in range(1, form.fields + 1)]
    return CsvDialect(form.delimiter, form.quote, encoding, has_header), names


def _candidates(text: str, *, is_whole: bool) -> Iterator[_Candidate]:
    """Yield the candidates for each delimiter.

    The quote `'` is tried only if a field is quoted with `'`. Reading without a quote is tried only if no field is
    quoted with `"`.
    """
    end = line_end_of(text)
    for delimiter in DELIMITERS:
        counts = {quote: count_quoted(text, delimiter, quote) for quote in QUOTES}
        quotes = ['"', *(["'"] if counts["'"] else []), *([] if counts['"'] else [None])]
        for quote in quotes:
            records = (*csv_records(text, delimiter, quote, line_end=end, is_whole=is_whole),)
            if any(field.strip() for each in records for field in each.fields):
                yield _Candidate(delimiter, quote, records, counts.get(quote or "", 0))


def _chosen(file: Path, candidates: Sequence[_Candidate], encoding: Encoding) -> _Candidate:
    usual = [each for each in candidates if each.is_usual]
    is_tabs = ".tsv" in [suffix.lower() for suffix in file.suffixes]
    of_many = [each for each in usual if each.fields > 1]
    if of_many:
        return max(of_many, key=lambda each: (is_tabs and each.delimiter == "\t", each.alike, each.quoted))
    best = max(candidates, key=lambda each: (each.fields > 1, each.alike))
    dialect = CsvDialect(best.delimiter, best.quote, encoding)
    if problem := csv_problem(file, best.records[0].fields, dialect):
        raise InvalidName(f"{file}: {problem}.")
    _refuse_lines_before(file, candidates)
    if best.fields > 1:
        _refuse_uneven(file, best)
    return max(reversed(usual or candidates), key=lambda each: (each.alike, each.quoted, each.quote is not None))


def _refuse_lines_before(file: Path, candidates: Sequence[_Candidate]) -> None:
    """Raise InvalidName if most records have several fields but the first record has only one."""
    for each in candidates:
        well_formed = [record for record in each.records[1:] if record.problem is None]
        ((count, times),) = Counter(len(record.fields) for record in well_formed).most_common(1) or [(0, 0)]
        if each.fields == 1 < count and 2 * times > len(each.records) - 1:
            before = next(record.line for record in well_formed if len(record.fields) == count) - 1
            lines = "there is 1 line" if before == 1 else f"there are {before} lines"
            raise InvalidName(f"{file}: {lines} before its header: expected none. Have the producer write none.")


def _refuse_uneven(file: Path, form: _Candidate) -> None:
    """Raise InvalidName for a record with another number of fields than the first record."""
    for record in form.records[1:]:
        count = len(record.fields)
        if record.problem or count != form.fields:
            why = record.problem or f"{count}"
            has = f"line {record.line} has {why}"
            raise InvalidName(
                f"{file}: its first line has {form.fields} fields, and {has}: expected equal numbers, but "
                f"{len(form.records) - 1 - form.alike} of {len(form.records) - 1} differ. Correct the file, or "
                "declare it by hand."
            )


def _has_header(form: _Candidate) -> bool:
    """Return whether the first record names the columns.

    It does so if none of its fields looks like a value. It also does so if a column has values, such as numbers or
    dates, in all records except the first.
    """
    first, count = form.records[0].fields, form.fields
    rows = [each.fields for each in form.records[1:] if len(each.fields) == count]
    for name, column in zip(first, zip(*rows, strict=True), strict=False):
        texts = [text for text in column if text and text not in NULLS]
        is_name = name and name not in NULLS and not _VALUE.fullmatch(name)
        if is_name and texts and all(map(_VALUE.fullmatch, texts)):
            return True
    return not any(map(_VALUE.fullmatch, first))

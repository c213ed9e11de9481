"""Records of CSV files as they stand, from which a person sees why no feed can have them."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from feed_assets.core.csv_dialect import Encoding
from feed_assets.core.errors import InvalidName
from feed_assets.feeds.local_files import open_text

_DELIMITERS = ",;\t|"
_CODECS = {"UTF-8": "utf-8-sig", "UTF-16": "utf-16", "Latin-1": "latin-1"}


def refuse_blank(file: Path, encoding: Encoding) -> None:
    """Raise InvalidName for a file without any text."""
    if not any(field.strip() for _, fields in _records(file, encoding, ",", '"') for field in fields):
        raise InvalidName(f"{file} has blank lines only: expected a file with records. Leave it out.")


def refuse_uneven(file: Path, encoding: Encoding, quote: str) -> None:
    """Raise InvalidName where the first line has several fields by some delimiter, and another line another number."""
    for delimiter in _DELIMITERS:
        records = _records(file, encoding, delimiter, quote)
        count = len(next(records, (1, list[str]()))[1])
        others = ((line, len(fields)) for line, fields in records if fields and len(fields) != count)
        line, other = next(others, (0, 0))
        if count > 1 and (other > 1 or (other and delimiter == ",")):
            raise InvalidName(
                f"{file}: its first line has {count} fields, and line {line} has {other}: expected as many in each "
                "line. Correct the file, or declare it by hand."
            )


def refuse_names(file: Path, encoding: Encoding, delimiter: str, quote: str) -> None:
    """Raise InvalidName for a header where a name is missing or stands twice: Spark does not tell `a` from `A`."""
    _, names = next(_records(file, encoding, delimiter, quote), (1, list[str]()))
    first: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InvalidName(
                f"{file}: its header has no name for column {number}: expected one for each column. Have the producer "
                "name it."
            )
        if (same := first.setdefault(name.lower(), name)) != name:
            raise InvalidName(
                f"{file}: its header has {same} and {name}: expected names that differ by more than upper and lower "
                "case. Have the producer rename one."
            )
        if names.index(name) < number - 1:
            raise InvalidName(
                f"{file}: its header has the name {name} twice: expected each name once. Have the producer rename one."
            )


def _records(file: Path, encoding: Encoding, delimiter: str, quote: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the records with the number of their last line, up to one that is no CSV."""
    with open_text(file, _CODECS[encoding], errors="replace") as text:
        reader = csv.reader(text, delimiter=delimiter, quotechar=quote)
        with suppress(csv.Error):
            for fields in reader:
                yield reader.line_num, fields

"""The form of a feed's CSV files: RFC 4180, or another dialect that its producer writes."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Annotated, Any, Literal

from feed_assets.core.argument_types import rule
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.limits import READ_BYTES
from feed_assets.core.packed import packing_problem
from feed_assets.core.typed import typed

Encoding = Literal["UTF-8", "UTF-16", "Latin-1"]
"""Supported encodings of CSV files. UTF-16 must have a byte order mark, which shows the byte order."""

CODECS: Mapping[Encoding, str] = {"UTF-8": "utf-8", "UTF-16": "utf-16", "Latin-1": "latin-1"}
"""Python's names of the encodings."""

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters to try if the declared one does not occur."""

HEAD_BYTES = 65_536
"""Number of bytes at the beginning of a file that are checked. If they contain no line end, more bytes are checked."""

LINE_END_BYTES = 6
"""Number of bytes of CR CR LF in UTF-16. A line end closer to the end of the data may be cut off."""

_QUOTED = re.compile(r'(?:\A|(?<=,))"[^"]*+(?:""[^"]*+)*+"(?=,|\r?\n?\Z)')
_AFTER_BLANKS = re.compile(r'[ \t]+"')

_UNMARKED_UTF_16 = re.compile(rb"(?:[ -~]\0){2}|(?:\0[ -~]){2}")

SHORT = 4
"""A message about a header with at most this many columns does not list the differences: a person sees them at once."""

_OTHER_FORMATS = {b"PAR1\x15": "Parquet", b"PK\x03\x04": "a ZIP archive, as Excel writes"}
"""Other formats, by the first bytes of their files. No text begins with these bytes."""
_BOMS: Mapping[bytes, Encoding] = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def _is_delimiter(text: str) -> bool:
    return _is_character(text) and not text.isalnum() and text not in "\"'\\"


def _is_character(text: str) -> bool:
    """Return whether a text is one character (also in Java, whose characters have 16 bits) and not a line end."""
    return len(text) == 1 and "\0" < text < "\ufdd0" and text not in "\r\n\ufeff"


Delimiter = Annotated[
    str, rule(_is_delimiter, r"one character that is not a letter, digit, quote or line end, such as ';' or '\t'")
]
"""The character between two fields."""

Quote = Annotated[
    str, rule(lambda text: _is_character(text) and not text.isalnum(), "one character such as '\"', or None")
]
"""The character around a field that holds delimiters or line breaks. Inside the field it is doubled."""

NullValue = Annotated[
    str, rule(lambda text: text and text.isprintable(), r"a text without control characters, such as '\N' or 'NULL'")
]
"""A text that means NULL."""


@typed
@dataclass(frozen=True)
class CsvDialect:
    """The form in which a producer writes CSV. The defaults are RFC 4180.

    Args:
        delimiter: The character between two fields.
        quote: The character around fields that need quoting. None if fields are never quoted, so quotes are plain text.
        encoding: `UTF-8`, `UTF-16` (with a byte order mark) or `Latin-1`.
        header: Whether the first record names the columns.
        null_value: A text that means NULL, quoted or not. An empty field always means NULL.
    """

    delimiter: Delimiter = ","
    quote: Quote | None = '"'
    encoding: Encoding = "UTF-8"
    header: bool = True
    null_value: NullValue | None = None

    @property
    def non_defaults(self) -> dict[str, Any]:
        """Return the options that are not the defaults, by name."""
        return {name: value for name, value in asdict(self).items() if value != getattr(RFC_4180, name)}

    def check(self, feed: object, form: str) -> "CsvDialect | None":
        """Return this dialect for a feed whose format is `form`. Return None if the dialect is RFC 4180.

        Raise InvalidDefinition if options contradict each other or the format.
        """
        if not self.non_defaults:
            return None
        if form != "csv":
            name, value = next(iter(self.non_defaults.items()))
            raise InvalidDefinition(
                f"{feed} is {form} and has {name}={value!r}, which only CSV has: expected format='csv', or none of "
                f"{', '.join(asdict(self))}."
            )
        if self.delimiter == self.quote:
            raise InvalidDefinition(
                f"{feed}: `delimiter` and `quote` are both {self.quote!r}: expected two characters."
            )
        if self.null_value and {self.delimiter, self.quote} & {*self.null_value}:
            raise InvalidDefinition(
                f"{feed}: null_value {self.null_value!r} contains the delimiter or the quote: expected another text."
            )
        return self


RFC_4180 = CsvDialect()


def first_bytes(read: Callable[[int], bytes]) -> bytes:
    """Return the beginning of a file, including its whole first line. `read(n)` returns up to n bytes from the start.

    Raise ValueError if the first line is longer than `READ_BYTES`. Even a small packed file may unpack to such a line.
    """
    for size in (HEAD_BYTES, READ_BYTES + 1):
        data = read(size)
        looked_at = data[:-LINE_END_BYTES]
        if len(data) < size or b"\n" in looked_at or b"\r" in looked_at:
            return data
    raise ValueError(f"a line has more than {READ_BYTES} characters: expected at most that many")


@dataclass(frozen=True)
class Beginning:
    """Findings from the first bytes of a CSV file.

    Attributes:
        problem: The reason why a run cannot read the file as declared. None if it can.
        line_end: `\\r` if the first record ends with CR alone, as on old Macs; otherwise `\\n`.
    """

    problem: str | None = None
    line_end: Literal["\n", "\r"] = "\n"


def beginning_of(data: bytes, names: Sequence[str], dialect: CsvDialect = RFC_4180) -> Beginning:
    """Compare the first bytes of a file with its declaration: encoding, header, delimiter.

    Args:
        data: The first bytes, unpacked; they hold all of the first record.
        names: The columns of the schema, in order.
        dialect: The declared form.

    Returns:
        The problem that was found, and the line end.
    """
    if problem := encoding_problem(data, dialect):
        return Beginning(problem)
    text = data.decode(CODECS[dialect.encoding], errors="replace").removeprefix("\ufeff").lstrip("\n")
    line_end = _line_end(text, dialect)
    if line_end == "\r\r\n":
        return Beginning(
            "its lines end with CR CR LF, which Python's csv module writes into text files on Windows: have the "
            "producer open the file with `newline=''`"
        )
    if line_end == "\r" and "\n" in _outside_quotes(text, dialect):
        return Beginning(
            "its first record ends with CR alone, and others end with LF: expected the same line end everywhere. Have "
            "the producer end all lines with LF, or all with CR LF"
        )
    try:
        fields = next(_reader(text, dialect), list[str]())
    except csv.Error as error:
        cure = "have the producer close each quote, and double those within a name"
        return Beginning(f"its header is not valid CSV: {error}: {cure}" if dialect.header else None, line_end)
    problem_of = _header_problem if dialect.header else _no_header_problem
    return Beginning(problem_of(fields, names, dialect), line_end)


def misplaced_quote(record: str) -> str | None:
    """Describe a misplaced quote in a record, in the words that runs use for rejects. Return None if there is none.

    Text after a closing quote is not described here, because the parser reports it.
    """
    fields = _QUOTED.sub("", record).split(",")
    if any(_AFTER_BLANKS.match(field) for field in fields):
        return "blanks before an opening quote"
    if any('\\"' in field for field in fields):
        return 'a backslash before a quote: expected "" for a quote'
    if any(field.count('"') % 2 for field in fields):
        return "a quote within a field that is not in quotes"
    return None


def encoding_problem(data: bytes, dialect: CsvDialect) -> str | None:
    """Return why the first bytes of a file cannot be in the declared encoding. Return None if they can."""
    if problem := packing_problem("", data, len(data)):
        return problem
    if form := next((form for mark, form in _OTHER_FORMATS.items() if data.startswith(mark)), None):
        return f"it is {form}: expected CSV"
    if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return f"it is UTF-32: expected {dialect.encoding}. Have the producer write UTF-8"
    marked = next((encoding for mark, encoding in _BOMS.items() if data.startswith(mark)), None)
    if marked and marked != dialect.encoding:
        return f"it begins with the byte order mark of {marked}: {_declare('encoding', marked)}"
    if dialect.encoding == "UTF-16" and not marked:
        return "it has no byte order mark of UTF-16 (FF FE or FE FF): have the producer write one, or UTF-8"
    if not marked and _UNMARKED_UTF_16.match(data):
        return "it looks like UTF-16 without a byte order mark: have the producer write one, or UTF-8"
    return None


def _line_end(text: str, dialect: CsvDialect) -> Literal["\n", "\r", "\r\r\n"]:
    """Return the line end of the first record: CR, LF or CR CR LF. CR LF, or no line end, counts as LF."""
    quote = re.escape(dialect.quote or "")
    in_quotes = rf"|{quote}[^{quote}]*{quote}" if quote else ""
    match = re.match(rf"(?>(?:[^{quote}\r\n]{in_quotes})+)(\r\r\n|\r(?!\n|\Z))", text)
    return "\n" if match is None else "\r" if match[1] == "\r" else "\r\r\n"


def _outside_quotes(text: str, dialect: CsvDialect) -> str:
    quote = re.escape(dialect.quote or "")
    return re.sub(rf"{quote}[^{quote}]*(?:{quote}|\Z)", "", text) if quote else text


def _reader(text: str, dialect: CsvDialect) -> Iterator[list[str]]:
    lines, quoting = StringIO(text, newline=""), csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
    quote = dialect.quote or None
    return csv.reader(lines, delimiter=dialect.delimiter, quotechar=quote, quoting=quoting, strict=True)


def _header_problem(fields: Sequence[str], names: Sequence[str], dialect: CsvDialect) -> str | None:
    if _is_alike(fields, names):
        return None
    if not any(fields):
        return f"its first line is blank: expected the header {dialect.delimiter.join(names)}"
    if hint := _other_delimiter(fields, names, dialect, "the header"):
        return hint
    bare = [field.strip(" \t") for field in fields]
    if fields != bare and _is_alike([_without_quotes(field, dialect.quote) for field in bare], names):
        header = dialect.delimiter.join(fields)
        return f"its header has blanks before or after names: found `{header}`. Have the producer write none"
    for quote in sorted({'"', "'"} - {dialect.quote}):
        if _is_alike([_without_quotes(field.strip(), quote) for field in fields], names):
            return f"the names in its header are quoted with {quote}: {_declare('quote', quote)}"
    expected, header_text = dialect.delimiter.join(names), dialect.delimiter.join(fields)
    is_data = not {*map(str.lower, names)} & {*map(str.lower, fields)}
    hint = f"; if the file has no header, {_declare('header', False)}" if is_data else ""
    return f"its header is {header_text}: expected {expected}{_differences(fields, names)}{hint}"


def _without_quotes(field: str, quote: str | None) -> str:
    return field.removeprefix(quote).removesuffix(quote) if quote else field


def _differences(fields: Sequence[str], names: Sequence[str]) -> str:
    """Describe where a long header differs. Return an empty text for a short header."""
    if max(len(fields), len(names)) <= SHORT:
        return ""
    if len(fields) != len(names):
        lacking, further = _not_in(fields, names), _not_in(names, fields)
        phrases = [f"lacking {', '.join(lacking)}"] * bool(lacking)
        phrases += [f"not expected {', '.join(further)}"] * bool(further)
        return f" ({'; '.join([f'{len(fields)} names, expected {len(names)}', *phrases])})"
    pairs = enumerate(zip(fields, names, strict=True), 1)
    wrong = [f"column {at} is {field}, expected {name}" for at, (field, name) in pairs if field.lower() != name.lower()]
    return f" ({'; '.join(wrong)})"


def _not_in(other_names: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are not in `other_names`, ignoring case."""
    lower = {*map(str.lower, other_names)}
    return [name for name in names if name.lower() not in lower]


def _no_header_problem(fields: Sequence[str], names: Sequence[str], dialect: CsvDialect) -> str | None:
    if _is_alike(fields, names):
        return f"its first record names the columns: {_declare('header', True)}"
    return _other_delimiter(fields, names, dialect, "the first record")


def _other_delimiter(fields: Sequence[str], names: Sequence[str], dialect: CsvDialect, where: str) -> str | None:
    """Return a hint if the record has a single field that another delimiter would split."""
    if len(fields) != 1 or len(names) == 1:
        return None
    counts = {each: fields[0].count(each) for each in DELIMITERS if each != dialect.delimiter}
    expected_count = len(names) - 1
    delimiter = max(counts, key=lambda each: (counts[each] == expected_count, counts[each]))
    if not counts[delimiter] or (not dialect.header and counts[delimiter] != expected_count):
        return None
    times = f"{counts[delimiter]} time{'s' * (counts[delimiter] != 1)}"
    escaped = repr(delimiter)[1:-1]
    return f"found one column; {where} contains `{escaped}` {times}: {_declare('delimiter', delimiter)}"


def _is_alike(fields: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether the names are equal, ignoring case as Spark does."""
    return [*map(str.lower, fields)] == [*map(str.lower, names)]


def _declare(option: str, value: object) -> str:
    return f"declare `{option}={value!r}`"

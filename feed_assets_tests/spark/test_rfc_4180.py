"""Random CSV files are read like a small parser of RFC 4180 reads them, byte by byte, or their records are rejected."""

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.spark.input_frames import read
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.rfc_4180 import Parsed, parse
from feed_assets_tests.support.spark_updates import put_update

FILES = 120
PIECES = [*("a", "b", "7", " ", "\t", "é", "日", "\\", "'", "\0", "\f", "\ufffd"), *[","] * 6, *['"'] * 7, *['""'] * 2]
ENDS = ["\n", "\r\n", "\r", "\n", "\r\n"]


def _content(chance: random.Random, columns: int, dialect: CsvDialect) -> str:
    """Return records of random characters and of well-formed fields, with equal or mixed line ends."""
    end = chance.choice(["\n", "\r\n", None])
    text = ""
    for _ in range(chance.randrange(1, 8)):
        if chance.random() < 0.4:
            text += "".join(chance.choice([*PIECES, chance.choice(ENDS)]) for _ in range(chance.randrange(10)))
        else:
            text += ",".join(_field(chance) for _ in range(columns))
        text += end or chance.choice(ENDS)
    if chance.random() < 0.3:
        text = text.rstrip("\r\n")
    return text.translate({ord(","): dialect.delimiter, ord('"'): dialect.quote or '"'})


def _field(chance: random.Random) -> str:
    text = "".join(chance.choice([*PIECES[:10], ",", '"', *ENDS]) for _ in range(chance.randrange(6)))
    is_bare = not re.search(r'[",\r\n\0]', text)
    return text if is_bare and chance.random() < 0.7 else '"' + text.replace('"', '""').replace("\0", "") + '"'


def _is_rejected(record: Parsed, columns: int, dialect: CsvDialect) -> bool:
    d = re.escape(dialect.delimiter)
    runs_on = rf"[\r\n](?:[^{d}\r\n]*{d}){{{columns - 1}}}[^{d}\r\n]*(?:[\r\n]|\Z)"
    return bool(record.problems) or any(
        "\ufffd" in text or (columns > 1 and re.search(runs_on, text)) for text in record.fields
    )


DIALECTS = {
    "commas": RFC_4180,
    "semicolons": CsvDialect(delimiter=";"),
    "tabs and apostrophes": CsvDialect(delimiter="\t", quote="'"),
    "no quotes": CsvDialect(delimiter="|", quote=None),
    "UTF-16": CsvDialect(encoding="UTF-16"),
    "no header": CsvDialect(header=False),
    "NULL as a": CsvDialect(null_value="a"),
    "a delimiter of two bytes": CsvDialect(delimiter="§"),
}


CASES = [
    *(pytest.param(RFC_4180, columns, id=f"{columns} columns") for columns in (1, 70)),
    *(
        pytest.param(each, columns, id=f"{name}, {columns} columns")
        for name, each in DIALECTS.items()
        for columns in (2, 3)
    ),
]


@each_case(("dialect", "columns"), CASES)
def test_files_of_anything_are_read_as_rfc_4180_has_them_or_rejected(spark, local_board, dialect, columns):
    chance = random.Random(f"{dialect}{columns}")  # noqa: S311 (choices of a test)
    header = dialect.delimiter.join(f"c{n}" for n in range(columns))
    codec = {"UTF-16": "utf-16"}.get(dialect.encoding, "utf-8")
    files = {}
    for number in range(FILES):
        end = chance.choice(["\n", "\r\n"])
        mark = chance.choice(["", "\ufeff"]) if codec == "utf-8" else ""
        content = _content(chance, columns, dialect)
        if not dialect.header:  # The first record shows that the file is of this form.
            content = "x" + "y".join([dialect.delimiter] * (columns - 1)) + end + content
        files[f"{number:03d}.csv"] = mark + (header + end if dialect.header else ""), content
    update = put_update(local_board, {name: (first + text).encode(codec) for name, (first, text) in files.items()})
    schema = ", ".join(f"c{n} string" for n in range(columns))
    found = defaultdict(list)
    for row in read(spark, local_board, [update], "csv", schema, dialect=dialect).collect():
        found[Path(row["_file"]).name].append((tuple(row)[:columns], row["_raw"], bool(row["_reasons"])))
    clean = 0
    for name, (_, text) in files.items():
        expected = [*parse(text, columns, dialect.delimiter, dialect.quote)]
        rows = found[name]
        assert [raw for _, raw, _ in rows] == [each.raw for each in expected], (name, text)
        for (values, raw, is_rejected), record in zip(rows, expected, strict=True):
            assert is_rejected == _is_rejected(record, columns, dialect), (name, raw, record)
            if not is_rejected:
                clean += 1
                nulls = ("", dialect.null_value)
                assert values == tuple(None if each in nulls else each for each in record.fields), (name, raw)
    assert clean > FILES / 2

"""Generated texts: the reader agrees with the first, slow implementation in values and reasons."""

from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from feed_assets.spark.input_frames import ddl, read
from feed_assets.spark.parse import column
from feed_assets.spark.urls import escaped, spark_path
from feed_assets_tests.spark.strictly import read_strictly
from feed_assets_tests.support.spark_updates import put_update

ROWS = 4_000
KINDS = (
    *("string", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,18)"),
    *("boolean", "date", "timestamp", "timestamp_ntz"),
)
FINE = ["a", *["7"] * 8, "true", "2019-11-24", "2019-11-24 00:01:03Z", "2019-11-24 00:01:03"]
NOTHING = [""] * 40
ODD = [
    "",
    " ",
    "\t",
    "\x1f",
    "\x7f",
    "\u00a0",
    "\u2003",
    "\ufeff",
    "\u0663",
    "\uff17",
    "\U0001d7ce",
    "é",
    "\ufffd",
    "+",
    "-",
    "_",
]
DIGITS = ["0", "7", "00", "12", "127", "128", "32768", "2147483648", "9223372036854775808", "9" * 40]
NUMBERS = [
    *DIGITS,
    ".",
    "1.5",
    "1.50",
    "1.555",
    "e3",
    "E-3",
    "e999",
    "e-999",
    "d",
    "f",
    "L",
    "NaN",
    "Infinity",
    "inf",
    "0x1p3",
]
DAYS = [
    "2019-11-24",
    "2020-02-29",
    "2019-02-29",
    "2019-3-31",
    "0000-01-01",
    "0001-01-01",
    "1582-10-10",
    "9999-12-31",
    "12019-01-01",
]
TIMES = ["00:01:03", "02:30:00", "24:00:00", "23:59:60", "1:02:03", "00:01", "23:59:59"]
FRACTIONS = ["", ".", ".5", ".979311", ".9793110", ".0000001", ".٣"]
OFFSETS = [
    "",
    "Z",
    "z",
    "+00:00",
    "-00:00",
    "+0530",
    "-05",
    "+14:00",
    "+18:01",
    "+25:00",
    "+5:30",
    " UTC",
    "UTC",
    "Europe/Berlin",
    "+00:00:01",
]
WORDS = ["true", "FALSE", "tRuE", "t", "yes", "1", "null", "NULL", "now", "epoch", "#", "a,b", 'a"b', "'", "\\"]


class Choices:
    """Return pseudo-random choices that are the same in each test run."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def number(self, below: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % below

    def of(self, options: Sequence[str]) -> str:
        return options[self.number(len(options))]


def _moment(choices: Choices) -> str:
    parts = (DAYS, [" ", "T", " ", "T", "t", "  ", ""], TIMES, FRACTIONS, OFFSETS)
    return "".join(choices.of(part) for part in parts)


def _text(choices: Choices) -> str:
    """Return a text of some type, or nearly: with a sign, padding, or an odd character."""
    one, other = choices.of(NUMBERS), choices.of(NUMBERS)
    text = choices.of(
        [_moment(choices), _moment(choices), choices.of(DAYS), choices.of(WORDS), one, one, one + other, one + other]
    )
    at = choices.number(len(text) + 1)
    return text[:at] + choices.of([*NOTHING, *ODD, "\n"]) + text[at:]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(odd in text for odd in ',"\r\n') else text


def _records(choices: Choices, width: int) -> Iterator[str]:
    """Return rows with texts for any type in all columns, and rows with one odd column."""
    for number in range(ROWS):
        odd = range(width) if number % 4 == 0 else [choices.number(width)]
        row = ",".join(_quoted(_text(choices)) if at in odd else FINE[at] for at in range(width))
        yield row.lstrip("\ufeff")


def _told(frame: DataFrame, kinds: dict[str, str]) -> list[tuple[object, ...]]:
    """Compare values as text, as in Python NaN differs from itself, and time zones apply."""
    shown = [
        sf.date_format(column(name), "G yyyy-MM-dd HH:mm:ss.SSSSSS") if kind.startswith("timestamp") else
        column(name).cast("string") for name, kind in kinds.items()
    ]  # fmt: skip
    return [tuple(row) for row in frame.select(*shown, "_reasons").collect()]


def _both(spark, board, content: str, kinds: dict[str, str], required: list[str]):
    update = put_update(board, {"part.csv": content.encode(errors="surrogateescape")})
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    paths = [escaped(spark_path(board.url, file.key)) for file in update.files]
    found = read(spark, board, [update], "csv", schema, required=required)
    expected = read_strictly(spark, paths, ddl(spark, schema), required)
    return _told(found, kinds), _told(expected, kinds)


def _agree(found, expected):
    assert len(found) == len(expected)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_values_and_reasons_are_those_of_the_first_implementation(spark, local_board, seed):
    choices = Choices(seed)
    kinds = {f"c{number}": kind for number, kind in enumerate(KINDS)}
    content = ",".join(kinds) + "\n" + "\n".join(_records(choices, len(kinds))) + "\n"
    found, expected = _both(spark, local_board, content, kinds, ["c0", "c3"])
    assert len(found) == ROWS
    _agree(found, expected)
    for at, name in enumerate(kinds):  # The generator gives each type both what it takes and what it does not.
        assert len({row[at] for row in found}) > 2, name
        assert any(f"{name}: " in why for row in found for why in row[-1]), name


def test_cached_columns_serve_two_reads_in_one_query(spark, local_board):
    """Columns are kept by session, schema and what is required: nothing of one read shows in another."""
    updates = [put_update(local_board, {"part.csv": f"id,name\n{text}\n"}) for text in ("1,a", ",b")]
    told = [
        read(spark, local_board, [at], "csv", "id int, name string", required=required).select("id", "name", "_reasons")
        for at, required in ((updates[0], ["id"]), (updates[1], ["id"]), (updates[1], []))
    ]
    assert [frame.collect() for frame in told] == [[(1, "a", [])], [(None, "b", ["id: missing"])], [(None, "b", [])]]
    assert told[0].crossJoin(told[2]).collect() == [(1, "a", [], None, "b", [])]

"""CSV dialects: valid declarations, and what the first bytes of a file reveal."""

import bz2
import gzip
import lzma
from dataclasses import replace
from datetime import date

import dagster as dg
import pytest

from feed_assets import ForeignFeedsComponent, PartnerComponent, Pull, foreign_feed
from feed_assets.core.csv_dialect import (
    HEAD_BYTES,
    RFC_4180,
    CsvDialect,
    beginning_of,
    first_bytes,
    misplaced_quote,
)
from feed_assets.core.errors import InvalidDefinition, UnreadableUpdate
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.declare.declarations import declaration_of, specs_of
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.runs.file_schema import check_file
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.sources.glue import GlueTable
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.rfc_4180 import parse

SCHEMA = "id int, name string"


@each_case(
    ("options", "says"),
    [
        ({"delimiter": "||"}, r"delimiter is '||' (str), expected one character that is not a letter, digit, quote"),
        ({"delimiter": "x"}, "expected one character that is not a letter"),
        ({"delimiter": "\n"}, "expected one character that is not a letter"),
        ({"quote": "ab"}, "quote is 'ab' (str), expected one character such as"),
        ({"encoding": "cp1252"}, "expected 'UTF-8', 'UTF-16' or 'Latin-1'"),
        ({"header": 0}, "header is 0 (int), expected bool"),
        ({"null_value": ""}, "expected a text without control characters"),
        ({"null_value": "\x85"}, "expected a text without control characters"),
        ({"null_value": "a,b"}, "null_value 'a,b' contains the delimiter or the quote"),
        ({"delimiter": "|", "quote": "|"}, "`delimiter` and `quote` are both '|': expected two characters"),
        ({"delimiter": ";", "format": "json"}, "is json and has delimiter=';', which only CSV has: expected"),
        ({"header": False, "format": "parquet"}, "is parquet and has header=False, which only CSV has"),
    ],
)
def test_an_impossible_csv_dialect_is_refused_at_declaration(options, says):
    with pytest.raises(InvalidDefinition) as raised:
        foreign_feed("shop/orders/v1.0", schema=SCHEMA, **options)
    assert says in str(raised.value)


def test_a_declaration_keeps_its_csv_dialect_and_rfc_4180_is_the_default():
    declared = foreign_feed("shop/orders/v1.0", schema=SCHEMA, delimiter=";", null_value="\\N")
    assert Input(declared).source("raw").dialect == CsvDialect(delimiter=";", null_value="\\N")
    assert Input(foreign_feed("shop/orders/v1.0", schema=SCHEMA)).source("raw").dialect is None


def test_a_changed_dialect_or_move_to_deps_changes_the_recipe():
    def digest(**options: object) -> str:
        source = Input(foreign_feed("shop/orders/v1.0", schema=SCHEMA, **options)).source("raw")
        return Recipe(Feed.parse("shop/clean/v1.0"), (source,), print).digest

    plain = Recipe(
        Feed.parse("shop/clean/v1.0"), (RecipeInput("raw", Feed.parse("shop/orders/v1.0"), "csv", SCHEMA),), print
    )
    moved = replace(plain, sources=(replace(plain.sources[0], is_handed=False),))
    assert digest() == digest(delimiter=",") == plain.digest != moved.digest
    assert len({digest(), digest(delimiter=";"), digest(header=False), digest(null_value="x")}) == 4


@each_case("level", ["feed", "partner"])
def test_yaml_declares_csv_dialects_like_python(level):
    written = {"delimiter": ";", "quote": None, "encoding": "Latin-1", "header": False, "null_value": "\\N"}
    feed = {"feed": "shop/orders/v1.0", "schema": SCHEMA, **written}
    if level == "feed":
        component = ForeignFeedsComponent(start_date="2026-01-01", feeds=[feed])
    else:
        pull = Pull("women", "%Y-%m-%d/%H/*.csv")
        component = PartnerComponent.model_validate(
            {**feed, "start": date(2026, 1, 1), "intake": pull, "format": "csv"}
        )
    (spec,) = specs_of(component.build_defs(dg.ComponentTree.for_test().load_context))
    assert declaration_of(spec).dialect == CsvDialect(**written)


def test_a_wrong_csv_dialect_in_yaml_has_the_same_error():
    feed = {"feed": "shop/orders/v1.0", "schema": SCHEMA, "delimiter": "::"}
    component = ForeignFeedsComponent(start_date="2026-01-01", feeds=[feed])
    with pytest.raises(InvalidDefinition, match=r"delimiter is '::' .* expected one character that is not a letter"):
        component.build_defs(dg.ComponentTree.for_test().load_context)


def test_a_published_file_must_match_its_dialect(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("id;name\n1;é\n".encode("latin-1"))
    check_file(file, "csv", SCHEMA, CsvDialect(delimiter=";", encoding="Latin-1"))
    with pytest.raises(UnreadableUpdate, match=r"a\.csv: found one column; the header contains `;` 1 time: declare"):
        check_file(file, "csv", SCHEMA)
    with gzip.open(tmp_path / "a.csv.gz", "wb") as packed:
        packed.write(b"id;name\n")
    with pytest.raises(UnreadableUpdate, match="found one column"):
        check_file(tmp_path / "a.csv.gz", "csv", SCHEMA)
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(b"id,name\n")[:-1])
    with pytest.raises(UnreadableUpdate, match=r"a\.csv\.bz2: it is cut short, or something follows it"):
        check_file(tmp_path / "a.csv.bz2", "csv", SCHEMA)
    (tmp_path / "a.json").write_bytes(lzma.compress(b"{}"))
    with pytest.raises(UnreadableUpdate, match="it is packed by xz, which Spark does not read"):
        check_file(tmp_path / "a.json", "json", SCHEMA)


def test_a_table_in_glue_is_read_as_its_feed_declares():
    table = GlueTable("t", SCHEMA, "csv", ("date",), "s3://lake/t/", CsvDialect(delimiter=";", header=False))
    described = table.described("s3://lake/t/1/")
    assert described["SerdeInfo"]["Parameters"] == {"separatorChar": ";", "quoteChar": '"'}
    assert "skip.header.line.count" not in described["Parameters"]


UTF_16, LATIN_1, BARE = CsvDialect(encoding="UTF-16"), CsvDialect(encoding="Latin-1"), CsvDialect(header=False)


@each_case(
    ("data", "dialect", "problem"),
    [
        (b"id,name\n1,a\n", RFC_4180, None),
        (b"PAR1\x15\x04", RFC_4180, "it is Parquet: expected CSV"),
        (b"PK\x03\x04\x14", BARE, "it is a ZIP archive, as Excel writes: expected CSV"),
        (b"ID,Name\r\n", RFC_4180, None),
        (b'\xef\xbb\xbf"id",name\n', RFC_4180, None),
        (b"\n\nid,name\n", RFC_4180, None),
        ("id,name\n".encode("utf-16"), UTF_16, None),
        (b"1,a\n", BARE, None),
        (b"1;a;b\n", BARE, None),
        (b"id;name\n", RFC_4180, "found one column; the header contains `;` 1 time: declare `delimiter=';'`"),
        (b"id;name;x\n", RFC_4180, "found one column; the header contains `;` 2 times: declare `delimiter=';'`"),
        (b"id\tname\n", RFC_4180, r"found one column; the header contains `\t` 1 time: declare `delimiter='\t'`"),
        (b"1;a\n", BARE, "found one column; the first record contains `;` 1 time: declare `delimiter=';'`"),
        (b"'id','name'\n", RFC_4180, "the names in its header are quoted with ': declare `quote=\"'\"`"),
        (b"id,nom\n", RFC_4180, "its header is id,nom: expected id,name"),
        (b"1,a\n", RFC_4180, "its header is 1,a: expected id,name; if the file has no header, declare `header=False`"),
        (b"id,name\n", BARE, "its first record names the columns: declare `header=True`"),
        (b"\r\nid,name\n", RFC_4180, "its first line is blank: expected the header id,name"),
        (b"\n", RFC_4180, "its first line is blank: expected the header id,name"),
        ("id,name\n".encode("utf-16"), RFC_4180, "it begins with the byte order mark of UTF-16: declare `encoding="),
        ("id,name\n".encode("utf-16-le"), RFC_4180, "it looks like UTF-16 without a byte order mark: have"),
        (b"id,name\n", UTF_16, "it has no byte order mark of UTF-16"),
        (b"\xef\xbb\xbfid,name\n", LATIN_1, "it begins with the byte order mark of UTF-8: declare `encoding='UTF-8'`"),
        ("id,name\n".encode("utf-32"), RFC_4180, "it is UTF-32: expected UTF-8"),
        (b"\x1f\x8b\x08", RFC_4180, "it is packed by gzip, and its name does not end in .gz"),
        (b'"id"x,name\n', RFC_4180, "its header is not valid CSV"),
        (b"BZh91AY&SY\x00", BARE, "it is packed by bzip2, and its name does not end in .bz2"),
        (b"\xfd7zXZ\x00\x00", BARE, "it is packed by xz, which Spark does not read. Have the producer pack it by"),
        (b"id, name\n", RFC_4180, "its header has blanks before or after names: found `id, name`. Have"),
        (b'id, "name"\n', RFC_4180, "its header has blanks before or after names"),
        (b"id, name\n", CsvDialect(quote="'"), "its header has blanks before or after names"),
        (b"id, name\n", CsvDialect(quote=None), "its header has blanks before or after names"),
        (b"id,name\r\r\n1,a\r\r\n", RFC_4180, "its lines end with CR CR LF, which Python's csv module writes"),
        (b'"id","name"\r\r\n', RFC_4180, "its lines end with CR CR LF"),
        (b"1,a\r\r\n2,b\r\r\n", BARE, "have the producer open the file with `newline=''`"),
        (b"id,name\r\r\n1,a\r\r\n", CsvDialect(quote=None), "its lines end with CR CR LF"),
        ("id,name\r\r\n1,a\r\r\n".encode("utf-16"), UTF_16, "its lines end with CR CR LF"),
        (b"id,name\r1,a\n2,b\n", RFC_4180, "its first record ends with CR alone, and others end with LF: expected"),
        (b"1,a\r2,b\r\n", BARE, "its first record ends with CR alone, and others end with LF"),
        (b"id,name\r1,a\r\n", CsvDialect(null_value="a"), "its first record ends with CR alone"),
        (b'id,name\r1,"a\nb"\r2,"\n', RFC_4180, None),
    ],
)
def test_the_first_bytes_reveal_a_wrong_dialect(data, dialect, problem):
    found = beginning_of(data, ["id", "name"], dialect).problem
    assert found is None if problem is None else problem in (found or "")


@each_case(
    ("data", "end"),
    [
        (b"id,name\r1,a\r", "\r"),
        (b"id,name\r\n1,a", "\n"),
        (b"id,name\r", "\n"),
        (b'"i\rd",name\n1,a\r', "\n"),
        (b'"i\rd",name\r1,a', "\r"),
    ],
)
def test_records_that_end_as_on_old_macs_are_seen_at_the_first(data, end):
    assert beginning_of(data, ["i\rd", "name"]).line_end == end


@each_case(
    ("content", "end"), [(b"x" * (HEAD_BYTES - 1) + b"\rx\r", "\r"), (b"x" * (HEAD_BYTES - 1) + b"\r\nx\r\n", "\n")]
)
def test_a_line_end_at_the_end_of_the_first_bytes_is_seen_whole(content, end):
    """Recognize CR line ends: otherwise the whole file would be one header without rows."""
    data = first_bytes(lambda size: content[:size])
    assert beginning_of(data, ["x" * (HEAD_BYTES - 1)]).line_end == end


def test_quotes_without_a_dialect_of_quotes_end_no_line():
    assert beginning_of(b"id\nx\ry\n", ["id"], CsvDialect(quote=None)).line_end == "\n"


def test_a_wrong_long_header_names_the_first_difference():
    names = [f"c{n}" for n in range(9)]
    found = beginning_of(",".join([*names[:7], "x", "y"]).encode(), names).problem
    assert "(column 8 is x, expected c7; column 9 is y, expected c8)" in found
    found = beginning_of(",".join([*names[:7], "x"]).encode(), names).problem
    assert "(8 names, expected 9; lacking c7, c8; not expected x)" in found


@each_case(
    "record",
    [
        'x "y" z,1',
        'a,b"',
        ' "x",1',
        '"x",1',
        '"x ""y""",1',
        '"x\\",y",1',
        'x\\"y\\",1',
        '"a, "" b",c',
        'a""b,c',
        '"",""',
    ],
)
def test_misplaced_quotes_of_event_files_are_those_of_runs(record):
    """Test records that a strict parser accepts; it refuses text after a closing quote itself."""
    [found] = parse(record, record.count(","))
    assert (misplaced_quote(record) is not None) == ("quote" in found.problems)

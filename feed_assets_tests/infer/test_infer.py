"""Sample files become the declaration of a feed, with comments on decisions for a person."""

import ast
import sys
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.csv_dialect import HEAD_BYTES
from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed
from feed_assets.infer import first_texts
from feed_assets.infer.columns import InferredColumn
from feed_assets.infer.declaration import Inferred, infer
from feed_assets.infer.paths import PathPartitions, feed_name, partitions_of
from feed_assets.infer.python_text import LONGEST_COMMENT
from feed_assets.infer.sample_facts import Sample
from feed_assets_tests.support.each_case import each_case

ONE, TWO = "orders/2024-01-01/part-1.csv", "orders/2024-01-02/part-1.csv"


def inferred(folder: Path, files: dict[str, str | bytes]):
    for name, data in files.items():
        (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return infer([folder / name for name in files])


def kinds(found) -> dict[str, str]:
    return {column.name: column.kind for column in found.sample.columns}


def notes(found) -> dict[str, str | None]:
    return {column.name: column.note for column in found.sample.columns}


@each_case(
    ("values", "kind", "note"),
    [
        (["1", "-2", ""], "bigint", None),
        (["1", "9223372036854775808"], "decimal(38,0)", "larger than a bigint"),
        (["0.1234567890123456", "1.5"], "double", "digits beyond the 15th are lost"),
        (["007", "12"], "string", "zeros in front"),
        (["1.50", "12.25"], "decimal(18,2)", "double is possible, too"),
        (["1.5", "12.25"], "double", "for money"),
        (["1e3", "2"], "double", "for money"),
        (["1e999", "2"], "string", None),
        (["true", "FALSE"], "boolean", None),
        (["1", "yes"], "string", None),
        (
            ["true", "yes", "N"],
            "string",
            "booleans in another form than true and false: the dataset's function must convert",
        ),
        (["true", "False", "maybe"], "string", "1 of 3 values are not a boolean"),
        (['"12,5"', "7", '"-1.234,50"'], "string", "numbers with a comma: the dataset's function must convert them"),
        (['"12,5"', "x"], "string", None),
        (["2024-02-29", ""], "date", None),
        (["2023-02-29", "2023-01-01", "2023-01-02"], "string", "1 of 3 values are not a date"),
        (["31/12/2024", "1/1/2025"], "string", "another form than YYYY-MM-DD"),
        (["2024-01-01T10:00:00Z", "2024-01-01 10:00:00.5+01:00"], "timestamp", None),
        (["2024-01-01 10:00:00"], "timestamp", "read as UTC"),
        (["2024-01-01 24:00:00"], "string", None),
        (["2024-01-31 06:00", "2024-01-31T07:00Z"], "string", "times without seconds"),
        (["", ""], "string", "no value"),
        (["1", "two", "3"], "string", "1 of 3 values are not a number"),
        (["1", "NA", "3"], "bigint", "NA is read as NULL"),
        (["1.5", "NA", "2.25"], "double", "NA is read as NULL in all columns; for money"),
    ],
)
def test_a_column_has_the_narrowest_type_that_all_its_texts_fit(tmp_path, values, kind, note):
    found = inferred(tmp_path, {ONE: "x,y\n" + "".join(f"a,{value}\n" for value in values)})
    assert kinds(found) == {"x": "string", "y": kind}
    assert (note in (notes(found)["y"] or "")) if note else notes(found)["y"] is None


@each_case(
    ("data", "given"),
    [
        ("a;b\n1;x\n2;y\n", {"delimiter": ";"}),
        ("a\tb\n1\tx\n2\ty\n", {"delimiter": "\t"}),
        ("a,b\n1,'x,y'\n2,'z'\n", {"quote": "'"}),
        ("a,b\n1,é\n2,z\n".encode("latin-1"), {"encoding": "Latin-1"}),
        ("a,b\n1,é\n2,z\n".encode("utf-16"), {"encoding": "UTF-16"}),
        ("a,b\n1,é\n2,z\n".encode("utf-8-sig"), {}),
        ("1,x\n2,y\n3,z\n", {"header": False}),
        ("1;Main St 5, Town, UK\n2;High St 1, City, FR\n", {"delimiter": ";", "header": False}),
        ("id,2024-01-01\n1,x\n2,y\n", {}),
        ('a,b\n1,"x\n y"\n2,z\n', {}),
        (f"a,{'b' * HEAD_BYTES}\n1,x\n2,y\n", {}),
    ],
)
def test_the_dialect_of_csv_is_that_of_the_files(tmp_path, data, given):
    found = inferred(tmp_path, {ONE: data})
    assert found.sample.dialect.non_defaults == given
    assert [*kinds(found).values()] == ["bigint", "string"]


def test_json_and_parquet_keep_their_types_and_mixed_fields_are_reported(tmp_path):
    lines = '{"id": 1, "zip": "10115", "on": "2024-01-01", "paid": true, "n": 1.5}\n{"id": 2, "n": "x", "more": null}\n'
    found = inferred(tmp_path, {"a/2024-01-01.jsonl": lines})
    expected = {"id": "bigint", "zip": "string", "on": "date", "paid": "boolean", "n": "string", "more": "string"}
    assert kinds(found) == expected
    assert notes(found)["n"] == "the values are numbers and texts: a run rejects records whose value is not a text"
    table = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([0], pa.timestamp("ns", "UTC")), "s": [["x"]]})
    labels = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))
    odd = {"n": pa.nulls(1), "m": labels, "t": pa.array([[{"l": [("a", 1)]}]], pa.list_(pa.struct({"l": labels.type})))}
    for name, each in odd.items():
        table = table.append_column(name, each)
    pq.write_table(table, tmp_path / "readings.parquet")
    found = infer([tmp_path / "readings.parquet"])
    of_maps = {"m": "map<string,int>", "t": "array<struct<l:map<string,int>>>"}
    assert kinds(found) == {"id": "int", "at": "timestamp", "s": "array<string>", "n": "int", **of_maps}
    no_map = "a dataset cannot return a map: write array_sort(map_entries(…)) in its place, or drop it"
    noted = {name: note for name, note in notes(found).items() if note}
    assert noted == {"n": "the files have no value in this column", "m": no_map, "t": no_map}


@each_case(
    ("paths", "name", "code", "keys"),
    [
        ([ONE, TWO], "orders", 'dg.DailyPartitionsDefinition("2024-01-01")', ["2024-01-01", "2024-01-02"]),
        (["x/shop orders-20240131.csv"], "shop_orders", 'dg.DailyPartitionsDefinition("2024-01-31")', ["2024-01-31"]),
        (["in/2024/01/31/0.csv"], "in", 'dg.DailyPartitionsDefinition("2024-01-31")', ["2024-01-31"]),
        (
            ["o/date=2024-01-31/hour=05/part-00000.csv"],
            "o",
            'dg.HourlyPartitionsDefinition("2024-01-31-05:00")',
            ["2024-01-31-05:00"],
        ),
        (["o/2024-02/x.csv"], "x", 'dg.MonthlyPartitionsDefinition("2024-02-01")', ["2024-02-01"]),
        (
            ["o/date=2024-01-31/region=emea/x.csv", "o/date=2024-01-30/region=apac/x.csv"],
            "o",
            'dg.MultiPartitionsDefinition({"day": dg.DailyPartitionsDefinition("2024-01-30"), '
            '"region": dg.StaticPartitionsDefinition(["apac", "emea"])})',
            ["2024-01-31/emea", "2024-01-30/apac"],
        ),
        (["day=2024-01-31/x.parquet"], None, 'dg.DailyPartitionsDefinition("2024-01-31")', ["2024-01-31"]),
        (["1/y/day=2024-01-31/x.parquet"], "y", 'dg.DailyPartitionsDefinition("2024-01-31")', ["2024-01-31"]),
        (
            ["o/2024-01-01_01.csv", "o/2024-01-01_02.csv"],
            "o",
            'dg.HourlyPartitionsDefinition("2024-01-01-01:00")',
            ["2024-01-01-01:00", "2024-01-01-02:00"],
        ),
        (["o/data_20240131_20241231.csv"], "data", None, None),
        (["o_20240131_2024-01-31.csv"], "o", 'dg.DailyPartitionsDefinition("2024-01-31")', ["2024-01-31"]),
        (["1.csv"], None, None, None),
        (["o/2024-13-45.csv"], "o", None, None),
        ([ONE, "orders/old.csv"], "orders", None, None),
    ],
)
def test_name_and_partitions_are_guessed_by_the_paths(paths, name, code, keys):
    found = partitions_of([Path(path) for path in paths])
    assert (found and found.code, found and found.keys) == (code, keys)
    assert feed_name([Path(path) for path in paths]) == name


@each_case(
    ("files", "expected"),
    [
        ({"a.csv": "a,b\n1,2\n", "b.csv": "a,c\n1,2\n"}, r"b\.csv: its header is a,c: expected a,b"),
        ({"a.csv": "a,b\n1,2\n", "b.jsonl": "{}\n"}, "the files are csv and json: expected one format"),
        ({"a.xlsx": "x"}, r"a\.xlsx: its name does not show its format: expected a name that ends in \.csv"),
        ({"a.jsonl": '{"a": [1]}\n'}, "a has arrays, which a JSON feed cannot have: .* flat columns, or write Parquet"),
        (
            {"a.jsonl": '{"a\\\\b": 1}\n'},
            r"columns \['a\\\\b'\] cannot be found in JSON: rename them without quotes and",
        ),
        ({"a.jsonl": "[1]\n"}, r"a\.jsonl has no JSON objects: expected one object per line\. Correct the file\.$"),
        ({"a.csv": "a,a\n1,2\n"}, r"a\.csv: its header has the name a twice: expected .* once\. Have .* rename one\.$"),
        ({"a.csv": "a,A\n1,2\n"}, r"a\.csv: its header has a and A: expected .* Have the producer rename one\.$"),
        ({"a.csv": "a,\n1,2\n"}, r"a\.csv: its header has no name for column 2: .* Have the producer name it\.$"),
        ({"a.csv": "a,b\r\r\n1,2\r\r\n"}, r"a\.csv: its lines end with CR CR LF, .* open the file with `newline"),
        ({"a.csv": "a,b\n1,2,3\n4,5\n"}, "its first line has 2 fields, and line 2 has 3: expected equal .* Correct"),
        ({"a.csv": "a,b\n1,2,3\n4,5,6\n"}, "its first line has 2 fields, and line 2 has 3: expected equal numbers"),
        ({"a.csv": "a;b\n1;2\n4;5;6\n"}, "its first line has 2 fields, and line 3 has 3: expected equal numbers"),
        ({"a.csv": "a,b\n1,x\n2,y,z,\n3,y,z,\n"}, r"and line 3 has 4: .* but 2 of 3 differ\. Correct"),
        (
            {"a.csv": "a,b\n1,€\n".encode("cp1252")},
            r"a\.csv: line 2 has the byte 80, which is valid in Windows-1252, but feeds cannot use .* write UTF-8\.$",
        ),
        ({"a.csv": "a,b\n1,2\n".encode("utf-16-le")}, "looks like UTF-16 without a byte order mark: have the producer"),
        ({"a.jsonl": '{"a": 1}\n'.encode("utf-16")}, r"a\.jsonl: it is UTF-16: expected JSON in UTF-8\. Have"),
        ({"a.csv": "May\na,b\n1,2\n"}, "there is 1 line before its header: expected none"),
        ({"a.parquet": "PAR1"}, r"a\.parquet: .*[^.]\. Correct the file, or declare it by hand"),
        ({"a.csv": ""}, r"a\.csv is empty: expected a file with records\. Leave it out\.$"),
        (
            {'day=2024-01-01/k=a"]+[exec("x")/a.csv': "a,b\n1,2\n"},
            r"partition key .* cannot be a path segment.* Rename it\.$",
        ),
        (
            {"day=2024-01-01/k=a\nb/a.csv": "a,b\n1,2\n"},
            r"partition key 'a\\nb' cannot be a path segment.* Rename it\.$",
        ),
        ({"a.csv": '"a",b,"c\n1,2,3\n'}, "its header is not valid CSV: unexpected end of data: have the producer"),
        ({"a.csv": "\n \n"}, r"a\.csv has only blank lines: expected a file with records\. Leave it out\.$"),
        ({"d/a.csv": ",".join(f"c{each}" for each in range(5_000)) + "\n"}, "the files have more fields"),
        ({"d/a.json": "\n".join(f'{{"f{each}": 1}}' for each in range(3_000))}, "expected at most 1,999 in JSON"),
    ],
)
def test_files_that_no_feed_can_have_are_refused_in_one_line(tmp_path, files, expected):
    with pytest.raises(FeedAssetsError, match=expected) as refused:
        inferred(tmp_path, files)
    assert "\n" not in str(refused.value)


def test_only_the_beginning_of_large_files_is_read_with_a_comment(tmp_path, monkeypatch):
    monkeypatch.setattr(first_texts, "SAMPLE_BYTES", HEAD_BYTES)
    files = {"a.csv": "a,b\n" + "1,x\n" * HEAD_BYTES + "no number,y\n", "a.jsonl": '{"a": 1}\n' * HEAD_BYTES + "[]\n"}
    for name, data in files.items():
        found = inferred(tmp_path, {name: data})
        assert kinds(found)["a"] == "bigint"
        assert found.sample.rejects == 0
        assert "# only the first 65,536 bytes of a file were checked: later records may differ\n" in found.code


def test_the_command_prints_python_that_declares_the_feed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inferred(tmp_path, {ONE: 'a;"odd name"\n1;x\n', TWO: 'a;"odd name"\n2;y\n'})
    said = CliRunner().invoke(app, ["feed", "infer", ONE, TWO], catch_exceptions=False).stdout
    names: dict[str, object] = {}
    exec(said, names)  # noqa: S102  (what the test has just made)
    assert names["orders"].key.path == ["orders"]
    assert names["orders"].partitions_def.get_first_partition_key() == "2024-01-01"
    inferred(tmp_path, {"day=2024-01-31/x.csv": "a,b\n1,x\n"})
    code = infer([Path("day=2024-01-31/x.csv")]).code
    assert '    # The paths do not name the feed: give it a name.\n    "feed/v1.0",\n' in code
    guesses = {
        "o/2024-01-01_01.csv": "A guess from the paths: the number after the date is an hour. If the number "
        "counts files, declare days.",
        "o/data_20240131_20241231.csv": "A file's name has two dates: declare the partitions yourself.",
    }
    for name, guess in guesses.items():
        assert f"    # {guess}\n" in inferred(tmp_path, {name: "a,b\n1,x\n"}).code


CODE = "import sys; sys.infer_ran_text_of_a_file = True"


def constants(code: str) -> list[object]:
    return [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]


def shape(code: str) -> str:
    """Return the syntax tree without the values of its literals."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = "x"
    return ast.dump(tree)


@each_case(
    ("name", "data", "comment"),
    [
        ("a.jsonl", '{"k": 1}\n{"k\\nCODE #": 1, "k\\nCODE #": 2}\n', r"the field k\nCODE # occurs twice"),
        ("a.jsonl", '{"k\\nCODE #": "a"}\n{"k\\nCODE #": 2}\n', r"line 2 of a.jsonl: k\nCODE # is not a text"),
        ("a.csv", 'id,"n\nCODE #"\n1,a\n2,"b\n3,c\n4,d"\n5,e\n6,f\n', r"n\nCODE # holds what looks like another"),
        ("day=2024-01-01\rCODE #/a.csv", "a,b\n1,2\n3\n4,5\n", r"line 3 of day=2024-01-01\rCODE #/a.csv: 1 field"),
        ("on 2024-01-01\u2028CODE/a.csv", "a,b\n1,2\n3\n4,5\n", r"on 2024-01-01\u2028CODE/a.csv: 1 field"),
        ("a.csv", "a,é\n1,\n", "# é: the files have no value in this column\n"),
    ],
)
def test_text_of_a_file_or_a_path_is_no_code_in_the_printed_declaration(tmp_path, monkeypatch, name, data, comment):
    monkeypatch.chdir(tmp_path)
    path = Path(name.replace("CODE", CODE))
    path.parent.mkdir(exist_ok=True)
    path.write_text(data.replace("CODE", CODE), encoding="utf-8")
    found = infer([path])
    assert comment.replace("CODE", CODE) in found.code
    assert [type(node) for node in ast.parse(found.code).body] == [ast.Assign]
    exec(found.imports + found.code, {})  # noqa: S102  (what the test has just made)
    assert not hasattr(sys, "infer_ran_text_of_a_file")


HARMLESS = ("a", "b", "c", "d", "e")
TEXTS = st.text() | st.sampled_from(
    ['"', "'", '"]+[exec("', "\\", "\n", "\r", "\f", "\u2028", "\udcff", "#", "\0", "`"]
)


@given(st.lists(TEXTS, min_size=len(HARMLESS), max_size=len(HARMLESS)))
def test_a_declaration_has_the_same_syntax_whatever_the_names_values_and_paths(texts):
    def declared(name: str, note: str, column_note: str, dimension: str, value: str) -> Inferred:
        sample = Sample("csv", (InferredColumn(name, "string", column_note),), notes=(note,))
        partitions = PathPartitions("day", (datetime(2024, 1, 1),), dimension, (value,))  # noqa: DTZ001
        return Inferred(Feed.parse("t/x/v1.0"), True, (Path("x.csv"),), sample, partitions)

    name, note, column_note, dimension, value = texts
    odd = declared(name, note, column_note, dimension, value)
    assert shape(odd.code) == shape(declared(*HARMLESS).code)
    assert {odd.sample.schema, dimension, value} <= {*constants(odd.code)}
    assert all(len(line) <= LONGEST_COMMENT for line in odd.code.splitlines() if line.lstrip().startswith("#"))

"""Printed declarations, read by Spark: a run has the rows and the rejects that `feed infer` counted."""

import gzip
import random
from collections import defaultdict
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from feed_assets.core.csv_dialect import RFC_4180
from feed_assets.infer.csv_parser import csv_records
from feed_assets.infer.declaration import infer
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.spark.input_frames import read
from feed_assets_tests.support.rfc_4180 import parse
from feed_assets_tests.support.spark_updates import put_update

MANY = "a,b\n" + "1,x\n" * 9
MOMENT = "2024-01-01T10:00:00"


def moments(*texts: str) -> str:
    return "".join(f"{line}\n" for line in ("a,b", *(f"{at},{text}" for at, text in enumerate(texts))))


def parquet(**columns: list[object]) -> bytes:
    pq.write_table(pa.table(columns), sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


FILES: list[tuple[str, str | bytes, int, int]] = [  # name, content, clean rows, rejects
    ("texts with commas.tsv", "a\tb\n" + "1\tone, two, three\n" * 9, 9, 0),
    ("commas in some.tsv", "a\tb\n1\tx,y\n2\tu,v,w\n", 2, 0),
    ("semicolons.csv", "a;b\n1;a, b\n2;c\n3;d, e, f\n", 3, 0),
    ("decimal commas.csv", "a;b\n1;1,5\n2;2,25\n3;7\n", 3, 0),
    ("one column of commas.txt", "text\nplain\none, two\none, two, three\nplain\n", 4, 0),
    ("commas in numbers.csv", "1,50;2,75\n3,10;4,20\n", 2, 0),
    ("a tab less.tsv", "a\tb;c\n1\tx;y\n2\tx;z\n3;y\n", 2, 1),
    ("a field less.csv", MANY + "1\n", 9, 1),
    ("a field more, and one less.csv", MANY + "1,x,3\n1\n", 9, 2),
    ("blank lines.csv", "a;b\n1;x\n\n2;y\r\n\r\n", 2, 0),
    ("an inch.csv", 'a,b\n1,x\n2,"y"\n3,6" pipe\n4,z\n', 3, 1),
    ("inches.csv", 'a,b\n1,6" pipe\n2,5" pipe\n3,x\n', 3, 0),
    ("a blank before a quote.csv", 'a,b\n1,x\n2, "y"\n3,"z"\n', 2, 1),
    ("a backslash before a quote.csv", 'a,b\n1,"x"\n2,"a \\" b"\n3,z\n', 2, 1),
    ("a quote that is not closed.csv", 'a,b\n1,"x"\n2,y\n3,z\n4,"w\n', 3, 1),
    ("records in quotes.csv", 'a,b\n1,x\n2,"y\n3,z\n4,w"\n5,"v"\n', 2, 1),
    ("a text of lines.csv", 'a,b\n1,"x\ny"\n2,"z"\n', 2, 0),
    ("a quote in a name.csv", 'a,"b""c"\n1,x\n2,y\n', 2, 0),
    ("apostrophes.csv", "a,b\n1,'x,y'\n2,'z'\n", 2, 0),
    ("utf-16 le.csv", b"\xff\xfe" + "a,b\n1,ä\n2,€\n".encode("utf-16-le"), 2, 0),
    ("utf-16 be.csv", b"\xfe\xff" + "a,b\n1,ä\n2,€\n".encode("utf-16-be"), 2, 0),
    ("utf-16.csv.gz", gzip.compress("a,b\n1,ä\n2,€\n".encode("utf-16")), 2, 0),
    ("latin-1.csv", "a,b\n1,ä\n2,ü\n".encode("latin-1"), 2, 0),
    ("an odd byte.csv", "a,b\n1,ä\n2,ü\n".encode() + b"3,\xff\n", 2, 1),
    ("a mark in the middle.csv", "\ufeffa,b\n1,x\n\ufeff2,y\n3,z\n4,z\n", 3, 1),
    ("carriage returns.csv", "a,b\r1,x\r2,y\r", 2, 0),
    ("offsets.csv", moments(f"{MOMENT}Z", f"{MOMENT}+18:00", f"{MOMENT}-0330", f"{MOMENT}+05"), 4, 0),
    ("an offset beyond.csv", moments(f"{MOMENT}Z", f"{MOMENT}+18:01", f"{MOMENT}+25:00"), 3, 0),
    ("minutes beyond.csv", moments(f"{MOMENT}+05:60", f"{MOMENT}+05:75"), 2, 0),
    (
        "early moments.csv",
        moments("0001-01-01 00:00:00+10:00", "0000-01-01 00:00:00", "9999-12-31 23:59:59-10:00"),
        3,
        0,
    ),
    ("years.csv", "a,b\n1,0000-01-01\n2,9999-12-31\n", 2, 0),
    ("numbers.csv", "a,b,c\n1,1e308,-0\n2,4.9e-324,00\n", 2, 0),
    ("no header.csv", "1,x,2024-01-01\n2,y,2024-01-02\n", 2, 0),
    ("a key twice.jsonl", '{"a": 1, "b": "x"}\n{"a": 1, "a": 2, "b": "y"}\n{"a": 3, "b": "z"}\n', 2, 1),
    ("no objects.jsonl", '{"a": 1, "b": "x"}\n[2]\n{"a": 3}\n{"a": \nnull\n\n{"a": NaN}\n', 2, 4),
    ("two types.jsonl", '{"a": 1, "b": "x"}\n{"b": 1}\n{"b": true}\n{"b": null}\n{}\n', 3, 2),
    ("numbers.jsonl", '{"a": 1.5, "b": 7}\n{"a": 1e400, "b": 8}\n{"a": 1e3, "b": 9223372036854775808}\n', 2, 1),
    ("odd texts.jsonl", b'{"b": "\xff"}\n{"b": "\\ud800"}\n{"a": 1, "b": "\\u00e4"}\n{"b": "\\ud83d\\ude00"}\n', 2, 2),
    ("moments.jsonl", f'{{"a": 1, "b": "{MOMENT}Z"}}\n{{"b": "{MOMENT}+19:00"}}\n{{"b": ""}}\n', 3, 0),
    ("types.parquet", parquet(a=[1, None], at=[datetime(2024, 1, 1), None], on=[date(2024, 1, 1), None]), 2, 0),  # noqa: DTZ001
    ("nested.parquet", parquet(a=[[1], []], b=[{"c": "x"}, {"c": None}]), 2, 0),
]


def declared(found) -> Any:
    """Return the source of a dataset's input from the printed declaration."""
    names: dict[str, Any] = {}
    exec(found.imports + found.code, names)  # noqa: S102  (what the test has just made)
    return Input(names[found.name]).source("raw")


def counts(tagged) -> dict[str, tuple[int, int]]:
    """Return the clean rows and the rejects of each file."""
    by_file = defaultdict(list)
    for row in tagged.select("_file", "_reasons").collect():
        by_file[Path(row["_file"]).name].append(not row["_reasons"])
    return {name: (sum(are_clean), are_clean.count(False)) for name, are_clean in by_file.items()}


def test_a_run_has_the_rows_and_the_rejects_that_infer_counted(spark, local_board, tmp_path):
    inferred, alike = {}, defaultdict(dict)  # Files of one declaration are read at once.
    for name, content, *_ in FILES:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        inferred[name] = infer([tmp_path / name])
        source = declared(inferred[name])
        alike[source.format, source.schema, source.dialect or RFC_4180][name] = data
    in_runs = {}
    for (form, schema, dialect), files in alike.items():
        in_runs |= counts(read(spark, local_board, [put_update(local_board, files)], form, schema, dialect=dialect))
    assert in_runs == {name: (rows, rejects) for name, _, rows, rejects in FILES}
    for name, _, rows, rejects in FILES:
        found = inferred[name]
        assert (found.sample.records or rows, found.sample.rejects) == (rows + rejects, rejects), name
        assert f"rejects {rejects} of {rows + rejects} records" in found.code or not rejects, name


PIECES = ["a", "7", " ", "\\", "\0", "D", "D", "D", "Q", "Q", "\n", "\r\n", "\r"]
DIALECTS = [(",", '"'), (";", '"'), ("\t", "'"), ("|", None)]


def test_records_are_those_of_a_small_parser_of_rfc_4180():
    chance = random.Random(37)  # noqa: S311  (choices of a test)
    for _ in range(5_000):
        delimiter, quote = chance.choice(DIALECTS)
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(20)))
        text = text.replace("D", delimiter).replace("Q", quote or '"')
        parsed = [None if {*each.problems} - {"count"} else each.fields for each in parse(text, 1, delimiter, quote)]
        records = [None if each.problem else each.fields for each in csv_records(text, delimiter, quote)]
        assert records == parsed, (text, delimiter, quote)

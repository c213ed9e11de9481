"""Reading CSV: a table of each way in which Spark silently loses records or values, and of the result here."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from obstore.store import MemoryStore
from pyspark.sql import DataFrame

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.core.errors import (
    BlackboardRefused,
    BlackboardUnavailable,
    InvalidDefinition,
    UnreadableUpdate,
    UpdateChanged,
)
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.store_clients import ObstoreClient
from feed_assets.spark.csv_files import MORE
from feed_assets.spark.input_frames import clean, read
from feed_assets.spark.rejects import reject_duplicates, rejected_rows
from feed_assets.spark.spark_errors import reading
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.spark_updates import PARTITION, put_update

SCHEMA = "id int, name string, price decimal(5,2), at timestamp"
HEADER = "id,name,price,at\n"
GOOD = "1,a,1.50,2019-11-24 00:01:03.979311+00:00\n"


@pytest.fixture
def told(spark, local_board) -> Callable[..., list[tuple[object, ...]]]:
    """Read one CSV file as `id int, name string` (or another schema); return each row's values and reasons."""

    def tell(content, schema="id int, name string", name="part.csv", **options):
        update = put_update(local_board, {name: content})
        with reading([update]):
            frame = read(spark, local_board, [update], "csv", schema, **options).drop("_file", "_raw")
            return [tuple(row) for row in frame.collect()]

    return tell


MANY = {
    GOOD: [],
    "2,b,1.555,2019-11-24 00:01:03\n": ["price: more than 2 digits after the point"],
    "x,c,,\n": ["id: not an int"],
    "4,d,1,2019-11-24\n": ["at: not a timestamp"],
    "5,e\n": ["malformed: expected 4 fields"],
    "6,f,1,2019-11-24 00:00:00,more\n": ["malformed: expected 4 fields"],
    ",g,y,\n": ["id: missing", "price: not a decimal(5,2)"],
    '8,"two\nlines, ""quoted""",8.00,\n': [],
    "9,,,\n": [],
    "10,caf\udcff,,\n": ["name: not UTF-8"],
    " 11,k,,\n": ["id: not an int"],
    "12,l,,2019-11-24 00:00:00.1234567\n": ["at: more than 6 digits after the point"],
}


@pytest.mark.connect
def test_every_record_is_clean_or_rejected_with_its_text_its_file_and_all_reasons(spark, local_board):
    update = put_update(local_board, {"part.csv": (HEADER + "".join(MANY)).encode(errors="surrogateescape")})
    tagged = read(spark, local_board, [update], "csv", SCHEMA, required=["id"]).persist()
    rows = tagged.collect()
    assert [sorted(row["_reasons"]) for row in rows] == list(MANY.values())
    assert [row["_raw"] for row in rows] == [text.removesuffix("\n").replace("\udcff", "\ufffd") for text in MANY]
    assert {row["_file"] for row in rows} == {update.files[0].key}
    cleaned, rejects = clean(tagged), rejected_rows(tagged)
    assert cleaned.columns == ["id", "name", "price", "at"]
    assert [row["id"] for row in cleaned.collect()] == [1, 8, 9]
    assert cleaned.count() + rejects.count() == len(MANY)
    assert rejects.where("raw = '4,d,1,2019-11-24'").collect() == [
        ("at: not a timestamp", update.files[0].key, "4,d,1,2019-11-24")
    ]


def test_selected_columns_do_not_change_the_rejects(spark, local_board):
    """Loss 2: Spark does not look at columns that a query leaves out, unless a reason needs them."""
    update = put_update(local_board, {"part.csv": (HEADER + "".join(MANY)).encode(errors="surrogateescape")})
    tagged = read(spark, local_board, [update], "csv", SCHEMA, required=["id"])
    assert clean(tagged).select("name").count() == clean(tagged).count() == len(clean(tagged).collect()) == 3
    assert (
        tagged.select("_reasons").where("size(_reasons) > 0").count() == rejected_rows(tagged).count() == len(MANY) - 3
    )
    assert tagged.select("id").count() == len(MANY)


@each_case(
    ("content", "rows"),
    [
        ('id,name\n1,"a ""b"" c"\n', [(1, 'a "b" c', [])]),
        ('id,name\n1,"""b"""\n', [(1, '"b"', [])]),
        ('id,name\n1,"a\nb"\n2,"c\r\nd"\n', [(1, "a\nb", []), (2, "c\r\nd", [])]),
        ('id,name\n1,"a, b"\n', [(1, "a, b", [])]),
        ("id,name\n1, padded \n", [(1, " padded ", [])]),
        ('id,name\n1,\n2,""\n', [(1, None, []), (2, None, [])]),
        ("id,name\n1,a\\n\n", [(1, "a\\n", [])]),
        ("id,name\n1,#a\n#2,b\n", [(1, "#a", []), (None, "b", ["id: not an int"])]),
        ("\ufeffid,name\r\n1,a\r\n", [(1, "a", [])]),
        ("id,name\n1,a", [(1, "a", [])]),
        ("id,name\n\n1,a\n\n\n2,b\n\n", [(1, "a", []), (2, "b", [])]),
        ("id,name\n1,café 日本 😀\n", [(1, "café 日本 😀", [])]),
        ("id,name\n", []),
    ],
)  # fmt: skip
def test_quotes_line_breaks_and_blanks_are_read_as_rfc_4180_has_them(told, content, rows):
    """Losses 7 and 10: doubled quotes, line breaks in quotes; blank lines are no records."""
    assert told(content) == rows


TAIL = 'malformed: text after a closing quote, or a quote inside a quoted field that is not written as ""'
OPEN = "malformed: a quote that is never closed"
UNCLOSED = "name: holds what looks like another record: an unclosed quote?"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('id,name\n1,a\n2,"open\n3,c\n4,d\n', [(1, "a", []), (2, "open\n3,c\n4,d\n", [OPEN])]),
        ('id,name\n1,a\n2,"open\n3,c', [(1, "a", []), (2, "open\n3,c", [OPEN])]),
        ('id,name\n2,"open\n3,"c"\n4,d\n', [(2, '"open\n3,"c"', [OPEN]), (4, "d", [])]),
        ('id,name\n2,"open\n3,c"\n4,d\n', [(2, "open\n3,c", [UNCLOSED]), (4, "d", [])]),
        ('id,name\n2,"oh\nno, never"\n4,d\n', [(2, "oh\nno, never", []), (4, "d", [])]),
        ('id,name\n"1,a\n2,b\n', [(None, None, [OPEN])]),
    ],
)
def test_a_quote_that_nobody_closes_does_not_swallow_records_in_silence(told, content, rows):
    """Loss 7: Spark takes everything up to the next quote, or the end of the file, for one field."""
    assert told(content) == rows


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(
            "name,id\na,1\n",
            "its header is name,id: expected id,name",
            marks=pytest.mark.connect,
        ),
        ("id,nom\n1,a\n", "its header is id,nom: expected id,name"),
        ("id,name,more\n1,a,x\n", "its header is id,name,more: expected id,name"),
        ("id\n1\n", "its header is id: expected id,name"),
        ("1,a\n2,b\n", "its header is 1,a: expected id,name; if the file has no header, declare `header=False`"),
    ],
)
def test_a_wrong_csv_header_is_refused_and_shown(told, content, says):
    """Loss 5: by default Spark ignores the header, so that columns are swapped and first rows are lost."""
    with pytest.raises(UnreadableUpdate, match=rf"{PARTITION.feed}/.*/part\.csv is not as declared: {says}") as raised:
        told(content)
    assert str(raised.value).endswith("send a correct file. If files are pulled, the correct file needs another name.")


@pytest.mark.parametrize("name", ["_part.csv", ".part.csv", "_temporary/0/part.csv", ".hidden/part.csv"])
def test_names_that_spark_skips_are_refused(told, name):
    """Loss 3: a file of such a name is read as no rows."""
    with pytest.raises(UnreadableUpdate, match="would be read as no rows"):
        told("id,name\n1,a\n", name=name)


@each_case(
    "name",
    ["a[1]{2}.csv", "a*?.csv", "a b+c%20d.csv", "a,b;c.csv", "é😀.csv", "deep/er/a.csv", "day=1/a.csv", "a:b.csv"],
)
def test_a_name_is_no_pattern(spark, local_board, name):
    """Loss 4: Spark takes each path for a glob."""
    update = put_update(local_board, {name: "id,name\n1,a\n", "other.csv": "id,name\n2,b\n"})
    one = replace(update, files=tuple(file for file in update.files if file.key.endswith(name)))
    rows = read(spark, local_board, [one], "csv", "id int, name string").select("id", "_file").collect()
    assert rows == [(1, f"{update.path}/{name}")]


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


PACKED = gzip.compress(("id,name\n" + "".join(f"{n},{n * 7919 % 10007:x}\n" for n in range(20_000))).encode())


def test_a_packed_file_is_read_whole_or_not_at_all(told):
    """Loss 9: truncated files, empty ones, and those of several members."""
    assert len(told(PACKED, name="part.csv.gz")) == 20_000
    members = gzip.compress(b"id,name\n1,a\n") + gzip.compress(b"2,b\n")
    assert told(members, name="part.csv.gz") == [(1, "a", []), (2, "b", [])]
    with pytest.raises(UnreadableUpdate, match=r"part\.csv\.gz cannot be read: .*Unexpected end of input stream"):
        told(_cut(PACKED), name="part.csv.gz")
    with pytest.raises(UnreadableUpdate, match=r"cannot be read: .*not a gzip file"):
        told("id,name\n1,a\n", name="part.csv.gz")


@pytest.mark.parametrize("name", ["part.csv.gz", "part.csv"])
def test_an_empty_file_is_no_csv(told, name):
    with pytest.raises(UnreadableUpdate, match=r"is empty \(0 bytes\)"):
        told(b"", name=name)


def test_an_update_without_files_is_refused(spark, local_board):
    """Loss 9: an empty list of paths is read as no rows."""
    update = put_update(local_board, {"part.csv": "id\n1\n"})
    with pytest.raises(UnreadableUpdate, match="has no files"):
        read(spark, local_board, [update, replace(update, files=())], "csv", "id int")
    with pytest.raises(UnreadableUpdate, match="No updates to read"):
        read(spark, local_board, [], "csv", "id int")


def test_a_file_that_is_named_twice_is_read_once(spark, local_board):
    """Loss 9: Spark reads a path as often as it is named."""
    update = put_update(local_board, {"part.csv": "id\n1\n2\n"})
    twice = replace(update, files=(*update.files, *update.files))
    assert read(spark, local_board, [twice, update], "csv", "id int").count() == 2


@pytest.mark.connect
def test_a_file_that_vanishes_after_it_was_listed_is_no_missing_data(spark, local_board):
    update = put_update(local_board, {"a.csv": "id\n1\n", "b.csv": "id\n2\n"})
    tagged = read(spark, local_board, [update], "csv", "id int")
    local_board.delete([update.files[1].key])
    with (
        pytest.raises(UpdateChanged, match=r"more/\d+\.\d+/b\.csv was removed or altered after it was listed"),
        reading([update]),
    ):
        tagged.collect()
    with pytest.raises(UpdateChanged, match=r"b\.csv is gone"), reading([update]):
        read(spark, local_board, [update], "csv", "id int").collect()


def test_errors_that_are_not_about_reading_go_through(spark, local_board):
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ArithmeticException

    update = put_update(local_board, {"a.csv": "id\n1\n"})
    frame = read(spark, local_board, [update], "csv", "id int")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"), reading([update]):
        frame.select("nothing").collect()
    with pytest.raises((ArithmeticException, Py4JJavaError), match="DIVIDE_BY_ZERO"), reading([update]):
        frame.selectExpr("1 / (id - 1)").collect()


def test_several_updates_are_one_frame(spark, local_board):
    updates = [put_update(local_board, {"part.csv": f"id\n{n}\n"}) for n in (1, 2)]
    rows = read(spark, local_board, updates, "csv", "id int").orderBy("id").collect()
    assert [(row["id"], row["_file"]) for row in rows] == [(1, updates[0].files[0].key), (2, updates[1].files[0].key)]


@pytest.mark.parametrize(("files", "shuffled"), [(1, False), (2, True)])
def test_one_file_is_not_shuffled_to_find_its_duplicates(spark, local_board, capsys, files, shuffled):
    """It is one task, and the tests' shuffles have one partition."""
    update = put_update(local_board, {f"part-{number}.csv": HEADER + GOOD for number in range(files)})
    found = reject_duplicates(read(spark, local_board, [update], "csv", SCHEMA), ["id"], [])
    found.explain()
    plan = capsys.readouterr().out
    assert ("Exchange" in plan) is shuffled
    assert ("file_path" in plan) is (files > 1), "of one file the key is known: no row gets its URL"
    assert clean(found).count() == 1


def test_csv_is_read_from_s3(spark, s3_board):
    update = put_update(
        s3_board, {"a [1]+%20é.csv": HEADER + GOOD, "b.csv.gz": gzip.compress((HEADER + GOOD).encode())}
    )
    rows = read(spark, s3_board, [update], "csv", SCHEMA).orderBy("_file").collect()
    assert [(row["price"], row["_file"], row["_reasons"]) for row in rows] == [
        (Decimal("1.50"), file.key, []) for file in update.files
    ]


def test_a_file_that_vanishes_from_s3_is_no_missing_data(spark, s3_board):
    update = put_update(s3_board, {"part.csv": "id\n1\n"})
    tagged = read(spark, s3_board, [update], "csv", "id int")
    s3_board.sweep(update.path)
    with pytest.raises(UpdateChanged, match="was removed or altered"), reading([update]):
        tagged.collect()


STORES = {
    "refused": ({"access.key": "nobody", "secret.key": "wrong"}, BlackboardRefused),
    "silent": ({"endpoint": "http://127.0.0.1:1"}, BlackboardUnavailable),
}


@pytest.mark.parametrize(("bucket", "options", "error"), [(name, *told) for name, told in STORES.items()])
def test_a_store_that_says_no_or_nothing_is_neither_missing_nor_damaged_data(spark, bucket, options, error):
    hasty = {"attempts.maximum": "1", "retry.limit": "1", "retry.interval": "1ms"}
    for key, value in {**hasty, **options}.items():
        spark.conf.set(f"fs.s3a.bucket.{bucket}.{key}", value)
    board = Blackboard(f"s3://{bucket}", ObstoreClient(MemoryStore()))
    update = put_update(board, {"part.csv": "id\n1\n"})  # Our own look at it succeeds.
    with pytest.raises(error, match="Check "):
        read(spark, board, [update], "csv", "id int")


def test_required_columns_must_be_declared(spark, local_board):
    update = put_update(local_board, {"part.csv": "id\n1\n"})
    with pytest.raises(InvalidDefinition, match=r"required columns \['ip'\] are not in the schema"):
        read(spark, local_board, [update], "csv", "id int", required=["ip"])


def test_columns_of_any_name_are_read(spark, local_board):
    update = put_update(local_board, {"part.csv": "a.b,c d,e`f\n1,2,x\n"})
    frame: DataFrame = read(spark, local_board, [update], "csv", "`a.b` int, `c d` int, `e``f` string")
    assert clean(frame).collect() == [(1, 2, "x")]


DIALECTS = {
    "semicolons": (CsvDialect(delimiter=";"), 'id;name\n1;"a;b"\n2;a,b\n', [(1, "a;b", []), (2, "a,b", [])]),
    "tabs": (CsvDialect(delimiter="\t"), "id\tname\n1\ta\n\t\n", [(1, "a", []), (None, None, [])]),
    "no quotes": (CsvDialect(quote=None), 'id,name\n1,"a\n2,5" disk\r\n', [(1, '"a', []), (2, '5" disk', [])]),
    "apostrophes": (
        CsvDialect(quote="'"), "id,name\n1,'it''s, a'\n2,\"b\"\n", [(1, "it's, a", []), (2, '"b"', [])]
    ),
    "no header": (CsvDialect(header=False), "\ufeff1,a\r\n2,b\r\n", [(1, "a", []), (2, "b", [])]),
    "null": (
        CsvDialect(null_value="\\N"),
        'id,name\n\\N,\\N\n1,"\\N"\n2,\\n\n',
        [(None, None, []), (1, None, []), (2, "\\n", [])],
    ),
    "UTF-16": (
        CsvDialect(encoding="UTF-16"), 'id,name\r\n1,"é\r\n日"\r\n'.encode("utf-16"), [(1, "é\r\n日", [])]
    ),
    "big endian": (CsvDialect(encoding="UTF-16"), "\ufeffid,name\n1,é\n".encode("utf-16-be"), [(1, "é", [])]),
    "Latin-1": (CsvDialect(encoding="Latin-1"), "id,name\n1,é\n".encode("latin-1"), [(1, "é", [])]),
    "Windows-1252": (
        CsvDialect(encoding="Latin-1"),
        b"id,name\n1,5 \x80\n",
        [(1, "5 \x80", ["name: holds control characters U+0080 to U+009F: is it Windows-1252?"])],
    ),
    "half a character": (
        CsvDialect(encoding="UTF-16"),
        "id,name\n1,a\n2,b".encode("utf-16")[:-1],
        [(1, "a", []), (2, "\ufffd", ["name: not UTF-16"])],
    ),
    "old Mac": (RFC_4180, "id,name\r1,a\r2,b", [(1, "a", []), (2, "b", [])]),
}  # fmt: skip


@each_case(("dialect", "content", "rows"), DIALECTS.values(), ids=list(DIALECTS))
def test_csv_is_read_in_the_declared_dialect(told, dialect, content, rows):
    assert told(content, dialect=dialect) == rows


FILLED = "".join(f"{n},{'x' * 90}\r" for n in range(1000))
"""Exceed the number of records that the driver checks."""
FEED = "malformed: a line feed outside quotes, in a file whose first record ends with CR alone"
HALF = "malformed: expected 2 fields"


@each_case(
    ("content", "rows"),
    [
        ("1,x\n2,y\r3,z\r", [("1", "x\n2", [FEED]), ("3", "z", [])]),
        ("1,x\r2,y\n", [("1", "x", []), ("2", "y\n", [FEED])]),
        ("1,x\r2,y\r\n", [("1", "x", []), ("2", "y", []), ("\n", None, [HALF])]),
        ("1,NA\r2,NA\n", [("1", None, []), ("2", "NA\n", [FEED])]),
        ("1,x\r\n2,y\r\n", [("1", "x", []), ("\n2", "y", [FEED]), ("\n", None, [HALF])]),
    ],
)
@pytest.mark.parametrize("quote", ['"', None])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize("header", [True, False])
def test_a_line_feed_in_a_file_of_carriage_returns_is_no_part_of_a_value(told, content, rows, quote, encoding, header):
    data = ("a,b\r" if header else "") + FILLED + content
    dialect = CsvDialect(quote=quote, encoding=encoding, header=header, null_value="NA")
    found = told(data.encode(encoding), "a string, b string", dialect=dialect)
    assert len(found) == 1000 + len(rows)
    assert found[1000:] == rows


@each_case(
    ("content", "rows"),
    [
        ("1\n2\r3\r\n4\n", [("1\n2", [FEED]), ("3", []), ("\n4\n", [FEED])]),
        ("3\r\n", [("3", []), ("\n", [FEED])]),
        ('"1\n2"\r"3\n"', [("1\n2", []), ("3\n", [])]),
    ],
)
def test_a_line_feed_in_a_column_of_carriage_returns_is_no_part_of_a_value(told, content, rows):
    assert told("a\r" + "x" * 70_000 + "\r" + content, "a string")[1:] == rows


JOINED = "malformed: a byte order mark at its beginning: were files put together?"
BARE = CsvDialect(header=False)


@each_case(
    ("content", "dialect", "rows"),
    [
        ("\ufeff", BARE, []),
        ("\ufeff\n", BARE, []),
        ("\ufeff\r\n", BARE, []),
        ("\0\n\ufeff\n", BARE, [("\0", []), ("\ufeff", [JOINED])]),
        ("\ufeffa\n1\n\ufeffa\n2\n", RFC_4180, [("1", []), ("\ufeffa", [JOINED]), ("2", [])]),
        ('\ufeffa\n1\n\ufeff"a"\n', CsvDialect(quote=None), [("1", []), ('\ufeff"a"', [JOINED])]),
        ("\ufeff\ufeff1\n2\n", BARE, [("\ufeff1", [JOINED]), ("2", [])]),
        ("a\n1\n".encode("utf-16") * 2, CsvDialect(encoding="UTF-16"), [("1", []), ("\ufeffa", [JOINED]), ("1", [])]),
        ('\ufeff"1"\n', BARE, [("1", [])]),
    ],
)
def test_a_byte_order_mark_is_no_value_and_no_part_of_one(told, content, dialect, rows):
    assert told(content, "a string", dialect=dialect) == rows


QUOTES = {
    '"x" y': TAIL,
    '"x" y"': TAIL,
    '"x\\"y"': 'malformed: a backslash before a quote: expected "" for a quote',
    '"x" ': "malformed: blanks after a closing quote",
    ' "x"': "malformed: blanks before an opening quote",
    'x"': "malformed: a quote within a field that is not in quotes",
    'x\\"y\\"': 'malformed: a backslash before a quote: expected "" for a quote',
    "x\ry": "malformed: a carriage return outside quotes",
    "x,y": "malformed: expected 2 fields",
    '"x,y\0"': "malformed: a NUL character in a record with quotes",
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_records_that_violate_rfc_4180_are_rejected_with_reason_and_text(spark, local_board, end):
    content = end.join(["id,name", *(f"{n},{field}" for n, field in enumerate(QUOTES)), "99,fine", ""])
    update = put_update(local_board, {"part.csv": content})
    rows = read(spark, local_board, [update], "csv", "id int, name string").collect()
    assert [(row["_raw"], row["_reasons"]) for row in rows[:-1]] == [
        (f"{n},{field}", [why]) for n, (field, why) in enumerate(QUOTES.items())
    ]
    assert (rows[-1]["name"], rows[-1]["_reasons"]) == ("fine", [])


def test_a_record_of_any_length_and_any_number_of_quotes_is_read(told):
    """Records longer than the parser's buffer (1 MB), and more doubled quotes than Java's stack has room for."""
    quotes, long = '""' * 200_000, "é" * 3_000_000
    rows = told(f'id,name\n1,"{quotes}"\n2,{long}\n3,"{long}\n{quotes}x" y\n' + "4,a," + "b," * 60 + "\n5,c\n")
    assert [(row[0], row[2]) for row in rows] == [
        (1, []), (2, []), (3, [TAIL]), (4, ["malformed: expected 2 fields"]), (5, [])
    ]  # fmt: skip
    assert (rows[0][1], rows[1][1]) == ('"' * 200_000, long)


def test_a_record_with_as_many_fields_as_are_declared_to_spark_is_rejected(spark, local_board):
    """Name the first fields, as Spark gives no text for such a record."""
    update = put_update(local_board, {"part.csv": "id,name\n1,a" + ",b" * MORE + "\n2,c\n"})
    rows = read(spark, local_board, [update], "csv", "id int, name string").collect()
    assert [(row["id"], row["_raw"], row["_reasons"]) for row in rows] == [
        (1, "1,a,…", ["malformed: expected 2 fields"]), (2, "2,c", [])
    ]  # fmt: skip


def test_planning_time_does_not_double_with_each_column(spark, local_board):
    """Limit planning: a filter on text columns keeps each conclusion under every name of each column."""
    names = [f"c{number}" for number in range(8)]
    update = put_update(local_board, {"part-0.csv": f"{','.join(names)}\n"})
    frame = clean(read(spark, local_board, [update], "csv", ", ".join(f"{name} string" for name in names)))
    plan, most = frame._jdf.queryExecution().analyzed(), 0
    while plan.children().size():
        plan = plan.children().apply(0)
        most = max(most, plan.constraints().size())
    assert 0 < most < 50

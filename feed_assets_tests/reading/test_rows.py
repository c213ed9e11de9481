"""Rows and columns of Parquet: exact values, equal on both stores, and a reason for each unreadable file."""

from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from feed_assets.core.errors import BlackboardRefused, InvalidName, UnreadableUpdate
from feed_assets.feeds import footers
from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.reading.exact_rows import EXACT, MOMENT
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.parquet_lake import MONDAY, NEW, OLD, TUESDAY, WEDNESDAY, Lake, parquet


def test_read_values_are_exact(lake):
    lake.put(MONDAY, parquet(EXACT))
    found = lake.read(MONDAY)
    assert found.to_arrow().to_pylist() == EXACT.to_pylist()
    assert found.schema == found.to_arrow().schema == EXACT.schema


def test_pandas_rounds_nothing_and_its_types_do_not_depend_on_the_rows(lake):
    lake.put(MONDAY, parquet(EXACT))
    lake.put(TUESDAY, parquet(EXACT.slice(0, 0)))
    frame = lake.read(MONDAY).to_pandas()
    assert frame["id"][0] == 2**62 + 1
    assert frame["id"][1] is pd.NA
    assert frame["price"][0] == Decimal("12345678901234567890.12")
    assert frame["at"][0] == MOMENT
    assert frame["day"][0] == date(1700, 1, 1)
    types = {name: str(frame.dtypes[name]) for name in ("id", "small", "at", "local")}
    assert types == {"id": "Int64", "small": "Int8", "at": "datetime64[us, UTC]", "local": "datetime64[us]"}
    assert [*lake.read(TUESDAY).to_pandas().dtypes["id":"local"]] == [*frame.dtypes["id":"local"]]
    assert [*lake.read(TUESDAY).to_pandas(partition_column="_partition").columns][-1] == "_partition"


def written_by_polars(rows) -> bytes:
    pl.DataFrame(rows).write_parquet(file := BytesIO())
    return file.getvalue()


def test_differences_between_writer_libraries_are_normalized(local_lake):
    """Test zones, INT96, large strings, dictionaries, column order, nullability, and metadata of pandas."""
    row = {"text": ["x"], "at": [MOMENT]}
    berlin = pa.table(
        {"text": ["x"], "at": pa.array([MOMENT.astimezone(ZoneInfo("Europe/Berlin"))], pa.timestamp("us", "+02:00"))}
    )
    naive = pa.table({"text": ["x"], "at": pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us"))})
    promised = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False), pa.field("text", pa.string())])
    turned = pa.table({"at": [MOMENT], "text": ["x"]}, schema=promised)
    packed = pa.table({"text": pa.array(["x"]).dictionary_encode(), "at": pa.array([MOMENT])})
    of_pandas = pa.Table.from_pandas(pd.DataFrame({"text": ["x"], "at": pd.DatetimeIndex([MOMENT]).as_unit("us")}, [7]))
    by_pandas = of_pandas.drop_columns("__index_level_0__")
    parts = [parquet(row), parquet(berlin), parquet(naive, use_deprecated_int96_timestamps=True)]
    parts += [parquet(turned), parquet(packed), parquet(by_pandas), written_by_polars(row)]
    local_lake.put(MONDAY, *parts)
    found = local_lake.read(MONDAY)
    assert found.schema == pa.schema({"text": pa.string(), "at": pa.timestamp("us", "UTC")})
    assert found.schema.metadata is None
    assert found.to_arrow().to_pylist() == [{"text": "x", "at": MOMENT}] * len(parts)
    assert [*found.to_pandas().index] == [*range(len(parts))]


def test_timestamps_in_structs_and_lists_are_utc(local_lake):
    berlin = pa.timestamp("us", "Europe/Berlin")
    kind = pa.struct([("at", berlin), ("all", pa.large_list(berlin)), ("by", pa.map_(pa.large_string(), berlin))])
    rows = [{"at": MOMENT, "all": [MOMENT, None], "by": [("k", MOMENT)]}]
    local_lake.put(MONDAY, {"s": pa.array(rows, kind)})
    utc = pa.timestamp("us", "UTC")
    expected = pa.struct([("at", utc), ("all", pa.list_(utc)), ("by", pa.map_(pa.string(), utc))])
    assert local_lake.read(MONDAY).schema.field("s").type == expected
    assert local_lake.read(MONDAY).to_arrow()["s"].to_pylist() == rows


def test_int96_of_before_pandas_first_year_is_the_moment_it_was(local_lake):
    old = pa.table({"at": pa.array([datetime(1066, 10, 14)], pa.timestamp("us"))})  # noqa: DTZ001
    local_lake.put(MONDAY, parquet(old, use_deprecated_int96_timestamps=True))
    assert local_lake.rows(MONDAY) == [(datetime(1066, 10, 14, tzinfo=UTC),)]


def test_parts_that_lack_a_column_are_refused_or_null_there_if_that_is_asked_for(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.put(TUESDAY, {"n": [2], "more": ["x"]})
    with pytest.raises(UnreadableUpdate) as refused:
        lake.read(MONDAY, WEDNESDAY).to_arrow()
    first, second = (f"plant/daily/v1.0/{day}/{OLD}/part-0.parquet" for day in (MONDAY, TUESDAY))
    assert str(refused.value) == (
        f"{second} has other columns than {first}: more: found string, expected no such column. Read with "
        "union_by_name=True, which has NULL for a missing column, or read each update by itself."
    )
    both = lake.read([TUESDAY, MONDAY], union_by_name=True)
    assert both.schema.names == ["n", "more"]
    assert both.to_arrow().to_pydict() == {"n": [2, 1], "more": ["x", None]}
    assert lake.read([MONDAY, TUESDAY], union_by_name=True).to_arrow().to_pydict() == {"n": [1, 2], "more": [None, "x"]}


@pytest.mark.parametrize("union", [False, True])
def test_a_type_that_differs_is_refused_in_any_case(local_lake, union):
    local_lake.put(MONDAY, {"n": pa.array([1], pa.int32())}, {"n": pa.array([1], pa.int64())})
    with pytest.raises(
        UnreadableUpdate, match=r"part-1.parquet has other .*: n: found int64, expected int32\. Read each"
    ):
        _ = local_lake.read(MONDAY, union_by_name=union).schema


def test_a_third_part_is_held_to_what_the_second_one_adds(local_lake):
    local_lake.put(MONDAY, {"n": [1]}, {"n": [1], "m": [1]}, {"n": [1], "m": ["x"]})
    with pytest.raises(UnreadableUpdate, match=r"part-2.parquet .*m: found string, expected int64"):
        _ = local_lake.read(MONDAY, union_by_name=True).schema


def test_an_update_of_no_rows_has_columns_and_one_of_no_files_has_none(lake):
    lake.put(MONDAY, parquet(pa.table({"n": pa.array([], pa.int64())})))
    assert lake.read(MONDAY).to_arrow().to_pydict() == {"n": []}
    assert lake.read(MONDAY).schema.names == ["n"]
    lake.put(TUESDAY)
    empty = lake.read(TUESDAY)
    assert (empty.paths, empty.update_id) == ([], OLD)
    with pytest.raises(UnreadableUpdate, match=rf"{TUESDAY}/{OLD}: there is no file, so the columns are unknown"):
        empty.to_arrow()
    lake.put(MONDAY, {"n": [7]}, update_id=NEW)
    assert lake.rows(MONDAY, WEDNESDAY) == [(7,)]
    assert lake.read(MONDAY, WEDNESDAY).to_arrow(partition_column="d")["d"].to_pylist() == [MONDAY]


@each_case(
    ("ending", "content", "says"),
    [
        ("csv", b"n\n1\n", r"part-0.csv is CSV: expected Parquet.* `.paths` .*to_spark\(session, schema="),
        ("csv.gz", b"\x1f\x8b", r"part-0.csv.gz is CSV: expected Parquet"),
        ("jsonl", b'{"n": 1}\n', "part-0.jsonl is JSON: expected Parquet"),
        ("json", b"", "part-0.json is JSON: expected Parquet"),
        ("csv", b"", r"part-0.csv is empty \(0 bytes\), which is not a valid csv file"),
        ("parquet", b"n\n1\n", "part-0.parquet is not Parquet, by its last bytes: expected"),
        ("parquet", b"", r"part-0.parquet is empty \(0 bytes\), which is not a valid parquet file"),
        ("parquet", b"PAR1", "part-0.parquet is not a Parquet file: expected a footer .*Have it published again"),
        ("parquet", b"PAR1PAR1", "part-0.parquet is not a Parquet file"),
        ("parquet", b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1", "part-0.parquet is not a Parquet file"),
        ("parquet", b"PARE" + b"x" * 20 + b"PARE", "part-0.parquet is encrypted Parquet"),
    ],
)
def test_files_other_than_parquet_are_refused_with_a_remedy_and_have_paths(local_lake, ending, content, says):
    local_lake.put(MONDAY, content, ending=ending)
    found = local_lake.read(MONDAY)
    for read in (found.to_arrow, found.to_pandas, lambda: found.schema):
        with pytest.raises(UnreadableUpdate, match=says):
            read()
    assert [path.rsplit(".", ending.count(".") + 1)[1:] for path in found.paths] == [ending.split(".")]


def test_parquet_is_recognized_by_its_bytes_under_any_name(local_lake):
    local_lake.put(MONDAY, {"n": [1]}, ending="csv")
    local_lake.put(TUESDAY, {"n": [2]}, ending="d")
    assert local_lake.rows(MONDAY, WEDNESDAY) == [(1,), (2,)]


def test_one_damaged_part_of_many_is_named(local_lake):
    good = parquet({"n": [1] * 1000})
    damaged = good[:20] + bytes(40) + good[60:]
    local_lake.put(MONDAY, good, damaged, good)
    with pytest.raises(UnreadableUpdate, match=r"part-1.parquet cannot be read as Parquet"):
        local_lake.read(MONDAY).to_arrow()


def test_a_bit_that_has_changed_where_its_writer_kept_checksums_is_found(local_lake):
    good = parquet({"n": [2**40] * 100}, compression="none", use_dictionary=False, write_page_checksum=True)
    at = good.index((2**40).to_bytes(8, "little") * 9)
    local_lake.put(MONDAY, good[:at] + b"\x01" + good[at + 1 :])
    with pytest.raises(UnreadableUpdate, match=r"cannot be read as Parquet: .*(crc|CRC|checksum)"):
        local_lake.read(MONDAY).to_arrow()


def test_a_repeated_column_is_refused(local_lake):
    local_lake.put(MONDAY, parquet(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])))
    with pytest.raises(UnreadableUpdate, match="n: found the names n, n, expected names that differ"):
        local_lake.read(MONDAY).to_arrow()


def test_a_name_that_runs_would_skip_is_refused(local_lake):
    path = f"{local_lake.at(MONDAY).path}/{OLD}"
    local_lake.board.put(f"{path}/_metadata", parquet({"n": [1]}))
    local_lake.board.put(f"{path}/_SUCCESS", b"1")
    with pytest.raises(UnreadableUpdate, match="_metadata would be read as no rows"):
        local_lake.read(MONDAY).to_arrow()


def test_the_column_of_partitions_takes_no_place_of_a_column(local_lake):
    local_lake.put(MONDAY, {"n": [1]})
    with pytest.raises(InvalidName, match="has a column 'n' of its own: give another name"):
        local_lake.read(MONDAY).to_arrow(partition_column="n")


def test_dimensions_in_the_path_are_no_columns(lake):
    lake.put("2026-06-01/region=apac/country=sg", {"region": ["eu"]})
    found = lake.read("2026-06-01/region=apac/country=sg")
    assert found.to_arrow().to_pydict() == {"region": ["eu"]}


def test_a_long_footer_is_fetched_completely(lake, monkeypatch):
    monkeypatch.setattr(footers, "_TAIL", 16)
    lake.put(MONDAY, {f"column_{number}": [number] for number in range(50)})
    asked = []
    stream = Blackboard.stream
    monkeypatch.setattr(Blackboard, "stream", lambda *args: asked.append(args[2]) or stream(*args))
    assert len(lake.read(MONDAY).schema) == 50
    assert len(asked) == 2


def test_columns_cost_the_end_of_a_file_and_rows_one_request_more(lake, monkeypatch):
    lake.put(MONDAY, {"n": [*range(100_000)]})
    asked = []
    stream = Blackboard.stream
    monkeypatch.setattr(Blackboard, "stream", lambda *args: asked.append(args[2]) or stream(*args))
    found = lake.read(MONDAY)
    _ = found.schema, found.schema
    assert asked == [found.updates[0].size - 65_536]
    assert found.to_arrow().num_rows == 100_000
    assert asked[1:] == [0]


def test_a_store_that_refuses_is_no_empty_table(lake, s3_env, monkeypatch):
    if not lake.board.url.startswith("s3:"):
        pytest.skip("folders are refused by their rights, which root has")
    lake.put(MONDAY, {"n": [1]})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BlackboardRefused):
        lake.read(MONDAY)


def test_duckdb_and_polars_read_paths_and_tables_and_get_the_same_rows(lake, s3_env, monkeypatch):
    """Replace DuckDB's S3 reader, an extension that is downloaded, by reading the table."""
    lake.put(MONDAY, {"n": [1, 2]}, {"n": [3]})
    lake.put(TUESDAY, {"n": [4]})
    found = lake.read(MONDAY, WEDNESDAY)
    rows = found.to_arrow()
    options = {"aws_endpoint_url": s3_env.endpoint, "aws_allow_http": "true"}
    scanned = pl.scan_parquet(found.paths, storage_options=options if found.paths[0].startswith("s3:") else None)
    assert scanned.collect().rows() == [(1,), (2,), (3,), (4,)]
    assert rows.num_rows == 4
    assert duckdb.sql("SELECT sum(n) FROM rows").fetchall() == [(10,)]
    if not found.paths[0].startswith("s3:"):
        assert duckdb.read_parquet(found.paths).fetchall() == scanned.collect().rows()


def test_csv_and_json_are_read_by_their_paths(local_lake):
    local_lake.put(MONDAY, b"n,s\n1,x\n", ending="csv")
    local_lake.put(TUESDAY, b'{"n": 1, "s": "x"}\n', ending="jsonl")
    assert duckdb.read_csv(local_lake.read(MONDAY).paths).fetchall() == [(1, "x")]
    assert pl.read_csv(local_lake.read(MONDAY).paths).rows() == [(1, "x")]
    assert duckdb.read_json(local_lake.read(TUESDAY).paths, format="newline_delimited").fetchall() == [(1, "x")]
    assert pl.scan_ndjson(local_lake.read(TUESDAY).paths).collect().rows() == [(1, "x")]


def test_an_in_memory_blackboard_has_rows_and_no_paths(home, monkeypatch):
    board = Blackboard.open("memory://")
    lake = Lake(board)
    lake.put(MONDAY, {"n": [1]})
    monkeypatch.setattr("feed_assets.reading.reader.board_at", lambda *_: board)
    assert lake.rows(MONDAY) == [(1,)]
    with pytest.raises(InvalidName, match="memory"):
        _ = lake.read(MONDAY).paths


def test_nested_integers_beside_nulls_are_not_rounded_for_pandas(lake):
    rows = pa.table(
        {
            "many": pa.array([[2**53 + 1, None], None], pa.list_(pa.int64())),
            "one": pa.array([{"a": 2**53 + 1}, {"a": None}], pa.struct([("a", pa.int64())])),
        }
    )
    lake.put(MONDAY, parquet(rows))
    frame = lake.read(MONDAY).to_pandas()
    assert [*frame["many"]] == [[2**53 + 1, None], None]
    assert [*frame["one"]] == [{"a": 2**53 + 1}, {"a": None}]


@pytest.mark.parametrize(
    ("day", "meant"),
    [(date(1500, 6, 15), date(1500, 6, 5)), (date(1582, 10, 15), date(1582, 10, 15)), (date(1899, 12, 31), None)],
)
def test_days_of_sparks_old_calendar_are_those_that_were_meant(lake, day, meant):
    old = pa.table({"day": [day]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    lake.put(MONDAY, parquet(old))
    assert lake.rows(MONDAY) == [(meant or day,)]

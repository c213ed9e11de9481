"""Rows in batches: the same rows as `to_arrow` returns, with constant memory."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from feed_assets.core.errors import InvalidName, UnreadableUpdate, UpdateChanged
from feed_assets_tests.reading.exact_rows import EXACT
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.parquet_lake import DAILY, MONDAY, OLD, TUESDAY, WEDNESDAY, parquet

ROWS = 4_000_000
MOST_MB = 40
"""Rows of 64 MB in one row group. Streaming takes 23 MB for any number of rows; `to_arrow` takes 159 MB."""

PROGRAM = f"""
import json, os, sys
from pathlib import Path
from pyarrow import parquet
import feed_assets
from feed_assets.feeds.read import download
from feed_assets.reading.pages import read_pages
from feed_assets.reading.row_digest import RowDigest
from feed_assets_tests.support.servers import peak_mb

def batch_by_batch(data):
    return sum(batch.num_rows for batch in data.to_reader())

def verified(data):
    read_pages(data.board, data.updates[0], digest := RowDigest([("n", "bigint"), ("x", "double")]))
    return digest.records

def copied(data):
    folder = Path(sys.argv[2], data.updates[0].partition.key)
    download(data.board, data.updates[0], folder)
    return parquet.read_metadata(folder / "part-0.parquet").num_rows

def at_once(data):
    return data.to_arrow().num_rows

small, large = (feed_assets.read("{DAILY}", key, blackboard=sys.argv[1]) for key in ("{MONDAY}", "{TUESDAY}"))
ways = batch_by_batch, verified, copied, at_once
for way in ways:
    way(small)
before = peak_mb(os.getpid())
print(json.dumps([[way(large), peak_mb(os.getpid()) - before] for way in ways]))
"""


def test_batches_have_the_rows_and_columns_of_all_parts(lake):
    lake.put(MONDAY, parquet(EXACT), parquet(EXACT.select([*reversed(EXACT.column_names)])))
    lake.put(TUESDAY, parquet(EXACT.slice(0, 0)))
    found = lake.read(MONDAY, WEDNESDAY)
    reader = found.to_reader(partition_column="_day")
    assert reader.read_all() == found.to_arrow(partition_column="_day")
    assert found.to_reader().schema == found.schema


def test_moments_of_int96_are_those_of_to_arrow(local_lake):
    seconds = pa.array([0, 95_617_584_000, -2_000_000_000], pa.timestamp("s"))
    data = parquet(pa.table({"at": seconds}), use_deprecated_int96_timestamps=True, row_group_size=2)
    local_lake.put(MONDAY, data)
    assert local_lake.read(MONDAY).to_reader().read_all() == local_lake.read(MONDAY).to_arrow()


@each_case(
    ("second", "says"),
    [
        (damaged.with_flipped_bit(damaged.parquet(damaged.numbers())), "part-1.parquet cannot be read as Parquet"),
        (damaged.without_second_group(), "part-1.parquet cannot be read whole"),
    ],
)
def test_a_damaged_part_is_refused_as_by_to_arrow(second, says, local_lake):
    local_lake.put(MONDAY, damaged.parquet(damaged.numbers()), second)
    found = local_lake.read(MONDAY)
    for read in (found.to_arrow, lambda: found.to_reader().read_all()):
        with pytest.raises(UnreadableUpdate, match=says):
            read()


def test_a_page_without_values_is_no_end_of_the_rows(local_lake):
    """Write a footer that announces more rows than its pages hold, in all of its figures."""
    data = damaged.parquet(damaged.numbers())
    for occurrence in (0, 0, -1):
        data = damaged.with_other_number(data, 20_000, 20_001, occurrence)
    local_lake.put(MONDAY, data)
    with pytest.raises(UnreadableUpdate, match="cannot be read as Parquet"):
        local_lake.read(MONDAY).to_reader().read_all()


def test_a_part_that_is_altered_between_two_batches_is_refused(local_lake):
    local_lake.put(MONDAY, {"n": [1]}, {"n": [2]})
    reader = local_lake.read(MONDAY).to_reader()
    assert reader.read_next_batch().to_pydict() == {"n": [1]}
    local_lake.board.put(f"{local_lake.at(MONDAY).path}/{OLD}/part-1.parquet", parquet({"n": [3]}))
    with pytest.raises(UpdateChanged):
        reader.read_next_batch()


def test_a_column_of_that_name_is_refused_at_once(local_lake):
    local_lake.put(MONDAY, {"n": [1]})
    with pytest.raises(InvalidName, match="a column 'n' of its own"):
        local_lake.read(MONDAY).to_reader(partition_column="n")


def test_memory_does_not_grow_with_the_rows(local_lake, tmp_path):
    local_lake.put(MONDAY, {"n": [1], "x": [1.0]})
    rows = {"n": np.arange(ROWS), "x": np.arange(ROWS) / 3}
    local_lake.put(TUESDAY, parquet(rows, row_group_size=ROWS, use_dictionary=False, compression="none"))
    command = [sys.executable, "-c", PROGRAM, local_lake.board.url, str(tmp_path / "copies")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *streams, at_once = json.loads(done.stdout)
    assert [rows for rows, _ in (*streams, at_once)] == [ROWS] * 4
    assert max(grown for _, grown in streams) < MOST_MB
    assert at_once[1] > 2 * MOST_MB, "the measure sees rows that are kept"

"""Parquet cells without a Python value: one reject each; rows and files around them are read."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.event_rows import Columns
from feed_assets_tests.support.foreign_tables import read_all

BARE = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
FAR = 2**62


def text(*cells):
    """Return a text column that need not be valid UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(cells), pa.array(cells).buffers())


def written(**columns):
    """Return a file of three events, with some columns replaced."""
    given = {"table_name": ["t/x"] * 3, "marker": [1, 2, 3], "correlation_id": ["a", "b", "c"], **columns}
    pq.write_table(pa.table(given), out := io.BytesIO())
    return out.getvalue()


def read(board, columns, *files):
    for number, data in enumerate(files, 1):
        board.put(f"their/events/{number}.parquet", data)
    found, rejected, _ = read_all(FileEvents(board, "their/events", "parquet", columns))
    return [each.correlation_id for each in found], rejected


MARKERS = {
    "far": pa.array([1, FAR, 3], pa.timestamp("us", "UTC")),
    "long ago": pa.array([1, -FAR, 3], pa.timestamp("us")),
    "a far day": pa.array([1, 2**31 - 1, 3], pa.date32()),
    "a far day in ms": pa.array([86_400_000, FAR, 3 * 86_400_000], pa.date64()),
}


@pytest.mark.parametrize("name", MARKERS)
def test_a_moment_in_no_calendar_is_one_reject(local_board, name):
    found, rejected = read(local_board, BARE, written(marker=MARKERS[name]), written(correlation_id=["d", "e", "f"]))
    assert found[:2] == ["a", "c"]
    assert ["outside the years 1 to 9999'" in each.reason for each in rejected[:1]] == [True]
    assert "line 2: column marker" in rejected[0].reason


def test_a_column_of_a_zone_that_nobody_knows_rejects_its_rows_and_no_other_file(local_board):
    nowhere = pa.array([1, 2, 3], pa.timestamp("us", "Mars/Phobos"))
    found, rejected = read(local_board, BARE, written(marker=nowhere), written(correlation_id=["d", "e", "f"]))
    assert found == ["d", "e", "f"]
    assert len(rejected) == 3


@pytest.mark.parametrize("name", ["correlation_id", "table_name"])
def test_a_text_that_is_no_utf_8_is_one_reject(local_board, name):
    found, rejected = read(local_board, BARE, written(**{name: text(b"t/a", b"\xff\xfe", b"t/c")}))
    assert len(found) == 2
    assert ["line 2: " in each.reason for each in rejected] == [True]


def test_context_dates_outside_of_the_calendar_are_accepted(local_board):
    days = pa.array([{"day": 1}, {"day": 2**31 - 1}, {"day": 2}], pa.struct([("day", pa.date32())]))
    others = Columns(event_marker=None, write_operation=None, partition_key=None, context=None, others_in_context=True)
    assert read(local_board, others, written(more=days)) == (["a", "b", "c"], [])

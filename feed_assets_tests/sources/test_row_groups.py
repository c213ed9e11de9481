"""Parquet files of a few kB that expand to gigabytes, read in a separate process: their rows are one reject."""

import io
import json
import subprocess
import sys
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.limits import ROW_BYTES
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.parquet_rows import GROUP_BYTES
from feed_assets_tests.support.foreign_tables import encoded, read_all, row

FOLDER = "their/events"
MANY, LONG = 150, 3_000_000
PEAK_KB = 700_000
"""Maximum memory of a reading process, in kB; 450 MB of rows, and the 1,350 MB that they took, are far above."""
READING = """
import json, sys
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.event_files import FileEvents
source, position, found, rejected = FileEvents(Blackboard.open(sys.argv[1]), "their/events", "parquet"), None, [], []
complete = False
while not complete:
    batch = source.read(position, 200)
    found += [each.correlation_id for each in batch.events]
    rejected += [each.reason for each in batch.rejected]
    position, complete = batch.position, batch.is_complete
# Not `ru_maxrss`, which begins with what the process that started this one had.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([found, rejected, int(peak)]))
"""
WRITING = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
from feed_assets_tests.support.foreign_tables import row
way, many, long = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rows = [row(number, "integer") for number in range(100, 100 + many)]
texts = pa.array([f"{number}{'a' * long}" if way == "plain" else f"{'a' * long}{number}" for number in range(many)])
context = pa.StructArray.from_arrays([texts], ["of"]) if way == "struct" else texts
table = pa.Table.from_pylist(rows).drop_columns(["context"]).append_column("context", context)
encoding = {"column_encoding": {"context": "DELTA_BYTE_ARRAY"}} if way == "delta" else {}
how = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, **encoding}
with pq.ParquetWriter(sys.argv[1], table.schema, **how) as writer:
    around = [pa.Table.from_pylist([row(each, "integer")]) for each in (1, 2)] if way == "plain" else [table[:0]] * 2
    for group in (around[0], table, around[1]):
        writer.write_table(group.select(table.schema.names))
"""


def run(code: str, *arguments: str | int) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """Return a function that writes a file whose row group expands to 450 MB, in a given way; it takes seconds."""
    folder = tmp_path_factory.mktemp("bombs")

    @cache
    def written(way: str) -> bytes:
        run(WRITING, folder / way, way, MANY, LONG)
        return (folder / way).read_bytes()

    return written


@pytest.mark.parametrize("way", ["plain", "struct", "delta"])
def test_a_row_group_of_450_mb_takes_little_memory_and_reading_continues(local_board, bomb, way):
    data = bomb(way)
    assert len(data) < 300_000
    local_board.put(f"{FOLDER}/0", encoded("parquet", [row(1, "integer")]))
    local_board.put(f"{FOLDER}/1", data)
    local_board.put(f"{FOLDER}/9", encoded("parquet", [row(2, "integer")]))
    found, rejected, peak = json.loads(run(READING, local_board.url))
    assert found == (["c-1", "c-1", "c-2", "c-2"] if way == "plain" else ["c-1", "c-2"])  # Also within its file.
    assert peak < PEAK_KB
    if way == "delta":  # Such a file holds each text once.
        assert len(rejected) == MANY
        assert all(f"expected at most {ROW_BYTES}" in reason for reason in rejected)
        return
    (reason,) = rejected
    first = 2 if way == "plain" else 1
    assert f"{FOLDER}/1 line {first}: rows {first} to {first + MANY - 1}, row group 1, have 450" in reason
    assert f"expected at most {GROUP_BYTES}" in reason


def test_a_row_group_just_below_the_limit_is_read_in_little_memory(local_board, tmp_path):
    run(WRITING, file := tmp_path / "large", "plain", 40, LONG)
    local_board.put(f"{FOLDER}/1", file.read_bytes())
    found, rejected, peak = json.loads(run(READING, local_board.url))
    assert (found, len(rejected)) == (["c-1", "c-2"], 40)
    assert peak < 1.5 * PEAK_KB


def test_columns_that_nobody_needs_are_not_read(local_board, bomb):
    local_board.put(f"{FOLDER}/1", bomb("plain"))
    columns = Columns(context=None)
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "parquet", columns), limit=1000)
    assert (len(found), rejected) == (MANY + 2, [])


def test_list_columns_are_skipped_and_a_needed_one_is_reported(local_board):
    table = pa.Table.from_pylist([row(1, "integer", tags=["a"], deep={"of": [{"a": 1}]}, flat={"of": 1})])
    pq.write_table(table, written := io.BytesIO())
    local_board.put(f"{FOLDER}/1", written.getvalue())
    (found,), _, _ = read_all(FileEvents(local_board, FOLDER, "parquet", Columns(others_in_context=True)))
    assert found.context == {"records": 1, "flat": {"of": 1}}
    with pytest.raises(SourceUnavailable, match="has lists in tags"):
        FileEvents(local_board, FOLDER, "parquet", Columns(partition_key="tags")).read(None, 10)

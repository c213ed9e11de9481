"""Rows that are far too large: one reject each, in little memory, and the rows around them are read."""

import json
import tracemalloc
from hashlib import sha256

import pytest

from feed_assets.core.limits import READ_BYTES, REJECT_BYTES, ROW_BYTES
from feed_assets.sources.files import FileEvents
from feed_assets_tests.sources.theirs import encoded, read_all, row

FOLDER = "their/events"
LARGE = 60_000_000
LITTLE = 40_000_000
"""Bytes of Python's memory: of 10 MB that a store sends at a time there are three copies, and of a row little."""


def rows(first, last=None):
    return [row(number, "integer") for number in range(first, (last or first) + 1)]


def lines(kind, *numbers):
    """Lines of these rows, without the header."""
    data = encoded(kind, [row(number, "integer") for number in numbers])
    return data if kind == "jsonl" else data.split(b"\r\n", 1)[1]


def read(board, kind, limit=10):
    """What is read, and the most memory that it took."""
    tracemalloc.start()
    try:
        found, rejected, position = read_all(FileEvents(board, FOLDER, kind), limit=limit)
        return [each.correlation_id for each in found], rejected, position, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("start", [b"x", b'{"a": "', b'"', b"\xff"])
def test_a_line_of_60_mb_is_one_reject_and_not_kept_whole(local_board, kind, start):
    line = start + b"x" * LARGE + b"\n"
    local_board.put(f"{FOLDER}/1", encoded(kind, rows(1)) + line + lines(kind, 2, 3))
    found, (rejected,), _, peak = read(local_board, kind)
    assert found == ["c-1", "c-2", "c-3"]
    assert peak < LITTLE
    number = 2 if kind == "jsonl" else 3
    assert rejected.reason == f"{FOLDER}/1 line {number}: it has {len(line)} bytes: expected at most {ROW_BYTES}"
    assert f"({len(line)} bytes, sha256 {sha256(line).hexdigest()})" in rejected.raw
    assert len(rejected.raw.encode()) <= REJECT_BYTES


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_reading_goes_on_behind_it_from_every_position(local_board, kind):
    data = encoded(kind, rows(1)) + b"x" * 2_000_000 + b"\n" + lines(kind, 2)
    local_board.put(f"{FOLDER}/1", data)
    found, rejected, position, _ = read(local_board, kind, limit=1)
    assert (found, len(rejected)) == (["c-1", "c-2"], 1)
    local_board.put(f"{FOLDER}/1", data + lines(kind, 3))
    more, _, _ = read_all(FileEvents(local_board, FOLDER, kind), position)
    assert [each.correlation_id for each in more] == ["c-3"]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_the_end_of_a_file_is_waited_for_however_long_it_is_and_not_kept(local_board, kind):
    local_board.put(f"{FOLDER}/1", encoded(kind, rows(1)) + b"x" * LARGE)
    tracemalloc.start()
    batch = FileEvents(local_board, FOLDER, kind).read(None, 10)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()
    assert "the end of" in batch.waits
    assert [each.correlation_id for each in batch.events] == ["c-1"]


def test_a_record_of_many_lines_in_quotes_has_the_same_limit(local_board):
    """A quote that is never closed: what follows is lost to it as far as it is looked at, and no further."""
    local_board.put(f"{FOLDER}/1", encoded("csv", rows(1)) + b'"' + b'x","\r\n' * 300_000 + lines("csv", 2))
    local_board.put(f"{FOLDER}/2", encoded("csv", rows(3)))
    found, rejected, _, _ = read(local_board, "csv", limit=1000)
    assert {"c-1", "c-3"} <= {*found}
    assert any(f"expected at most {ROW_BYTES}" in each.reason for each in rejected)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_read_gives_rows_of_so_many_bytes(local_board, kind):
    large = json.dumps({"of": "x" * 60_000})
    many = [row(number, "integer", context=large) for number in range(1, 1201)]
    local_board.put(f"{FOLDER}/1", encoded(kind, many))
    source = FileEvents(local_board, FOLDER, kind)
    batch = source.read(None, 5000)
    assert READ_BYTES / 65_000 < len(batch.events) < READ_BYTES / 55_000
    assert not batch.is_complete
    assert len(read_all(source, batch.position, 5000)[0]) == 1200 - len(batch.events)

"""Ends of records in text files: runs of blank lines, and quotes that hide newlines."""

import csv
import io
import tracemalloc
from itertools import pairwise, product

import pytest

from feed_assets.core.limits import READ_BYTES, ROW_BYTES
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.lines import QuotedNewlines
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import encoded, read_all, row

FOLDER = "their/events"


def csv_lines(*numbers):
    """Return lines of these rows, without the header."""
    return encoded("csv", [row(number, "integer") for number in numbers]).split(b"\r\n", 1)[1]


def names(events):
    return [each.correlation_id for each in events]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"\n\r\n"])
def test_blank_lines_without_end_are_read_once_and_not_in_one_read(local_board, kind, blank):
    data = encoded(kind, [row(1, "integer")])
    first = len(data)
    data += blank * (3 * READ_BYTES // len(blank))
    local_board.put(f"{FOLDER}/1", data + encoded(kind, [row(2, "integer")])[-20:])
    source, position, offsets = FileEvents(local_board, FOLDER, kind), None, []
    while not (batch := source.read(position, 10)).is_complete:
        position = batch.position
        offsets.append(int(position.partition('"offset": ')[2].partition(",")[0]))
    assert offsets[0] < first + READ_BYTES + 20_000_000
    assert offsets == sorted(set(offsets))
    assert len(offsets) > 2


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_lines_after_blank_lines_keep_their_line_numbers(local_board, kind):
    good = encoded(kind, [row(1, "integer")])
    local_board.put(f"{FOLDER}/1", b"\n" * 1000 + good + b"\r\n" * 1000 + b"wrong\n" + b"\n" * 1000)
    source = FileEvents(local_board, FOLDER, kind)
    found, rejected, position = read_all(source, limit=1)
    assert names(found) == ["c-1"]
    number = 2001 + good.count(b"\n")
    assert rejected[0].reason.startswith(f"{FOLDER}/1 line {number}: ")
    assert '"ended": true' in position


def test_a_quoted_field_of_many_lines_is_one_reject_without_events(local_board):
    inner = csv_lines(7).replace(b'"', b'""') + b"y\n"
    long = b'retail/p,1,1,c,,,"' + inner * 20_000 + b'"\r\n'
    local_board.put(f"{FOLDER}/1", encoded("csv", [row(1, "integer")]) + long + csv_lines(2))
    tracemalloc.start()
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "csv"), limit=1)
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()
    assert names(found) == ["c-1", "c-2"]
    (reason,) = [each.reason for each in rejected]
    last = 2 + long.count(b"\n")
    assert f"line 3: it has {len(long)} bytes up to line {last}" in reason
    assert f"expected at most {ROW_BYTES}" in reason


@pytest.mark.parametrize("field", [b"z" * 200_000, b"z\r\n" * 100_000])
def test_a_field_that_is_too_long_for_csv_is_one_reject_up_to_where_it_closes(local_board, field):
    long = b'retail/p,1,1,c,,,"' + field + csv_lines(7).replace(b'"', b'""') + b'"\r\n'
    local_board.put(f"{FOLDER}/1", encoded("csv", [row(1, "integer")]) + long + csv_lines(2))
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "csv"))
    assert names(found) == ["c-1", "c-2"]
    assert ["field larger than field limit" in each.reason for each in rejected] == [True]


@each_case("size", [1, 2, 3, 100])
def test_records_end_where_csv_ends_them_however_the_bytes_come(size):
    """Include quotes unknown to RFC 4180: within a field, and behind the closing one."""
    for letters in product('a,"\n', repeat=7):
        text = "".join(letters) + "\n"
        assert lines_by_ends(text.encode(), size) == lines_by_csv(text), text


def lines_by_csv(text):
    """Return the number of lines of each record, including an open last one."""
    reader = csv.reader(io.StringIO(text, newline="\n"))
    numbers = [0, *(reader.line_num for _ in reader)]
    return [after - before for before, after in pairwise(numbers)]


def lines_by_ends(data, size):
    found, rest, ends = [], b"", QuotedNewlines()
    ends.begin()
    for start in range(0, len(data), size):
        rest, at = rest + data[start : start + size], 0
        while at < len(rest):
            at, is_whole = ends.scan(rest, at)
            if not is_whole:
                break
            found.append(ends.lines)
            ends.begin()
        rest = rest[at:]
    return [*found, ends.lines] if ends.lines else found

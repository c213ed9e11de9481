"""Event files: partial lines, files that grow, shrink or are rewritten, invalid lines, and the cost of a read."""

import io
import json
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from feed_assets.core.errors import SourceUnavailable
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources import parquet_rows
from feed_assets.sources.event_files import FileEvents
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.damaged_parquet import footers_that_end_processes
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import encoded, read_all, row

FOLDER = "their/events"


def rows(*numbers):
    return [row(number, "timestamp") for number in numbers]


def names(events):
    return [each.correlation_id for each in events]


def put(board, name, data):
    board.put(f"{FOLDER}/{name}", data)


@pytest.fixture(params=["csv", "jsonl"])
def text(request):
    """Return each line format."""
    return request.param


@pytest.fixture(params=["csv", "jsonl", "parquet"])
def kind(request):
    return request.param


def test_a_partial_line_is_not_read_until_it_is_complete(board, text):
    source, whole = FileEvents(board, FOLDER, text), encoded(text, rows(1, 2, 3))
    position, found = None, []
    for end in sorted({*range(0, len(whole), 37), len(whole) - 1, len(whole)}):
        put(board, "1", whole[:end])
        new, rejected, position = read_all(source, position, 2)
        assert rejected == []
        found += names(new)
        batch = source.read(position, 1)
        assert (batch.waits is None) == (whole[:end].endswith(b"\n") or not end)
        if batch.waits:
            assert f"the last line of {FOLDER}/1 has no newline yet" in batch.waits
    assert found == ["c-1", "c-2", "c-3"]


def test_the_last_line_of_a_file_is_complete_once_a_newer_file_exists(local_board, text):
    put(local_board, "1", encoded(text, rows(1, 2))[: -2 if text == "csv" else -1])
    source = FileEvents(local_board, FOLDER, text)
    assert names(source.read(None, 10).events) == ["c-1"]
    put(local_board, "2", encoded(text, rows(3)))
    assert names(read_all(source)[0]) == ["c-1", "c-2", "c-3"]


def test_a_line_that_was_cut_for_good_is_rejected_and_what_follows_is_read(local_board):
    whole = encoded("jsonl", rows(1, 2))
    put(local_board, "1", whole[:-20])
    put(local_board, "2", encoded("jsonl", rows(3)))
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "jsonl"))
    assert names(found) == ["c-1", "c-3"]
    assert rejected[0].reason == f"{FOLDER}/1 line 2: not a JSON object in UTF-8"
    assert json.loads(rejected[0].raw) == whole[:-20].decode().splitlines()[1]


def test_a_quote_that_is_never_closed_waits_and_is_then_rejected(local_board):
    put(local_board, "1", encoded("csv", rows(1)) + b'a,"b,c\r\nx,y\r\n')
    source = FileEvents(local_board, FOLDER, "csv")
    batch = source.read(None, 10)
    assert (names(batch.events), batch.rejected) == (["c-1"], ())
    assert "has no newline yet" in batch.waits
    assert "a quote that was opened in line 3 is still open" in batch.waits
    put(local_board, "2", encoded("csv", rows(2)))
    found, rejected, _ = read_all(source, batch.position)
    assert names(found) == ["c-2"]
    assert json.loads(rejected[0].raw) == 'a,"b,c\r\nx,y\r\n'
    said = "line 3: unexpected end of data: a quote that was opened in line 3 is not closed"
    assert rejected[0].reason == f"{FOLDER}/1 {said}"


def test_an_idle_read_is_one_listing_and_earlier_files_are_not_looked_at(local_board, kind):
    for number in range(1, 6):
        put(local_board, f"{number}", encoded(kind, rows(number)))
    counting = Counting.around(local_board)
    source = FileEvents(counting.board, FOLDER, kind)
    _, _, position = read_all(source)
    counting.requests.clear()
    assert source.read(position, 10).is_complete
    assert counting.requests == [("list", FOLDER)]
    put(local_board, "6", encoded(kind, rows(6)))
    counting.requests.clear()
    assert names(source.read(position, 10).events) == ["c-6"]
    assert counting.requests == [("list", FOLDER), ("get", f"{FOLDER}/6")]


def test_a_file_is_read_on_from_where_the_last_batch_ended(local_board, text, monkeypatch):
    put(local_board, "1", encoded(text, rows(*range(1, 200))))
    source, streamed = FileEvents(local_board, FOLDER, text), []
    stream = Blackboard.stream
    monkeypatch.setattr(
        Blackboard, "stream", lambda self, key, start=0: streamed.append(start) or stream(self, key, start)
    )
    found, _, _ = read_all(source, limit=50)
    assert len(found) == 199
    assert len(streamed) == 4
    assert streamed == sorted({*streamed})  # Each one further on.


def test_a_shrunken_file_is_reported_and_the_position_stays(board, kind):
    put(board, "1", encoded(kind, rows(1, 2, 3)))
    source = FileEvents(board, FOLDER, kind)
    _, _, position = read_all(source)
    put(board, "1", encoded(kind, rows(1)))
    with pytest.raises(SourceUnavailable, match=f"{FOLDER}/1 has .* were read before: expected a file that only grows"):
        source.read(position, 10)
    put(board, "1", encoded(kind, rows(1, 2, 3, 4)))
    assert "c-4" in names(read_all(source, position)[0])


def test_a_file_that_was_rewritten_in_its_middle_is_read_again(board, kind):
    put(board, "1", encoded(kind, rows(1, 3)))
    source = FileEvents(board, FOLDER, kind)
    _, _, position = read_all(source)
    put(board, "1", encoded(kind, rows(1, 2, 3)))
    found, _, position = read_all(source, position, 1)
    assert names(found) == ["c-1", "c-2", "c-3"]
    assert read_all(source, position)[0] == []


def test_a_removed_file_blocks_nothing(local_board, kind):
    put(local_board, "1", encoded(kind, rows(1)))
    source = FileEvents(local_board, FOLDER, kind)
    _, _, position = read_all(source)
    local_board.delete([f"{FOLDER}/1"])
    assert source.read(position, 10).position == position
    put(local_board, "2", encoded(kind, rows(2)))
    assert names(source.read(position, 10).events) == ["c-2"]


def test_a_late_name_is_read_when_the_source_is_read_from_the_beginning(local_board, kind):
    put(local_board, "2", encoded(kind, rows(2)))
    source = FileEvents(local_board, FOLDER, kind)
    _, _, position = read_all(source)
    put(local_board, "1", encoded(kind, rows(1)))
    assert source.read(position, 10).events == ()
    assert names(source.read(None, 10).events) == ["c-1", "c-2"]


def test_files_that_are_none_are_left_out_and_sub_folders_are_read(board, kind):
    for name in ("_SUCCESS", ".hidden", "2010/.crc"):
        put(board, name, b"nonsense")
    put(board, "2010/12", encoded(kind, rows(1)))
    assert names(read_all(FileEvents(board, FOLDER, kind))[0]) == ["c-1"]


def test_an_unreadable_file_does_not_block_earlier_files(local_board, monkeypatch):
    put(local_board, "1", encoded("parquet", rows(1)))
    put(local_board, "2", b"nonsense")
    source = FileEvents(local_board, FOLDER, "parquet")
    batch = source.read(None, 10)
    assert (names(batch.events), batch.is_complete) == (["c-1"], False)
    with pytest.raises(SourceUnavailable, match=f"{FOLDER}/2 cannot be read as Parquet: .*Have it corrected"):
        source.read(batch.position, 10)
    damage = pa.lib.ArrowIndexError("index with value of 39 is out-of-bounds")  # Of a damaged dictionary page.
    monkeypatch.setattr(parquet_rows, "_records", MagicMock(side_effect=damage))
    put(local_board, "2", encoded("parquet", rows(1)))
    with pytest.raises(SourceUnavailable, match=f"{FOLDER}/2 cannot be read as Parquet: index with value of 39"):
        source.read(batch.position, 10)


@each_case("data", footers_that_end_processes().values())
def test_event_file_with_a_footer_that_crashes_pyarrow_is_refused(data):
    board = Blackboard.open("memory://")
    put(board, "1", data)
    with pytest.raises(SourceUnavailable, match=f"{FOLDER}/1 cannot be read as Parquet: .*Have it corrected"):
        FileEvents(board, FOLDER, "parquet").read(None, 10)


def test_csv_may_have_a_bom_either_newline_and_newlines_in_quotes(local_board):
    note = json.dumps({"note": "one\ntwo"}, indent=2)
    put(local_board, "1", b"\xef\xbb\xbf" + encoded("csv", [row(1, "integer", context=note), *rows(2)]))
    put(local_board, "2", encoded("csv", rows(3)).replace(b"\r\n", b"\n") + b"\n\n")
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "csv"), limit=1)
    assert (names(found), rejected) == (["c-1", "c-2", "c-3"], [])
    assert found[0].context == {"note": "one\ntwo"}


def is_json_or_cut(raw):
    """Return True if a reject is JSON text; a long one is its beginning, with length and digest."""
    return "bytes, sha256 " in raw if len(raw.encode()) > 3900 else json.loads(raw) is not None


BAD_CSV = [
    (b"too,few", "2 fields, expected 7"),
    (b'"a"b,c', "',' expected after"),
    (b"retail/p,1,1,\xff,,,", "not UTF-8"),
    (b"retail/p,1.5,1,c,,,", "column marker: '1.5' is not a marker"),
    (b"retail/p,1,yesterday,c,,,", "column event_marker: 'yesterday' is not a marker"),
    (b"retail/p,,1,c,,,", "column marker: found None"),
    (b"retail/p,-1,1,c,,,", "'-1' is not a marker"),
    (b"retail/p,1" + b"0" * 20 + b",1,c,,,", "out of range"),
    (b"retail/p,1" + b"0" * 5000 + b",1,c,,,", "Exceeds the limit"),
    (b"retail/p,0001-01-01T00:00+05:00,1,c,,,", "in UTC it is before the year 1"),
    (b"retail/p,1,1,c,,../..,", "partition key"),
    (b"retail/p,1,1,c\x07,,,", "printable"),
    (b"retail/p,1,1,c,,,{", "expected a JSON object"),
    (b'retail/p,1,1,"c" x,,,', "',' expected after"),
    (b'retail/p,1,1, "c",,,', "blanks before an opening quote"),
    (b'retail/p,1,1,"c\\",x",,', "a quote within a field that is not in quotes"),
    (b"retail/p,1,1,c,,," + b"x" * 200_000, "field larger than field limit"),
]


@each_case(("line", "reason"), BAD_CSV, ids=[reason for _, reason in BAD_CSV])
def test_a_bad_line_of_csv_is_kept_with_its_number_and_its_reason(local_board, line, reason):
    put(local_board, "1", encoded("csv", rows(1)) + line + b"\r\n" + encoded("csv", rows(2)).split(b"\r\n", 1)[1])
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "csv"))
    assert names(found) == ["c-1", "c-2"]
    assert len(rejected) == 1
    assert rejected[0].reason.startswith(f"{FOLDER}/1 line 3: ")
    assert reason in rejected[0].reason
    assert is_json_or_cut(rejected[0].raw)


BAD_JSON = [b"[1]", b"{", b'{"a": 1} {', b"\xff", b"[" * 100_000, b"1", b"{}", b'{"marker": 1.5}', b'{"marker": true}']
BAD_JSON += [b'{"table_name": "a", "marker": 1, "correlation_id": "\\ud800"}', b'{"marker": 1' + b"0" * 5000 + b"}"]


@each_case("line", BAD_JSON, ids=[*range(len(BAD_JSON))])
def test_a_bad_line_of_json_is_kept_with_its_number(local_board, line):
    put(local_board, "1", encoded("jsonl", rows(1)) + b" \n" + line + b"\n" + encoded("jsonl", rows(2)))
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "jsonl"))
    assert names(found) == ["c-1", "c-2"]
    assert [each.reason.partition(":")[0] for each in rejected] == [f"{FOLDER}/1 line 3"]
    assert is_json_or_cut(rejected[0].raw)


def test_moments_finer_than_microseconds_are_no_markers(local_board):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([row(1, "integer"), row(2, "integer")])
    moments = pa.array([1_291_183_200_000_001_000, 1_291_183_200_000_001_001], pa.timestamp("ns"))
    pq.write_table(table.set_column(1, "marker", moments), data := io.BytesIO())
    put(local_board, "1", data.getvalue())
    found, rejected, _ = read_all(FileEvents(local_board, FOLDER, "parquet"))
    assert [each.marker.isoformat() for each in found] == ["2010-12-01T06:00:00.000001+00:00"]
    assert "whole microseconds" in rejected[0].reason


def test_a_header_with_a_repeated_column_is_refused(local_board):
    header, _, rest = encoded("csv", rows(1)).partition(b"\r\n")
    put(local_board, "1", header + b",marker\r\n" + rest.replace(b"\r\n", b",1\r\n"))
    with pytest.raises(SourceUnavailable, match="expected each column once"):
        FileEvents(local_board, FOLDER, "csv").read(None, 10)


def test_an_invalid_header_is_reported_shortened_with_its_file(local_board):
    put(local_board, "1", b"x," * 300_000 + b"y\r\n")
    with pytest.raises(SourceUnavailable, match=f"^{FOLDER}/1 has the columns .*corrected or removed") as raised:
        FileEvents(local_board, FOLDER, "csv").read(None, 10)
    assert len(str(raised.value)) < 1000


def test_a_refusing_blackboard_is_reported_as_an_unreadable_source(tmp_path):
    board = Blackboard.open((tmp_path / "lake").as_uri(), create=True)
    (tmp_path / "lake").rmdir()
    with pytest.raises(SourceUnavailable, match="Mount or create it again"):
        FileEvents(board, FOLDER, "csv").read(None, 10)

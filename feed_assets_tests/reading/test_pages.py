"""Updates read to the last byte: each kind of damage is found, with little memory."""

import gzip

import pyarrow as pa
import pytest

from feed_assets.core.errors import UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.reading.pages import OutOfTime, Pages, read_pages
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.each_case import each_case

AT = Partition(Feed.parse("ads/raw/v1.0"), "2019-11-24")
GOOD = damaged.parquet(damaged.numbers())
TEXT = b"id\n" + b"".join(b"%d\n" % number for number in range(50_000))
FOOTERS = damaged.footers_that_end_processes()
PACKED = gzip.compress(TEXT, mtime=0)


def update_of(board: Blackboard, **files: bytes) -> Update:
    for name, data in files.items():
        board.put(f"{AT.path}/20191125.060000/{name.replace('_', '.')}", data)
    return Update(AT, "20191125.060000", board.files(AT.path))


def test_whole_files_of_each_format_are_read(board):
    files = {"a_parquet": GOOD, "b_csv": TEXT, "c_csv_gz": PACKED, "d_gz": PACKED + PACKED + bytes(512), "part": GOOD}
    assert read_pages(board, update_of(board, **files)) == Pages(5, 40_000)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@each_case(
    ("files", "says"),
    [
        ({"p_parquet": damaged.with_flipped_bit(GOOD)}, "p.parquet is damaged: .*CRC checksum"),
        ({"p_parquet": damaged.with_index_beyond_dictionary()}, "p.parquet is damaged: .*out of bounds"),
        (
            {"p_parquet": damaged.with_flipped_bit(damaged.parquet(damaged.numbers(), data_page_version="2.0"))},
            "p.parquet is damaged: .*CRC checksum",
        ),
        ({"part": damaged.with_flipped_bit(GOOD)}, "part is damaged: .*CRC checksum"),
        ({"p_parquet": damaged.without_second_group()}, "p.parquet cannot be read whole"),
        ({"p_parquet": b"XXXX" + GOOD[4:]}, r"p.parquet is damaged: .* begin with b'PAR1', found b'XXXX'"),
        ({"p_parquet": GOOD[:-1]}, "p.parquet is not a Parquet file"),
        *(({"p_parquet": data}, f"p.parquet has .*{why}") for why, data in FOOTERS.items()),
        ({"p_parquet": b"PARE" + b"x" * 20 + b"PARE"}, "p.parquet is encrypted Parquet: expected it in the clear"),
        ({"p_csv_gz": _flipped(PACKED, -6)}, "p.csv.gz is damaged: .*incorrect data check"),
        ({"p_csv_gz": PACKED[:-20]}, "p.csv.gz is damaged: it ends within a gzip member"),
        ({"p_csv_gz": PACKED + b"garbage"}, "p.csv.gz is damaged: .*incorrect header"),
    ],
)
def test_each_kind_of_damage_is_found_and_the_file_named(files, says):
    board = Blackboard.open("memory://")
    with pytest.raises(UnreadableUpdate, match=says):
        read_pages(board, update_of(board, good=GOOD, **files))


def test_a_page_without_values_is_missed_by_no_count():
    """Write a footer that announces more rows than its pages hold, in all of its figures."""
    data = damaged.parquet(damaged.numbers())
    for occurrence in (0, 0, -1):
        data = damaged.with_other_number(data, 20_000, 20_001, occurrence)
    board = Blackboard.open("memory://")
    with pytest.raises(UnreadableUpdate, match="damaged"):
        read_pages(board, update_of(board, p_parquet=data))


def test_file_that_was_replaced_while_its_pages_are_read_is_changed(local_board):
    update = update_of(local_board, p_parquet=GOOD)
    update_of(local_board, p_parquet=damaged.parquet(damaged.numbers(7)))
    with pytest.raises(UpdateChanged):
        read_pages(local_board, update)


def test_the_time_may_be_over_within_a_file():
    board = Blackboard.open("memory://")
    answers = iter([False, True])
    with pytest.raises(OutOfTime):
        read_pages(board, update_of(board, p_parquet=GOOD), out_of_time=lambda: next(answers))


def test_a_long_column_is_read_piece_by_piece():
    """Read a row group of 24 MB with requests of at most 4 MiB."""

    class Measuring(Blackboard):
        longest = 0

        def part(self, key, start, length):
            self.longest = max(self.longest, length)
            return super().part(key, start, length)

    board = Measuring.open("memory://")
    table = pa.table({"id": pa.array(range(3_000_000), pa.int64())})
    update = update_of(board, p_parquet=damaged.parquet(table, row_group_size=3_000_000))
    assert read_pages(board, update).rows == 3_000_000
    assert update.size > 24_000_000
    assert board.longest <= 4 << 20

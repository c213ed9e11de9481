"""Footers against the rest of the file: a missing part is refused, with the file and the figures."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from feed_assets.core.errors import UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import FOOTER_BYTES, check_footer, check_footers
from feed_assets.feeds.parquet_columns import read_columns
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.each_case import each_case

AT = Partition(Feed.parse("ads/raw/v1.0"), "2019-11-24")
KEY = f"{AT.path}/20191125.060000/part.parquet"
NESTED = pa.table({"id": [1, 2, 3], "tags": [["a", "b"], [], None], "at": [{"x": 1}, None, {"x": 2}]})


def rows_of(data: bytes, board: Blackboard | None = None) -> int:
    board = board or Blackboard.open("memory://")
    board.put(KEY, data)
    update = Update(AT, "20191125.060000", board.files(AT.path))
    return check_footers(board, [update])[KEY]


@each_case(
    ("table", "options"),
    [
        (damaged.numbers(), {}),
        (damaged.numbers(), {"row_group_size": 700, "compression": "snappy", "use_dictionary": True}),
        (damaged.numbers(), {"data_page_version": "2.0", "compression": "zstd", "write_page_index": True}),
        (damaged.numbers(0), {}),
        (NESTED, {"row_group_size": 2}),
        (pa.table({f"c{number}": [1] for number in range(2000)}), {}),  # Its footer is longer than one request.
    ],
)
def test_whole_files_are_read_as_they_are(board, table, options):
    assert rows_of(damaged.parquet(table, **options), board) == table.num_rows


@each_case(
    ("data", "says"),
    [
        (
            damaged.without_middle(damaged.parquet(damaged.numbers()), 0.1, 0.2),
            r"row group 0 of 1: column 0 is at bytes 4 to 160,\d+ of 48,\d+",
        ),
        (damaged.without_middle(damaged.parquet(damaged.numbers()), 0.3, 0.4), "column 0 is at bytes"),
        (damaged.without_second_group(), "row group 1 of 2: column 0 is at bytes"),
        (damaged.parquet(damaged.numbers())[:-1], "not a Parquet file: expected a footer"),
        (damaged.parquet(damaged.numbers())[-600:], "column 0 is at bytes"),
        (b"PAR1" + b"\x00" * 100 + b"\xff\xff\xff\x7fPAR1", "not a Parquet file: expected a footer"),
        (
            b"PAR1" + bytes(FOOTER_BYTES + 8) + (FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1",
            r"has a footer of 67,108,8\d\d bytes: expected at most 67,108,864",
        ),
        (damaged.with_long_paths(), r"The paths of its columns have 100,0\d\d,\d+ bytes: expected at most 67,108,864"),
        (damaged.with_swapped_columns(), "Row group 0 has the column bb: expected aa, as in the schema"),
        (b"PARE" + b"x" * 20 + b"PARE", "is encrypted Parquet: expected it in the clear"),
        (b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1", "has a footer that cannot be read"),
    ],
)
def test_a_file_of_which_a_part_is_missing_is_refused_with_its_figures(data, says):
    with pytest.raises(UnreadableUpdate, match=rf"^{KEY} .*{says}"):
        rows_of(data)


@each_case(("says", "data"), damaged.footers_that_end_processes().items())
def test_a_footer_at_which_pyarrow_would_end_the_process_is_refused(says, data):
    board = Blackboard.open("memory://")
    with pytest.raises(UnreadableUpdate, match=rf"^{KEY} has .*{says}"):
        rows_of(data, board)
    with pytest.raises(UnreadableUpdate, match=rf"^{KEY} has .*{says}"):
        read_columns(board, board.files(AT.path))


@each_case("occurrence", [0, 1, -1])
def test_figures_that_contradict_each_other_are_refused(occurrence):
    """Rows of the file, values of its column, and rows of its row group."""
    data = damaged.with_other_number(damaged.parquet(damaged.numbers()), 20_000, 19_999, occurrence)
    with pytest.raises(UnreadableUpdate, match=r"20000|20,000|19999"):
        rows_of(data)


def test_row_groups_that_lie_on_each_other_are_refused():
    data = damaged.two_groups()
    start = damaged.pq.read_metadata(damaged.io.BytesIO(data)).row_group(1).column(0).data_page_offset
    with pytest.raises(UnreadableUpdate, match="another begins at"):
        rows_of(damaged.with_other_number(data, start, start - 1000, 0))


def test_a_row_group_without_rows_may_be_anywhere():
    """Imitate column_chunk_key_value_metadata.parquet of apache/parquet-testing: both columns begin at byte 0."""
    group = SimpleNamespace(num_rows=0, num_columns=2)
    flat = SimpleNamespace(column=lambda _: SimpleNamespace(max_repetition_level=0))
    metadata = SimpleNamespace(num_rows=0, num_columns=2, num_row_groups=1, row_group=lambda _: group, schema=flat)
    assert check_footer(File(KEY, 400), metadata, 150) == 0


def test_a_row_group_whose_middle_spark_looks_for_behind_the_file_is_refused():
    """Begin the file with another column: Spark counts from the first column of the row group."""

    def metadata(first: int, second: int) -> SimpleNamespace:
        columns = [
            SimpleNamespace(num_values=7, data_page_offset=at, dictionary_page_offset=None, total_compressed_size=size)
            for at, size in ((first, 250), (second, 590))
        ]
        group = SimpleNamespace(num_rows=7, num_columns=2, column=columns.__getitem__)
        flat = SimpleNamespace(column=lambda _: SimpleNamespace(max_repetition_level=0))
        return SimpleNamespace(num_rows=7, num_columns=2, num_row_groups=1, row_group=lambda _: group, schema=flat)

    file = File(KEY, 1000)
    assert check_footer(file, metadata(4, 254), 900) == 7
    with pytest.raises(UnreadableUpdate, match="its middle is at byte 1,020 of 1,000: Spark would skip the row group"):
        check_footer(file, metadata(600, 4), 900)


def test_a_replaced_file_is_reported_as_changed(local_board):
    local_board.put(KEY, damaged.parquet(damaged.numbers()))
    update = Update(AT, "20191125.060000", local_board.files(AT.path))
    local_board.put(KEY, damaged.parquet(damaged.numbers(7)))
    with pytest.raises(UpdateChanged):
        check_footers(local_board, [update])

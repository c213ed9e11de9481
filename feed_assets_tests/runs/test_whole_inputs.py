"""A run reads foreign Parquet files completely, or fails, for any use of the rows in its function."""

from dataclasses import replace

import pytest

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.runs.phases import Published
from feed_assets.runs.recipe import RecipeInput
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, TOP, Lake, rows

SOURCE = RecipeInput("raw", RAW, "parquet", "id bigint")
FUNCTIONS = {
    "all": lambda raw: raw,
    "one row": lambda raw: raw.limit(1),
    "few rows": lambda raw: raw.where("id < 10"),
    "no row": lambda raw: raw.where("id < 0"),
    "none of its columns": lambda raw: raw.selectExpr("1 AS one").limit(3),
    "nothing of it": lambda raw: raw.sparkSession.sql("select 1 id"),
    "two times": lambda raw: raw.unionByName(raw),
}
TAGGED = {
    "all": lambda raw: raw,
    "one row": lambda raw: raw.limit(1),
    "few rows": lambda raw: raw.where("id < 10"),
}
MADE = [*((name, False) for name in FUNCTIONS), *((name, True) for name in TAGGED)]


def drop(lake: Lake, data: bytes) -> None:
    publish(lake.services.board, Partition(RAW, DAY), {"part.parquet": data, "a/part.parquet": WHOLE}, NOW)


WHOLE = damaged.parquet(damaged.numbers())


def clean(lake: Lake, name: str, *, tagged: bool, **changes):
    transform = (TAGGED if tagged else FUNCTIONS)[name]
    source = replace(SOURCE, tagged=tagged)
    return lake.clean(sources=(source,), transform=transform, event_time=None, code_version=name, **changes)


@pytest.mark.parametrize(("name", "tagged"), MADE)
def test_a_function_may_leave_out_what_it_likes_of_whole_files(lake, name, tagged):
    drop(lake, WHOLE)
    assert isinstance(clean(lake, name, tagged=tagged), Published)


@pytest.mark.parametrize(("name", "tagged"), MADE)
def test_a_file_of_which_spark_leaves_rows_out_is_refused(lake, name, tagged):
    drop(lake, damaged.with_group_that_spark_leaves_out())
    with pytest.raises(UnreadableUpdate, match=r"/part\.parquet cannot be read whole: .* 20,000 rows.* read 10,000"):
        clean(lake, name, tagged=tagged)
    assert lake.valid() is None


def test_a_monitor_of_foreign_rows_reads_all_of_them(lake):
    """Use a dataset without rejects, so that nothing is counted on the way."""
    drop(lake, damaged.with_group_that_spark_leaves_out())
    with pytest.raises(UnreadableUpdate, match="20,000 rows"):
        clean(lake, "all", tagged=False, rejects=None)


@pytest.mark.parametrize("tagged", [False, True])
def test_the_footer_of_a_file_is_read_once(lake, monkeypatch, tagged):
    keys, stream = [], Blackboard.stream

    def counted(board, key, *start):
        keys.append(key)
        return stream(board, key, *start)

    drop(lake, WHOLE)
    monkeypatch.setattr(Blackboard, "stream", counted)
    clean(lake, "all", tagged=tagged)
    found = [key.removeprefix(f"{Partition(RAW, DAY).path}/").split("/", 1)[1] for key in keys if "part.parquet" in key]
    assert sorted(found) == ["a/part.parquet", "part.parquet"]


@pytest.mark.parametrize("data", [damaged.without_second_group(), damaged.without_middle(WHOLE, 0.2, 0.25)])
def test_a_file_without_its_middle_is_refused(lake, data):
    drop(lake, data)
    with pytest.raises(UnreadableUpdate, match=r"part\.parquet cannot be read whole .*column 0 is at bytes"):
        clean(lake, "all", tagged=False)
    assert lake.valid() is None


def test_an_update_of_ours_without_its_middle_is_refused_as_an_input(lake):
    drop(lake, damaged.two_groups())
    clean(lake, "all", tagged=False)
    assert len(rows(lake)) == 40_000
    (file,) = lake.valid(CLEAN).files[:1]
    lake.services.board.put(file.key, damaged.without_second_group())
    with pytest.raises(UnreadableUpdate, match="cannot be read whole"):
        lake.top()
    assert lake.valid(TOP) is None


def test_a_flipped_bit_of_our_update_is_noticed_by_its_reader(lake):
    drop(lake, WHOLE)
    clean(lake, "all", tagged=False)
    (file, *_) = lake.valid(CLEAN).files
    lake.services.board.put(file.key, damaged.with_flipped_bit(lake.services.board.get(file.key), at=2000))
    with pytest.raises(UnreadableUpdate, match=r"is damaged: .*checksum"):
        lake.top()
    assert lake.valid(TOP) is None

"""Counts by window: of a run's own rows as it writes them, and of another team's records by their first reader."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report, windows_of
from feed_assets.feeds.write import publish
from feed_assets.ledger import log, updates
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.tables import update as table
from feed_assets.runs.build import build
from feed_assets.runs.checks import Check
from feed_assets.runs.phases import Published, Refused
from feed_assets.runs.recipe import RecipeInput
from feed_assets_tests.support.build_lake import CLEAN, CLEANING, DAY, NOW, RAW, SCHEMA, Lake, at, stepping

ONE, TWO, BAD = f"1,{DAY} 01:00:00", f"2,{DAY} 02:00:00", f"x,{DAY} 02:04:59.9"
UNTIMED = f"3,{DAY}"
COUNTED = RecipeInput("raw", RAW, "csv", SCHEMA, event_time="at", grain="5min")
RECORDS = {at(1): 1, at(2): 2}
NEVER = Check("never", "there are no rows", lambda found: found < 0, "count(1)")


class Killed(BaseException):
    """Stands for the end of a process."""


def windows(lake: Lake, feed: Feed = RAW, key: str = DAY):
    """Return the recorded counts of a partition's updates, in order."""
    with lake.services.ledger.read() as connection:
        query = sa.select(table.c.windows).where(updates.is_(Partition(feed, key))).order_by(table.c.id)
        return [text and windows_of(text) for text in connection.execute(query).scalars()]


def changes(lake: Lake):
    """Return the partitions that the log has as counted."""
    with lake.services.ledger.read() as connection:
        found = log.after(connection, 0, log.last(connection), 1000)
    return [each.partition for each in found if each.kind == log.COUNTED]


def test_the_rows_of_a_dataset_are_counted_as_they_are_written(lake):
    lake.drop(ONE, TWO, BAD)
    lake.clean(grain="hour")
    assert windows(lake, CLEAN) == [{at(1): 1, at(2): 1}]
    assert windows(lake) == [None]
    lake.clean(code_version="2")
    assert windows(lake, CLEAN)[1] is None


@pytest.mark.parametrize("tagged", [False, True])
def test_the_first_reader_of_a_foreign_feed_counts_all_its_records(lake, tagged):
    lake.drop(ONE, TWO, BAD, UNTIMED)
    lake.clean(sources=(replace(COUNTED, tagged=tagged),))
    assert windows(lake) == [RECORDS]
    assert changes(lake) == [Partition(RAW, DAY)]
    with lake.services.ledger.read() as connection:
        assert updates.newest(connection, [Partition(RAW, DAY)])[Partition(RAW, DAY)].changed == lake_count(lake)


def lake_count(lake: Lake) -> int:
    """Return the number of the last logged count."""
    with lake.services.ledger.read() as connection:
        found = log.after(connection, 0, log.last(connection), 1000)
    return max(each.sequence for each in found if each.kind == log.COUNTED)


def test_a_counted_update_is_not_counted_again(lake):
    lake.drop(ONE, TWO, BAD)
    lake.clean(sources=(COUNTED,))
    lake.clean(sources=(COUNTED,), code_version="2")
    assert (windows(lake), len(changes(lake))) == ([RECORDS], 1)


def test_a_run_that_refuses_its_own_rows_has_counted_the_records_all_the_same(lake):
    lake.drop(ONE, TWO, BAD)
    assert isinstance(lake.clean(sources=(COUNTED,), checks=(NEVER,)), Refused)
    assert windows(lake) == [RECORDS]


def test_counting_missed_by_a_killed_run_is_done_by_the_next(lake):
    def kill(step: str) -> None:
        if step == f"parts of {CLEAN} written":
            raise Killed

    lake.drop(ONE, TWO, BAD)
    with pytest.raises(Killed):
        lake.clean(services=stepping(lake, kill), sources=(COUNTED,))
    assert windows(lake) == [None]
    assert isinstance(lake.clean(sources=(COUNTED,)), Published)
    assert windows(lake) == [RECORDS]


def test_each_update_of_several_has_its_own_counts(lake):
    lake.drop(ONE, key="2019-11-24")
    lake.drop(TWO, BAD, key="2019-11-24+1")
    lake.drop(key="2019-11-24+2")
    keys = ["2019-11-24", "2019-11-24+1", "2019-11-24+2"]
    recipe = replace(CLEANING, sources=(replace(COUNTED, fans_in=True),))
    build(recipe, Partition(CLEAN, DAY), {"raw": [Partition(RAW, key) for key in keys]}, lake.services)
    assert [windows(lake, key=key) for key in keys] == [[{at(1): 1}], [{at(2): 2}], [{}]]


def test_new_updates_and_changed_files_are_counted_anew(lake):
    first = lake.drop(ONE)
    lake.clean(sources=(COUNTED,))
    lake.drop(ONE, TWO)
    lake.clean(sources=(COUNTED,))
    assert windows(lake) == [{at(1): 1}, {at(1): 1, at(2): 1}]
    newest = lake.valid(RAW)
    lake.services.board.put(newest.files[0].key, b"id,at\n1,2019-11-24 05:00:00\n")
    lake.clean(sources=(COUNTED,))
    assert first.id < newest.id
    assert windows(lake) == [{at(1): 1}, {at(5): 1}]


def test_a_feed_with_reports_of_its_producer_is_not_counted_by_runs(lake):
    told = Report(RAW, "", "s3://theirs/part-1", ((at(1), 7),))
    assert report(lake.services.ledger, [told], NOW, "producer").accepted == 1
    lake.drop(ONE)
    lake.clean(sources=(COUNTED,))
    assert (windows(lake), changes(lake)) == ([None], [])


def drop_parquet(lake, spark, folder):
    rows = spark.createDataFrame([(1, f"{DAY} 01:00:00")], "id int, at string").selectExpr("id", "timestamp(at) as at")
    rows.coalesce(1).write.parquet(str(folder))
    (file,) = folder.glob("part-*.parquet")
    return publish(lake.services.board, Partition(RAW, DAY), {"part-0.parquet": file.read_bytes()}, NOW)


def test_foreign_parquet_files_are_counted(lake, spark, tmp_path):
    drop_parquet(lake, spark, tmp_path / "theirs")
    lake.clean(sources=(replace(COUNTED, format="parquet"),), rejects=None)
    assert windows(lake) == [{at(1): 1}]


def test_counting_the_input_reads_no_file_again(lake, spark, tmp_path):
    """Delete the file once all rows are written: reading it again would raise."""
    dropped = drop_parquet(lake, spark, tmp_path / "theirs")

    def remove(step: str) -> None:
        if step == f"parts of {CLEAN} written":
            lake.services.board.delete([dropped.files[0].key])

    counted = replace(COUNTED, format="parquet")
    built = lake.clean(sources=(counted,), rejects=None, services=stepping(lake, remove))
    assert isinstance(built, Published)
    assert windows(lake) == [{at(1): 1}]

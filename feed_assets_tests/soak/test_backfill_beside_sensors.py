"""A backfill of data that have just arrived, launched in the UI while the sensors are on."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port, group, wait_for_port
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds import read, write
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.execute.asset_function import BACKFILL
from feed_assets.settings import settings
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.ui_backfills import launch

DAYS = ["2020-01-01", "2020-01-02", "2020-01-03"]
ASSETS = ["t/copy", "t/copy_rejects", "t/sums"]
PATIENCE = 300
"""Limit in seconds: runs start Spark on a shared machine."""
WAITS = ("comes last:", "this run waits for it")
"""Words in the log of a run that meets another run."""
PROJECT = dedent(
    '''
    import time
    from pathlib import Path

    import dagster as dg

    from feed_assets import feed_asset, foreign_feed, with_automation

    GOES_ON = Path(__file__).with_name("goes_on")
    days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
    raw = foreign_feed("t/raw/v1.0", partitions_def=days, schema="k string, n int")


    @feed_asset("t/copy/v1.0", partitions_def=days, inputs={"raw": raw})
    def copy(raw):
        """Return the rows unchanged, once the test has seen two runs meet."""
        while not GOES_ON.exists():
            time.sleep(0.1)
        return raw


    @feed_asset("t/sums/v1.0", partitions_def=days, inputs={"copy": copy})
    def sums(copy):
        """Return sums of the numbers, in the same run of a backfill as their input."""
        return copy.groupBy("k").agg({"n": "sum"}).withColumnRenamed("sum(n)", "n")


    defs = with_automation(dg.Definitions(assets=[raw, copy, sums]))
    '''
)


@pytest.mark.parametrize(
    "days", [pytest.param(DAYS, id="joint"), pytest.param(DAYS[:1], id="single", marks=pytest.mark.soak)]
)
def test_backfill_and_sensor_runs_of_the_same_data_both_succeed(home: Path, tmp_path: Path, monkeypatch, days):
    (tmp_path / "met.py").write_text(PROJECT)
    prepare(home)
    for name, value in {"PYTHONPATH": tmp_path, "PYTHONWARNINGS": "ignore"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    port, board = free_port(), open_board(settings())
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), "-m", "met"]
    for number, day in enumerate(days):
        write.publish(board, at("raw", day), {"part.csv": f"k,n\na,{number}\n".encode()}, datetime.now(UTC))
    with dg.DagsterInstance.get() as instance, group("dagster dev", command, tmp_path / "dev.log") as server:
        wait_for_port(server, port)
        of_sensors = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        wait_until(lambda: bool(instance.get_runs(of_sensors)), "the run of a sensor", PATIENCE)
        backfill = launch(port, ASSETS, days)
        wait_until(lambda: len(met(instance)) > 0, "two runs that meet", PATIENCE)
        (tmp_path / "goes_on").touch()
        wait_until(lambda: state_of(instance, backfill).status in OVER, "the end of the backfill", PATIENCE)
        wait_until(lambda: all(each.is_finished for each in instance.get_runs()), "the end of all runs", PATIENCE)
        ended = {each.run_id: each.status for each in instance.get_runs()}
        assert {*ended.values()} == {dg.DagsterRunStatus.SUCCESS}, ended
        assert state_of(instance, backfill).status is BulkActionStatus.COMPLETED_SUCCESS
        assert {BACKFILL in each.tags for each in instance.get_runs()} == {True, False}
    assert [len(valid(name, day)) for name in ("copy", "copy_rejects", "sums") for day in days] == [1] * 3 * len(days)
    with open_ledger(settings().ledger).read() as connection:
        assert runs.running(connection) == ()


OVER = {BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.COMPLETED_FAILED, BulkActionStatus.FAILED}


def at(name: str, day: str) -> Partition:
    return Partition(Feed.parse(f"t/{name}/v1.0"), day)


def valid(name: str, day: str) -> list[Update]:
    """Return the valid updates of a partition, one for each build."""
    return [each for each in read.history(open_board(settings()), at(name, day)) if isinstance(each, Update)]


def state_of(instance: dg.DagsterInstance, backfill: str) -> PartitionBackfill:
    found = instance.get_backfill(backfill)
    assert found
    return found


def met(instance: dg.DagsterInstance) -> list[str]:
    """Return the runs whose log says that they met another run."""
    unfinished = [run.run_id for run in instance.get_runs() if not run.is_finished]
    return [run for run in unfinished if any(is_met(each.user_message) for each in instance.all_logs(run))]


def is_met(message: str) -> bool:
    return any(words in message for words in WAITS)

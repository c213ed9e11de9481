"""A backfill of a month from the UI while new data land, with our own `dagster.yaml` and both sensors on."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port, group, wait_for_port
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.opened import open_board
from feed_assets.settings import settings
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.ui_backfills import launch

MONTH = [f"2020-01-{day:02}" for day in range(1, 29)]
TODAY = "2020-01-30"
PATIENCE = 600
"""Limit in seconds: the month is 28 processes, whose duration is not under test."""
PROJECT = dedent(
    '''
    import dagster as dg

    from feed_assets import feed_asset, foreign_feed, with_automation

    days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-02-01")
    raw = foreign_feed("t/raw/v1.0", partitions_def=days, schema="k string, n int")


    @feed_asset("t/copy/v1.0", partitions_def=days, inputs={"raw": raw})
    def copy(raw):
        """Return the rows unchanged."""
        return raw


    defs = with_automation(dg.Definitions(assets=[raw, copy]))
    '''
)


@pytest.mark.soak
def test_new_data_are_built_while_most_of_a_backfill_still_waits(home: Path, tmp_path: Path, monkeypatch):
    """Backfill a month without input: no sensor requests it, and each run ends as soon as it has looked."""
    (tmp_path / "beside.py").write_text(PROJECT)
    prepare(home)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.setenv("FEED_ASSETS_PARTITIONS_PER_RUN", "1")  # New data must overtake a month of runs.
    monkeypatch.chdir(tmp_path)
    port, board = free_port(), open_board(settings())
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), "-m", "beside"]
    # Open the instance first: two processes that create Dagster's tables at once disturb each other.
    with dg.DagsterInstance.get() as instance, group("dagster dev", command, tmp_path / "dev.log") as server:
        wait_for_port(server, port)
        backfill = launch(port, ["t/copy", "t/copy_rejects"], MONTH)
        of_month = {"dagster/backfill": backfill}
        wait_until(
            lambda: len(instance.get_runs(dg.RunsFilter(tags=of_month))) == len(MONTH),
            "the month to be queued",
            PATIENCE,
        )
        raw, copy = (Partition(Feed.parse(f"t/{name}/v1.0"), TODAY) for name in ("raw", "copy"))
        write.publish(board, raw, {"part.csv": b"k,n\na,1\n"}, datetime.now(UTC))
        of_today = dg.RunsFilter(tags={"dagster/partition": TODAY}, statuses=[dg.DagsterRunStatus.STARTED])
        wait_until(lambda: bool(instance.get_runs(of_today)), "the beginning of today's run", PATIENCE)
        waiting = instance.get_runs(dg.RunsFilter(tags=of_month, statuses=[dg.DagsterRunStatus.QUEUED]))
        wait_until(lambda: read.latest(board, copy).update is not None, "today's result", PATIENCE)
    assert waiting, "today's run began after the last of the month"

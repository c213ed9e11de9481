"""Ctrl-C or a cancellation ends a command that waits for another run's partition, at once and without leftovers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import this_process, utc_now
from feed_assets.settings import settings

ONE = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, with_automation

raw = foreign_feed("t/raw/v1.0", schema="k int")

@feed_asset("t/one/v1.0", inputs={"raw": raw})
def one(raw):
    raise NotImplementedError

defs = with_automation(dg.Definitions(assets=[raw, one]))
"""
OUTPUT = Partition(Feed.parse("t/one/v1.0"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_wait_and_the_other_run_goes_on(home, tmp_path, monkeypatch, number, code):
    (tmp_path / "waits_for_one.py").write_text(ONE)
    monkeypatch.chdir(tmp_path)
    raw, ledger = Partition(Feed.parse("t/raw/v1.0")), open_ledger(settings().ledger)
    publish(open_board(settings()), raw, {"part-1.csv": b"k\n1\n"}, utc_now())
    runs.start(ledger, runs.Run("other", OUTPUT, runs.RUNNING, this_process(), utc_now()))
    command = [str(Path(sys.executable).with_name("feed-assets")), "build", "t/one/v1.0", "-m", "waits_for_one"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        lines = iter(process.stderr.readline, "")
        assert any("t/one/v1.0 is being built by run other" in line for line in lines)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == code
    with ledger.read() as connection:
        assert [run.id for run in runs.running(connection)] == ["other"]
        assert runs.last(connection, OUTPUT).id == "other"

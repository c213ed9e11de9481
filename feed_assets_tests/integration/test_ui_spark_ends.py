"""`feed-assets ui` when the Spark of all runs is killed: it starts again, and the build counts as an attempt."""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets.cli.processes import free_port, group
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import found_ledger
from feed_assets.ledger.tables import run
from feed_assets_tests.support.servers import family, wait_until

PROJECT = """
import time
from pathlib import Path

import dagster as dg

from feed_assets import feed_asset, foreign_feed, with_automation

raw = foreign_feed("ads/raw/v1.0", format="csv", schema="k string, n int")


@feed_asset("ads/made/v1.0", inputs={"rows": raw})
def made(rows):
    Path("began").touch()
    while Path("hold").exists():
        time.sleep(0.05)
    return rows


defs = with_automation(dg.Definitions(assets=[raw, made]))
"""
SECONDS = 300
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MADE = Partition(Feed.parse("ads/made/v1.0"), "")


def test_after_the_end_of_spark_the_ui_starts_again_and_the_build_is_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held.py").write_text(PROJECT)
    (tmp_path / "hold").touch()
    board = Blackboard.open((tmp_path / "home" / "blackboard").as_uri(), create=True)
    write.publish(board, Partition(Feed.parse("ads/raw/v1.0"), ""), {"a.csv": b"k,n\na,1\n"}, NOW)
    command = [sys.executable, "-P", "-c", f"from feed_assets.cli.ui import ui; ui({free_port()}, 'held')"]
    log = tmp_path / "ui.log"
    with group("feed-assets ui", command, log) as server:
        wait_until(lambda: server.check() or (tmp_path / "began").exists(), "the build", SECONDS)
        [spark] = [each for each in family(server.process.pid) if each.name() == "java"]
        spark.kill()
        (tmp_path / "hold").unlink()
        wait_until(lambda: server.check() or read.latest(board, MADE).update, "the second attempt", SECONDS)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    lines = log.read_text().splitlines()
    addresses = [line for line in lines if line.startswith("web UI: ")]
    assert (len(addresses), len({*addresses})) == (2, 1), "the same address, with the same token"
    assert any("Spark ended with exit code" in line and f"used it: {MADE}" in line for line in lines)
    with found_ledger(f"sqlite:///{tmp_path / 'home' / 'ledger.db'}").read() as connection:
        first, *_ = connection.execute(sa.select(run.c.state, run.c.reason).order_by(run.c.began)).all()
    assert first.state == "failed"
    assert first.reason.startswith("SparkDied: Spark ended with exit code")

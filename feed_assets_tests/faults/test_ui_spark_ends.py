"""`feed-assets ui` when Spark or the code server is killed: it starts them again, and a build counts as an attempt."""

import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from feed_assets.cli.processes import free_port, group
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import found_ledger
from feed_assets.ledger.tables import run
from feed_assets_tests.faults import held_project as project
from feed_assets_tests.support.servers import family, wait_until

SECONDS = 300
RAW, MADE = (Partition(Feed.parse(feed), project.KEYS[0]) for feed in (project.RAW, project.MADE))
NEXT_RAW, NEXT = (replace(each, key=project.KEYS[1]) for each in (RAW, MADE))


def has_code(process: psutil.Process) -> bool:
    """Return whether a process is the child of a code server, which has the code."""
    with suppress(psutil.Error):  # An ended run may still be a zombie.
        return {"api", "grpc"} <= {*process.cmdline()}
    return False


def test_after_the_end_of_spark_or_of_the_code_the_ui_builds_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    hold, log = tmp_path / "hold", tmp_path / "ui.log"
    for name, value in {"DAGSTER_HOME": tmp_path / "home", project.HOLD: hold, "PYTHONWARNINGS": "ignore"}.items():
        monkeypatch.setenv(name, str(value))
    hold.touch()
    board = Blackboard.open((tmp_path / "home" / "blackboard").as_uri(), create=True)
    write.publish(board, RAW, {"a.csv": b"k,n\na,1\nb,2\n"}, datetime.now(UTC))
    command = [sys.executable, "-c", f"from feed_assets.cli.ui import ui; ui({free_port()}, '{project.__name__}')"]
    with group("feed-assets ui", command, log) as server:
        wait_until(lambda: server.check() or hold.with_name("begun").exists(), "a held job", SECONDS)
        [spark] = [each for each in family(server.process.pid) if each.name() == "java"]
        spark.kill()
        hold.unlink()
        wait_until(lambda: server.check() or read.latest(board, MADE).update, "the second attempt", SECONDS)
        [code] = [each for each in family(server.process.pid) if has_code(each)]
        code.kill()
        write.publish(board, NEXT_RAW, {"a.csv": b"k,n\na,1\n"}, datetime.now(UTC))
        wait_until(lambda: server.check() or read.latest(board, NEXT).update, "a build after the code's end", SECONDS)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    lines = log.read_text().splitlines()
    addresses = [line for line in lines if line.startswith("web UI: ")]
    assert (len(addresses), len({*addresses})) == (2, 1), "the same address, with the same token"
    assert any("Spark ended with exit code" in line and f"used it: {MADE}" in line for line in lines)
    assert (tmp_path / "home" / "spark" / "connect.log.old").stat().st_size > 0
    with found_ledger(f"sqlite:///{tmp_path / 'home' / 'ledger.db'}").read() as connection:
        first, *_ = connection.execute(sa.select(run.c.state, run.c.reason).order_by(run.c.began)).all()
    assert first.state == "failed"
    assert first.reason.startswith("SparkDied: Spark ended with exit code")

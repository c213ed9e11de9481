"""The web UI as a user starts and ends it: a real Spark Connect server, web server and daemon."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from feed_assets.cli.processes import ProcessFailed, free_port, group, is_free, wait_for_port
from feed_assets_tests.servers import wait_until

DEFINITIONS = """
import os
import dagster as dg

@dg.asset(description=os.environ["FEED_ASSETS_SPARK_REMOTE"])
def one() -> int:
    return 1

defs = dg.Definitions(assets=[one])
"""
ROOT = Path(__file__).parents[2]
SLEEP = "import time; time.sleep(600)"


def answers(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def family(pid):
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def lives(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def started(tmp_path):
    """`feed-assets ui` on a module of its own, in a folder without a workspace.yaml."""
    port = free_port()
    (tmp_path / "tiny.py").write_text(DEFINITIONS)
    log = tmp_path / "ui.log"
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)}
    command = f"from feed_assets.cli.ui import ui; ui({port}, 'tiny')"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", command], cwd=tmp_path, env=environment, stdout=output, stderr=output
        )
    yield process, port, log
    if process.poll() is None:
        process.terminate()
        process.wait(60)


def test_the_ui_answers_and_leaves_nothing_behind(started, tmp_path):
    process, port, log = started
    wait_until(lambda: process.poll() is not None or answers(port), "the web server", 150)
    assert process.poll() is None, log.read_text()
    ours = family(process.pid)
    assert "java" in {each.name() for each in ours}
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert [each for each in ours if lives(each)] == []
    assert is_free(port)
    assert (tmp_path / "home" / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()


def test_a_group_ends_with_its_grandchildren(tmp_path):
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
    with group("test", [sys.executable, "-c", script], tmp_path / "log") as started:
        wait_until(lambda: len(family(started.process.pid)) == 2, "a grandchild")
        ours = family(started.process.pid)
    assert [each for each in ours if lives(each)] == []


def test_a_child_that_left_the_group_ends_too(tmp_path):
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'], start_new_session=True)"
    with group("test", [sys.executable, "-c", script], tmp_path / "log") as started:
        wait_until(lambda: len(family(started.process.pid)) == 2, "a grandchild")
        ours = family(started.process.pid)
    assert [each for each in ours if lives(each)] == []


def test_a_server_that_ends_instead_of_answering_is_named(tmp_path):
    with (
        group("the server (log: x.log)", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log") as started,
        pytest.raises(ProcessFailed, match=r"the server \(log: x.log\) ended by itself with exit code 3"),
    ):
        wait_for_port(started, free_port())

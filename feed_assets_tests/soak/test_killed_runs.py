"""`feed-assets run` and the daemon, killed repeatedly while partitions wait: everything is built exactly once."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random, SystemRandom

import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.settings import settings
from feed_assets.spark.session import conf
from feed_assets_tests.soak import oracle
from feed_assets_tests.soak.daemon_steps import PROJECT, drop, judge_until_idle
from feed_assets_tests.soak.operations import running
from feed_assets_tests.soak.project import KEYS
from feed_assets_tests.support.progress import print_progress
from feed_assets_tests.support.servers import connect_server, stop

LONGEST = 12
"""Latest kill of a process, in seconds after its start: its first run has begun by then."""

KILLS = 20

BEGINS = 30
"""Seconds until Dagster fails a run that never began. The users' two minutes would be too long here."""


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("SOAK_SEED") or SystemRandom().randrange(10**6))
    print_progress(f"SOAK_SEED={seed}")
    return Random(seed)  # noqa: S311


@pytest.fixture
def connect(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Start one Spark for all runs, and keep the users' number of attempts."""
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    with connect_server(tmp_path, conf(settings()), os.environ) as url:
        monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", url)
        settings.cache_clear()
        yaml = prepare(home) / "dagster.yaml"
        yaml.write_text(re.sub(r"(start_timeout_seconds): \d+", rf"\1: {BEGINS}", yaml.read_text()))
        yield


def begun() -> "subprocess.Popen[bytes]":
    command = [str(Path(sys.executable).with_name("feed-assets")), "run", "--until-idle", "-m", PROJECT]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.parametrize("kills", [2, pytest.param(KILLS, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("connect")
def test_run_after_killed_runs_builds_everything_once(kills: int, random: Random) -> None:
    expected: dict[str, int] = {}
    for number in range(kills):
        expected |= {key: drop(key, 100 * number + at) for at, key in enumerate(KEYS)}
        process = begun()
        time.sleep(random.uniform(2, LONGEST))
        stop(process)
    last = begun()
    assert last.wait(600) == 0
    assert oracle.judge(expected) == []


@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("connect")
def test_after_kills_of_the_daemon_everything_is_built_once(kills: int, home: Path, random: Random) -> None:
    """Kill the daemon between updates.

    Dagster fails a run that never began, so each partition can afford one kill a day.
    """
    expected: dict[str, int] = {}
    with running(home, PROJECT) as operations:
        for number in range(kills):
            expected |= {key: drop(key, 100 * number + at) for at, key in enumerate(KEYS)}
            time.sleep(random.uniform(2, LONGEST))
            operations.kill("daemon", random)
            operations.start()
        assert judge_until_idle(lambda: oracle.judge(expected), 600) == []

"""The processes that a command starts end with it. The web UI itself is in `integration/test_web_ui.py`."""

import sys

import pytest

from feed_assets.cli.processes import ProcessFailed, free_port, group, wait_for_port
from feed_assets_tests.servers import family, lives, wait_until

SLEEP = "import time; time.sleep(600)"


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

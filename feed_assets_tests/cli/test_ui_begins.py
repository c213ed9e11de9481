"""What `feed-assets ui` looks at before it starts anything."""

from importlib import import_module

import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port
from feed_assets_tests.cli.main_call import exit_and_errors


@pytest.mark.parametrize(
    ("right", "wrong", "name"),
    [
        ("class: WarmRunLauncher", "class: WarmLauncher", "WarmLauncher"),
        ("launcher.warm", "launcher.cold", "launcher.cold"),
        ("class: QueuedRunCoordinator", "class: RunQueue", "RunQueue"),
        ("dequeue_interval_seconds: 1", "dequeue_interval: 1", "dequeue_interval"),
    ],
)
def test_what_no_run_could_be_launched_by_is_said_and_nothing_is_started(home, monkeypatch, capsys, right, wrong, name):
    config = prepare(home) / "dagster.yaml"
    config.write_text(config.read_text().replace(right, wrong))
    monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", "sc://127.0.0.1:1")
    module = import_module("feed_assets.cli.ui")
    monkeypatch.setattr(module, "stop_once", lambda: None)
    monkeypatch.setattr(module, "group", None)
    code, lines = exit_and_errors(
        monkeypatch, capsys, "ui", "-m", "feed_assets.definitions", "--port", str(free_port())
    )
    assert code == 1, lines
    assert lines[-1].startswith(f"feed-assets: {config} names a class that cannot be loaded"), lines
    assert name in lines[-1]

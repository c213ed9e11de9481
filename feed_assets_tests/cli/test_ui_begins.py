"""Checks of `feed-assets ui` before it starts anything."""

from importlib import import_module

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port
from feed_assets.settings import Settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.main_call import exit_and_errors
from feed_assets_tests.support.servers import ROOT


@each_case(
    ("right", "wrong", "name"),
    [
        ("class: WarmRunLauncher", "class: WarmLauncher", "WarmLauncher"),
        ("launcher.warm", "launcher.cold", "launcher.cold"),
        ("class: QueuedRunCoordinator", "class: RunQueue", "RunQueue"),
        ("dequeue_interval_seconds: 1", "dequeue_interval: 1", "dequeue_interval"),
    ],
)
def test_ui_refuses_a_config_that_cannot_launch_runs(home, monkeypatch, capsys, right, wrong, name):
    config = prepare(home) / "dagster.yaml"
    config.write_text((ROOT / "dagster.yaml").read_text().replace(right, wrong))
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


def test_its_spark_listens_on_loopback_and_has_no_ui_whatever_the_settings_say():
    own = {"spark.ui.enabled": "true", "spark.connect.grpc.binding.address": "192.0.2.1"}
    values = import_module("feed_assets.cli.ui")._server_conf(7077, Settings(blackboard="memory://", spark_conf=own))
    assert (values["spark.ui.enabled"], values["spark.connect.grpc.binding.address"]) == ("false", "127.0.0.1")

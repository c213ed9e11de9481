"""`feed-assets connector run`, as a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feed_assets.cli import main
from feed_assets_tests.kafka.world import QUICK, World
from feed_assets_tests.servers import wait_until

TOPICS = {"clicks": {"key": ["id"]}}


def environment(world: World, home: Path) -> dict[str, str]:
    conf = {"bootstrap.servers": world.place.servers, "group.id": world.place.group, **QUICK}
    return {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "FEED_ASSETS_BLACKBOARD": world.board.url,
        "FEED_ASSETS_KAFKA": json.dumps(conf),
        "FEED_ASSETS_KAFKA_REGISTRY": world.place.registry,
        "FEED_ASSETS_KAFKA_TOPICS": json.dumps({world.name: world.settings.model_dump()}),
    }


def test_it_runs_until_sigterm(world, home, tmp_path):
    world.create()
    world.produce(15)
    command = [Path(sys.executable).with_name("feed-assets"), "connector", "run"]
    with (tmp_path / "said").open("w") as errors:
        process = subprocess.Popen(command, env=environment(world, home), stderr=errors)
    try:
        wait_until(lambda: world.is_done() or process.poll() is not None, "all to be signalled", 120, 0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "said").read_text()
    finally:
        process.kill()
    world.check()
    first, *_, last = (tmp_path / "said").read_text().splitlines()
    assert first == f"feed-assets: connector: has {world.name}/0 from 0"
    assert last == "feed-assets: connector: ended; what is not signalled is read again"


@pytest.mark.parametrize(
    ("given", "arguments", "said"),
    [
        ({}, [], "there is no topic to read: set FEED_ASSETS_KAFKA_TOPICS"),
        ({"KAFKA_TOPICS": TOPICS}, ["views"], "there is no topic 'views': FEED_ASSETS_KAFKA_TOPICS has clicks."),
        ({"KAFKA_TOPICS": TOPICS}, [], "FEED_ASSETS_KAFKA has no bootstrap.servers"),
        ({"KAFKA_TOPICS": TOPICS, "KAFKA": {"bootstrap.servers": "h:1"}}, [], "FEED_ASSETS_KAFKA_REGISTRY is not set"),
    ],
)
def test_what_is_missing_is_said_in_a_line(given, arguments, said, home, monkeypatch, capsys):
    for name, value in given.items():
        monkeypatch.setenv(f"FEED_ASSETS_{name}", json.dumps(value))
    monkeypatch.setattr("sys.argv", ["feed-assets", "connector", "run", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert said in capsys.readouterr().err

"""The command `feed-assets connector run` as a process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feed_assets_tests.support.kafka_topics import QUICK, World

LOCATION = """
import dagster as dg
from feed_assets import kafka_topic
defs = dg.Definitions(assets=[kafka_topic("ads/clicks", topic={topic!r}, key=["id"], **{limits!r})])
"""


def environment(world: World, home: Path) -> dict[str, str]:
    conf = {"bootstrap.servers": world.place.servers, "group.id": world.place.group, **QUICK}
    return {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "FEED_ASSETS_BLACKBOARD": world.board.url,
        "FEED_ASSETS_KAFKA": json.dumps(conf),
        "FEED_ASSETS_KAFKA_REGISTRY": world.place.registry,
    }


@contextmanager
def connector_process(world: World, home: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command until the block ends, then send SIGTERM; stderr goes to the file `said` in the folder."""
    process = started(world, home, folder)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "said").read_text()
    finally:
        process.kill()
        process.wait()


def started(world: World, home: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start the command. Its stderr replaces the file `said` in the folder."""
    limits = world.settings.model_dump(exclude={"key", "columns"})
    (folder / "location_of_clicks.py").write_text(LOCATION.format(topic=world.name, limits=limits))
    command = [Path(sys.executable).with_name("feed-assets"), "connector", "run", "-m", "location_of_clicks"]
    with (folder / "said").open("w") as errors:
        return subprocess.Popen(command, env=environment(world, home), stderr=errors, cwd=folder)

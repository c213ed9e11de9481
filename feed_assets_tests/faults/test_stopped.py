"""`feed-assets run` and its Spark, stopped or killed in the middle of a job and started again: real signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import psutil
import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.core.attempts import FIRST_PAUSE
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import run as runs
from feed_assets.ledger.tables import update as updates
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.faults import held_project as project
from feed_assets_tests.support.servers import family, lives, stop, wait_until

FEED = Feed.parse(project.MADE)


class Lake:
    """A home with three partitions to build, and the process that builds them."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.hold, self.output = prepare(home), folder / "hold", folder / "output"
        self.said_before = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.seen: list[psutil.Process] = []
        for number, key in enumerate(project.KEYS):
            partition = Partition(Feed.parse(project.RAW), key)
            content = f"k,n\na,1\nb,{number + 2}\n".encode()
            write.publish(open_board(settings()), partition, {"part-1.csv": content}, datetime.now(UTC))

    def start(self) -> None:
        """Start `nohup feed-assets run` in a process group of its own, as a shell does."""
        command = [str(Path(sys.executable).with_name("feed-assets")), "run", "--until-idle", "-m", project.__name__]
        quiet = {"PYTHONWARNINGS": "ignore"}  # of Spark's workers, which import the project, too
        env = {**os.environ, **quiet, project.HOLD: str(self.hold)}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=env, stdout=file, stderr=file, start_new_session=True, preexec_fn=_as_nohup
            )

    def in_the_middle(self) -> None:
        """Start the process, and wait until a job is held with a written part."""
        self.hold.touch()
        self.start()
        begun = self.hold.with_name("begun")
        wait_until(lambda: begun.exists() or self.process.poll() is not None, "a held job", 120)
        wait_until(lambda: bool(self.parts()) or self.process.poll() is not None, "a written part")
        assert self.process.poll() is None, self.output.read_text()
        self.seen, self.said_before = family(self.process.pid), self.output.stat().st_size

    def end(self) -> tuple[int, list[str]]:
        """Wait for the end of the process. Return its exit code and its lines of output since the middle."""
        code = self.process.wait(timeout=120)
        return code, self.output.read_bytes()[self.said_before :].decode().splitlines()

    def parts(self) -> list[Path]:
        """Return the files below the dataset on the blackboard."""
        return [path for path in (self.home / "blackboard" / project.MADE).rglob("*") if path.is_file()]

    def runs(self) -> list[str]:
        """Return the states of all runs in the ledger."""
        with open_ledger(settings().ledger).read() as connection:
            return sorted(connection.execute(runs.select()).columns("state").scalars())

    def updates(self) -> list[str]:
        """Return the states of all updates of the dataset in the ledger."""
        with open_ledger(settings().ledger).read() as connection:
            rows = connection.execute(updates.select().where(updates.c.feed == project.MADE))
            return sorted(rows.columns("state").scalars())

    def published(self) -> list[str]:
        """Return the partitions that have a valid update."""
        board = open_board(settings())
        return [key for key in project.KEYS if read.latest(board, Partition(FEED, key)).update]


def _as_nohup() -> None:
    """Ignore SIGHUP: PySpark's daemon ends its workers by it, and a JVM that ignores it blocks it for its children."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def dagsters() -> list[str]:
    """Return the states of all runs in Dagster."""
    with dg.DagsterInstance.get() as instance:
        return sorted(run.status.value for run in instance.get_runs())


@pytest.fixture
def lake(home: Path, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(home, tmp_path)
    yield made
    if made.process:
        stop(made.process)
    for each in made.seen:
        if lives(each):
            each.kill()


def is_built_by_the_next_run(lake: Lake, after: timedelta = timedelta()) -> bool:
    """Build what is left by the loop of `run` in this process, without Spark.

    Return True if all partitions are published.
    """
    with dg.DagsterInstance.get() as instance:
        Harness(project.defs, instance, maker=PlainMaker(), now=lambda: utc_now() + after).run_until_idle()
    return lake.published() == [*project.KEYS]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_first_signal_ends_the_loop_and_abandons_the_run_in_progress(lake, number, code):
    lake.in_the_middle()
    os.killpg(lake.process.pid, number)  # as a terminal does: Spark's JVM gets it, too
    ended, said = lake.end()
    assert (ended, len(said)) == (code, 1), said
    assert (lake.published(), lake.parts()) == ([], [])
    assert (lake.runs(), {*lake.updates()}, dagsters()) == (["abandoned"], {"abandoned"}, ["FAILURE"])
    wait_until(lambda: not any(map(lives, lake.seen)), "every process of the run to end")
    assert is_built_by_the_next_run(lake)


def test_killed_spark_ends_the_loop_and_counts_as_an_attempt(lake):
    lake.in_the_middle()
    (jvm,) = [each for each in lake.seen if each.name() == "java"]
    jvm.kill()
    ended, said = lake.end()
    assert (ended, said) == (4, [said[0]]), said
    assert said[0].startswith("feed-assets: Spark ended while this run used it: it was killed"), said
    assert (lake.published(), lake.parts(), lake.runs(), dagsters()) == ([], [], ["failed"], ["FAILURE"])
    assert is_built_by_the_next_run(lake, after=FIRST_PAUSE)

"""Two real clusters: runs take the free one, wait while both are full, and go on elsewhere when one is killed."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import allocation, run
from feed_assets.runs.services import utc_now
from feed_assets_tests.faults.held_project import HOLD, MADE, RAW
from feed_assets_tests.support.servers import JVM, free_ports, stop, wait_until
from feed_assets_tests.support.spark_clusters import ROOT, SmallCluster

MODULE = "feed_assets_tests.faults.held_project"
CONF = {
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": JVM,
}


@pytest.fixture
def clusters(tmp_path):
    ports = free_ports(4)
    both = {
        name: SmallCluster(tmp_path / name, *ports[2 * number : 2 * number + 2])
        for number, name in enumerate(["etl-a", "etl-b"])
    }
    for each in both.values():
        each.start()
    yield both
    for each in both.values():
        each.kill()


class Place:
    """A home with two targets, and the commands that build there."""

    def __init__(self, folder: Path, clusters: dict[str, SmallCluster]) -> None:
        self.folder, self.hold = folder, folder / "hold"
        (folder / "lake").mkdir()
        (folder / "home").mkdir(0o700)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")},
            "DAGSTER_HOME": str(folder / "home"),
            "FEED_ASSETS_BLACKBOARD": (folder / "lake").as_uri(),
            "FEED_ASSETS_TARGETS": json.dumps({name: each.target for name, each in clusters.items()}),
            "FEED_ASSETS_SPARK_CONF": json.dumps({**CONF, f"spark.executorEnv.{HOLD}": str(self.hold)}),
            "FEED_ASSETS_PARTITIONS_PER_RUN": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONWARNINGS": "ignore",
            HOLD: str(self.hold),
        }
        self.board = Blackboard.open((folder / "lake").as_uri())

    @property
    def ledger(self):
        return open_ledger(f"sqlite:///{self.folder / 'home' / 'ledger.db'}")

    def drop(self, *keys: str) -> None:
        for key in keys:
            content = b"k,n\na,1\nb,2\n"
            publish(self.board, Partition(Feed.parse(RAW), key), {"part-0.csv": content}, utc_now())

    @contextmanager
    def command(self, *words: str, **more: str):
        with (self.folder / f"{'-'.join(words).replace('/', '_')}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("feed-assets")), *words, "-m", MODULE],
                cwd=ROOT,
                env={**self.env, **more},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            stop(process)

    def log(self, *words: str) -> str:
        return (self.folder / f"{'-'.join(words).replace('/', '_')}.log").read_text(errors="replace")

    def begun(self) -> None:
        """Wait until a job is in its middle, and forget that."""
        began = self.folder / "begun"
        wait_until(began.exists, f"a job to begin; see {self.folder}", 180)
        began.unlink()

    def valid(self, key: str) -> list[str]:
        entries = read.history(self.board, Partition(Feed.parse(MADE), key))
        return [each.id for each in entries if hasattr(each, "files")]

    def ends(self, key: str) -> list[tuple[str, str]]:
        """Return state and target of each run of a partition, in order."""
        query = sa.select(run.c.state, run.c.placed).where(run.c.partition == key).order_by(run.c.started)
        with self.ledger.read() as connection:
            return [(row.state, row.placed.partition(" ")[0]) for row in connection.execute(query)]

    def reasons(self, key: str) -> list[str | None]:
        query = sa.select(run.c.reason).where(run.c.partition == key).order_by(run.c.started)
        with self.ledger.read() as connection:
            return [*connection.execute(query).scalars()]

    def given(self) -> int:
        with self.ledger.read() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(allocation)).scalar_one()


def test_runs_go_to_the_free_cluster_wait_for_full_ones_and_leave_a_dead_one(tmp_path, clusters):
    place = Place(tmp_path, clusters)
    place.drop("p1")
    place.hold.touch()
    with place.command("run", "--until-idle") as first:
        place.begun()
        place.drop("p2", "p3")
        with place.command("build", MADE, "p2") as second:
            wait_until(lambda: place.ends("p2") != [], "the second run", 180)
            assert (place.ends("p1"), place.ends("p2")) == ([("running", "etl-a")], [("running", "etl-b")])
            with place.command("build", MADE, "p3", FEED_ASSETS_RUN_WAIT_SECONDS="0") as third:
                assert third.wait(180) == 1
            assert "etl-a 0 of 2 cores free, etl-b 0 of 2 cores free" in place.log("build", MADE, "p3")
            clusters["etl-a"].kill()
            wait_until(lambda: place.ends("p1")[0][0] == "abandoned", "the first run to be given up", 180)
            assert "TargetLost: the compute target etl-a was lost" in place.reasons("p1")[0]
            place.hold.unlink()
            assert second.wait(180) == 0, place.log("build", MADE, "p2")
        first.wait(240)  # It ends while the other cluster is full, or has built the partition there.
    with place.command("run", "--until-idle") as again:
        assert again.wait(300) == 0, place.log("run", "--until-idle")
    assert place.ends("p1") == [("abandoned", "etl-a"), ("published", "etl-b")]
    assert [len(place.valid(key)) for key in ("p1", "p2", "p3")] == [1, 1, 1]
    place.drop("p3")
    clusters["etl-b"].kill()
    with place.command("build", MADE, "p3") as fourth:
        wait_until(lambda: "offline since" in place.log("build", MADE, "p3"), "the run to wait", 180)
        clusters["etl-a"].start()
        assert fourth.wait(300) == 0, place.log("build", MADE, "p3")
    assert place.ends("p3")[-1] == ("published", "etl-a")
    assert (len(place.valid("p3")), place.given()) == (2, 0)


def test_a_run_outlives_the_restart_of_a_master_that_recovers(tmp_path):
    cluster = SmallCluster(tmp_path / "etl-a", *free_ports(2), recovers=True)
    cluster.start()
    try:
        place = Place(tmp_path, {"etl-a": cluster})
        place.drop("p1")
        place.hold.touch()
        with place.command("build", MADE, "p1") as command:
            place.begun()
            cluster.restart_master()
            place.hold.unlink()
            assert command.wait(180) == 0, place.log("build", MADE, "p1")
    finally:
        cluster.kill()
    assert place.ends("p1") == [("published", "etl-a")]
    assert len(place.valid("p1")) == 1

"""Builds on a standalone cluster where tasks fail, executors die and drivers die: counts and digests are exact."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from feed_assets.core.feeds import Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.faults.cluster_tasks import LINES
from feed_assets_tests.support.build_lake import CLEAN
from feed_assets_tests.support.servers import stop, wait_until
from feed_assets_tests.support.spark_clusters import ROOT, driver_env, spark_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "lake").mkdir()
    with spark_cluster(folder) as master:
        yield folder, master


@contextmanager
def driver(cluster, faults, **more):
    """Run a driver in a process group of its own; it builds under each of these faults in turn."""
    folder, master = cluster
    command = [sys.executable, "-m", "feed_assets_tests.faults.cluster_tasks", str(folder), *faults]
    env = {**driver_env(master, folder), **more}
    with (folder / f"driver-{faults[0].replace(' ', '-')}.log").open("wb") as log:
        started = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True
        )
    try:
        yield started
    finally:
        stop(started)


def build_under(cluster, faults, **more):
    """Return the driver's report of each build, by fault."""
    with driver(cluster, faults, **more) as started:
        said, _ = started.communicate(timeout=400)
        assert started.returncode == 0, f"see the logs in {cluster[0]}"
    return {line["fault"]: line for line in map(json.loads, said.splitlines())}


def update_of(cluster, fault):
    board = Blackboard.open((cluster[0] / "lake").as_uri())
    return read.latest(board, Partition(CLEAN, fault.replace(" ", "-"))).update


def everything_is_counted(cluster, fault):
    """Return True if the update's folder holds its parts and the manifest, and nothing else."""
    update = update_of(cluster, fault)
    found = [path for path in (cluster[0] / "lake" / update.path).rglob("*") if path.is_file()]
    return len(found) == len(update.files) + 1 and all(path.name.startswith(("part-", "_SUCCESS")) for path in found)


def test_counts_and_digests_are_exact_under_every_spark_fault(cluster):
    faults = ["none", "failing task", "killed executor", "speculation"]
    with driver(cluster, [*faults, "killed driver"]) as started:
        struck = cluster[0] / "killed-driver-struck"
        wait_until(lambda: struck.exists() or started.poll() is not None, "the last write to begin", 400)
        assert started.poll() is None, f"see the logs in {cluster[0]}"
        os.killpg(started.pid, signal.SIGKILL)
        said, _ = started.communicate()
    built = {line["fault"]: line for line in map(json.loads, said.splitlines())}
    assert update_of(cluster, "killed driver") is None
    built |= build_under(cluster, ["killed driver"])
    assert_exact(cluster, built, [*faults, "killed driver"])


def assert_exact(cluster, built, faults):
    assert [built[fault]["records"] for fault in faults] == [len(LINES)] * len(faults)
    assert {built[fault]["version"] for fault in faults} == {built[faults[0]]["version"]}
    assert [fault for fault in faults if built[fault]["struck"] is (fault == "none")] == []
    assert [fault for fault in faults if not everything_is_counted(cluster, fault)] == []

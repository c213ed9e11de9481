"""Steps of tests with a real daemon."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.feeds.opened import open_board
from feed_assets.orchestration.decide.unfinished_runs import UNFINISHED
from feed_assets.settings import settings
from feed_assets_tests.soak.project import RAW
from feed_assets_tests.support.progress import print_progress

PROJECT = "feed_assets_tests.soak.project"
VICTIMS = ("worker", "worker", "parent", "code server", "daemon", "all")
QUIET = 60
"""Seconds without a run after which the judge stops waiting: six ticks of either sensor, and a restart."""


def drop(key: str, number: int) -> int:
    """Publish an update as its producer would."""
    partition = Partition(Feed.parse(RAW), key)
    write.publish(open_board(settings()), partition, {"part-1.csv": f"k,n\na,{number}\n".encode()}, datetime.now(UTC))
    return number


def judge_until_idle(judge: Callable[[], list[str]], seconds: float = 1200) -> list[str]:
    """Ask the judge until it has no objection or all is quiet. Return its objections."""
    deadline, began = time.monotonic() + seconds, time.time()
    with dg.DagsterInstance.get() as instance:
        while time.monotonic() < deadline:
            left = [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))]
            newest = instance.get_run_records(limit=1, order_by="update_timestamp")
            quiet = time.time() - max([began, *(each.update_timestamp.timestamp() for each in newest)])
            if not left and (not (found := judge()) or quiet > QUIET):
                print_progress(f"{len(instance.get_runs())} runs")
                return found
            time.sleep(1)
    return [f"after {seconds} s not finished: {left}", *judge()]

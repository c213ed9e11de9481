"""A driver on the cluster that builds under each of the given faults: run as a process of its own.

`python -m feed_assets_tests.faults.cluster_tasks FOLDER FAULT…`: one build for each fault, one line of JSON for each.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from pyspark import TaskContext

from feed_assets.runs.phases import Published
from feed_assets.runs.services import Services
from feed_assets.settings import Settings
from feed_assets_tests.support.build_lake import NOW, Lake

LINES = [f"{number},2019-11-24 {number % 24:02d}:00:00" for number in range(2_000)]
TASKS = 8


def main(folder: Path, faults: list[str]) -> None:
    """Build a partition under each fault. The first build of a partition also writes its raw data."""
    services = replace(Services.of(Settings()), now=lambda: NOW)
    lake = Lake(services)
    for fault in faults:
        key = fault.replace(" ", "-")
        if not services.board.children(f"ads/raw/v1.0/{key}"):
            lake.drop(*LINES, "x,2019-11-24 00:00:00", key=key)
        marker = folder / f"{key}-struck"
        made = lake.clean(key, transform=partial(with_fault, FAULTS[fault], str(marker)), code_version="1")
        written = made.outputs[-1].written if isinstance(made, Published) else None
        said = {"fault": fault, "struck": marker.exists(), "version": written and written.data_version}
        print(json.dumps({**said, "records": written and written.records}), flush=True)  # noqa: T201


def with_fault(strike, marker, raw):
    """Return the rows unchanged, after tasks of which the first meets the fault."""
    spread = raw.repartition(TASKS, "id")
    return spread.mapInArrow(partial(through, strike, marker), raw.schema)


def through(strike, marker, batches):
    """Yield half of each batch, strike the fault in the first task, and yield the other half."""
    context = TaskContext.get()
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if context.partitionId() == 0:
            strike(context, Path(marker))
        yield batch.slice(batch.num_rows // 2)


def nothing(_context, _marker):
    """Do nothing: no fault."""


def fail(context, marker):
    """Fail the first two attempts of a task."""
    if context.attemptNumber() < 2:
        marker.touch()
        raise RuntimeError("a task that fails")


def kill_executor(_context, marker):
    """Kill the executor of this task, once."""
    if not marker.exists():
        marker.touch()
        executor = next(each for each in psutil.Process().parents() if each.name() == "java")
        executor.send_signal(signal.SIGKILL)
        time.sleep(60)  # until the signal takes effect


def run_twice(context, marker):
    """Wait for the copy that Spark starts of a slow task: both then continue, and one of them finishes too late."""
    if context.attemptNumber():
        marker.touch()
    wait_for(marker)


def kill_driver(_context, marker):
    """Report that the write is under way, and wait to be killed."""
    if not marker.exists():
        marker.touch()
        wait_for(marker.with_suffix(".never"))


def wait_for(path: Path) -> None:
    """Poll for a file, for a minute at most."""
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)


FAULTS: dict[str, Callable] = {
    "none": nothing,
    "failing task": fail,
    "killed executor": kill_executor,
    "speculation": run_twice,
    "killed driver": kill_driver,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    os._exit(0)

"""Functions that tests run in other processes: a separate module, so that those processes import little else."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import obstore.auth.boto3  # noqa: F401  (imported once, in the fork server)

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import claim, publish
from feed_assets_tests.support.counted_blackboards import Counting

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)

processes = get_context("forkserver")
processes.set_forkserver_preload([__name__])


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Run `target` in another process with the current environment: the fork server still has the one of its start."""
    process = processes.Process(target=_run, args=(dict(os.environ), target, *arguments))
    process.start()
    return process


def _run(environment: dict[str, str], target: Callable[..., None], *arguments: object) -> None:
    os.environ.update(environment)
    target(*arguments)


def claim_many(url: str, clock: timedelta, count: int, ids) -> None:
    """Claim ids by a clock that may be wrong, and report them."""
    board = Blackboard.open(url)
    ids.put([claim(board, MEN, os.urandom(16), NOW + clock) for _ in range(count)])


def publish_many(url: str, writer: str, count: int) -> None:
    """Publish updates of one to four parts, all with the same content."""
    board = Blackboard.open(url)
    for number in range(count):
        parts = {f"part-{part}": f"{writer}-{number}".encode() for part in range(1 + number % 4)}
        publish(board, MEN, parts, NOW)


def publish_and_die(url: str, step: int, requests: list[str]) -> None:
    """Publish two parts, and kill the process before the request of this number."""
    counted = Counting.around(Blackboard.open(url))
    counted.before = {name: lambda: len(counted.requests) > step and _die() for name in requests}
    publish(counted.board, MEN, {"a": b"new", "b": b"new"}, NOW)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

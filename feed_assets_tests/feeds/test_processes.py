"""Several processes on one blackboard, and processes that are killed: on local disk and on S3."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import latest, require
from feed_assets.feeds.write import claim, publish
from feed_assets_tests.feeds.stores import Counting
from feed_assets_tests.servers import wait_until

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
REQUESTS = ["list", "children", "create", "put", "put", "list", "get", "put"]
"""Those of publishing two parts, in order; test_publishing_makes_these_requests holds it to that."""

spawning = get_context("spawn")


@pytest.fixture(params=["local", "s3"])
def shared(request: pytest.FixtureRequest) -> Blackboard:
    """A blackboard that other processes can open by its URL; S3 through the environment."""
    return request.getfixturevalue(f"{request.param}_board")


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    process = spawning.Process(target=target, args=arguments)
    process.start()
    return process


def claim_many(url: str, clock: timedelta, count: int, ids) -> None:
    board = Blackboard.open(url)
    ids.put([claim(board, MEN, os.urandom(16), NOW + clock) for _ in range(count)])


def test_writers_in_many_processes_never_share_an_id_whatever_their_clocks_say(shared):
    ids = spawning.Queue()
    clocks = [timedelta(0), timedelta(0), timedelta(hours=-1), timedelta(seconds=3)]
    processes = [start(claim_many, shared.url, clock, 15, ids) for clock in clocks]
    claimed = [ids.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    every = [name for names in claimed for name in names]
    assert len(every) == len(set(every)) == 60
    assert all(names == sorted(names) for names in claimed)


def publish_many(url: str, writer: str, count: int) -> None:
    board = Blackboard.open(url)
    for number in range(count):
        parts = {f"part-{part}": f"{writer}-{number}".encode() for part in range(1 + number % 4)}
        publish(board, MEN, parts, NOW)


def test_a_reader_never_sees_a_torn_update_while_two_processes_publish(shared):
    writers = [start(publish_many, shared.url, name, 20) for name in ("first", "second")]
    seen: list[str] = []
    while any(writer.is_alive() for writer in writers) or not seen:
        reading = latest(shared, MEN)
        if reading.update and reading.update.id not in seen:
            seen.append(reading.update.id)
            contents = [shared.get(file.key) for file in reading.update.files]
            assert len(set(contents)) == 1
            assert len(contents) == 1 + int(contents[0].rsplit(b"-", 1)[1]) % 4
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen == sorted(seen)
    assert len(shared.children(MEN.path)) == 40
    assert latest(shared, MEN).skipped == ()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def publish_and_die(url: str, step: int) -> None:
    counted = Counting.around(Blackboard.open(url))
    counted.before = {name: lambda: len(counted.requests) > step and die() for name in REQUESTS}
    publish(counted.board, MEN, {"a": b"new", "b": b"new"}, NOW)


def test_publishing_makes_these_requests(board):
    counted = Counting.around(board)
    publish(counted.board, MEN, {"a": b"new", "b": b"new"}, NOW)
    assert [name for name, _ in counted.requests] == REQUESTS


def test_a_publisher_killed_at_any_step_leaves_the_previous_update_and_the_next_one_succeeds(shared):
    for step in range(len(REQUESTS)):
        before = publish(shared, MEN, {"a": b"old"}, NOW)
        process = start(publish_and_die, shared.url, step)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert latest(shared, MEN).update == before
    after = publish(shared, MEN, {"a": b"next"}, NOW)
    assert require(latest(shared, MEN)) == after


def test_a_publisher_killed_at_random_never_leaves_half_an_update(shared):
    """Kills in the middle of a write, which no step shows; only whole updates are ever valid."""
    for _ in range(3):
        published = len(shared.children(MEN.path))
        process = start(publish_many, shared.url, "killed", 10_000)
        wait_until(lambda known=published: len(shared.children(MEN.path)) > known + 5, "updates to appear")
        process.kill()
        process.join()
        update = require(latest(shared, MEN))
        assert len({shared.get(file.key) for file in update.files}) == 1
        assert publish(shared, MEN, {"a": b"next"}, NOW) == latest(shared, MEN).update

"""Several processes on one blackboard, and killed processes: on local disk and on S3."""

import signal
from datetime import timedelta

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import latest, require
from feed_assets.feeds.write import publish
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.feed_processes import (
    MEN,
    NOW,
    claim_many,
    processes,
    publish_and_die,
    publish_many,
    start,
)
from feed_assets_tests.support.servers import wait_until

REQUESTS = ["list", "children", "create", "put", "put", "list", "get", "put"]
"""Requests that publish two parts, in order; test_publishing_makes_these_requests checks them."""


@pytest.fixture(params=["local", "s3"])
def shared(request: pytest.FixtureRequest) -> Blackboard:
    """Return a blackboard that other processes can open by its URL; S3 through the environment."""
    return request.getfixturevalue(f"{request.param}_board")


def test_writers_in_many_processes_never_share_an_id_whatever_their_clocks_say(shared):
    ids = processes.Queue()
    clocks = [timedelta(0), timedelta(0), timedelta(hours=-1), timedelta(seconds=3)]
    writers = [start(claim_many, shared.url, clock, 15, ids) for clock in clocks]
    claimed = [ids.get(timeout=60) for _ in writers]
    for writer in writers:
        writer.join()
    every = [name for names in claimed for name in names]
    assert len(every) == len(set(every)) == 60
    assert all(names == sorted(names) for names in claimed)


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


def test_publishing_makes_these_requests(board):
    counted = Counting.around(board)
    publish(counted.board, MEN, {"a": b"new", "b": b"new"}, NOW)
    assert [name for name, _ in counted.requests] == REQUESTS


def test_a_publisher_killed_at_any_step_keeps_the_previous_update(shared):
    for step in range(len(REQUESTS)):
        before = publish(shared, MEN, {"a": b"old"}, NOW)
        process = start(publish_and_die, shared.url, step, REQUESTS)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert latest(shared, MEN).update == before
    after = publish(shared, MEN, {"a": b"next"}, NOW)
    assert require(latest(shared, MEN)) == after


def test_a_publisher_killed_at_random_never_leaves_half_an_update(shared):
    """Kill in the middle of writes, between steps; only complete updates are ever valid."""
    for _ in range(3):
        published = len(shared.children(MEN.path))
        process = start(publish_many, shared.url, "killed", 10_000)
        wait_until(lambda known=published: len(shared.children(MEN.path)) > known + 5, "updates to appear")
        process.kill()
        process.join()
        update = require(latest(shared, MEN))
        assert len({shared.get(file.key) for file in update.files}) == 1
        assert publish(shared, MEN, {"a": b"next"}, NOW) == latest(shared, MEN).update

"""A loader that sleeps through its lease, or within a load, while another takes over: it changes nothing."""

import os
import signal
from dataclasses import replace
from uuid import uuid4

import psutil
import pytest

from feed_assets.warehouse import load_state
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.lives import asleep_at
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

ANOTHER = "another"


@pytest.fixture
def other(engine, local_board) -> Loader:
    """Return the loader that takes over."""
    made = Loader(engine, local_board)
    made.place = replace(made.place, holder=ANOTHER)
    return made


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("at", ["BEGIN", "INSERT INTO feed_assets.positions", "COMMIT"])
def test_a_topic_loader_that_slept_through_its_lease_changes_nothing(other, local_board, url, fork, at, tmp_path):
    stream = Stream(local_board, f"clicks.{uuid4().hex[:12]}")
    schema = stream.schemas.add(ID, TEXT)
    stream.send(schema, {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    shapes = {schema: stream.shape(schema)}
    job = tmp_path / "said", url, local_board.url, stream.name, stream.signals, shapes, at
    life = fork.start(asleep_at, *job)
    wait_until(lambda: psutil.Process(life).status() == psutil.STATUS_STOPPED, "it to sleep")
    stream.send(schema, {"id": 1, "text": "c"}, (None, {"id": 2}), {"id": 3, "text": "d"})
    with opened(other.engine) as connection:
        connection.execute("SET lock_timeout = '30s'")
        load_state.take(connection, other.engine, ANOTHER, 0)
    known = other.load(stream)
    os.kill(life, signal.SIGCONT)
    assert fork.wait(life) == 0
    assert stream.table(other.engine) == stream.model()
    assert other.known(stream) == known
    assert (tmp_path / "said").read_text() == ("WarehouseTaken" if at == "BEGIN" else "WarehouseUnavailable")

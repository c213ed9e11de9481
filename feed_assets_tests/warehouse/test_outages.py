"""Warehouse, store, registry and broker are unavailable for a while: the loader waits, says so, and resumes."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest

from feed_assets.warehouse import load_state, loader
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.kafka_servers import kafka_at
from feed_assets_tests.support.kafka_topics import MORE, World
from feed_assets_tests.support.port_relay import relay
from feed_assets_tests.support.servers import free_ports, wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import check, loading_of
from feed_assets_tests.warehouse.wire import Server, breakable


@pytest.fixture
def world(broker, registry, s3_url: str, s3_env) -> Iterator[World]:
    with World.of(broker, registry, s3_url, s3_env.endpoint) as made:
        made.create()
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with breakable() as made:
        yield made


@dataclass
class Running:
    """A loader in a thread, its output, and the exceptions it ended with."""

    url: str
    capfd: pytest.CaptureFixture[str]
    stopping: Event = field(default_factory=Event)
    ended: list[BaseException] = field(default_factory=list)
    said: str = ""

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: bool(self.ended) or condition(), what, 120, 0.1)
        assert self.ended == []

    def waits_for(self, pattern: str) -> None:
        """Wait until it has said twice that it waits, the second time for longer."""
        line = rf"warehouse main: waits {{}} s, then tries again: [^\n]*{pattern}"
        twice = re.compile(f"(?s){line.format('0.05')}.*{line.format('0.1')}")
        self.wait(lambda: twice.search(self._heard()) is not None, f"two lines of {pattern}")

    def has(self, *worlds: World) -> None:
        """Wait until these topics are loaded completely."""
        for each in worlds:
            end = each.end()
            self.wait(lambda each=each, end=end: self._place(each) == {0: end}, "all to be loaded")

    def _place(self, world: World) -> dict[int, int]:
        return check(world, engine_of(self.url))

    def _heard(self) -> str:
        self.said += self.capfd.readouterr().err
        return self.said


@contextmanager
def loads(capfd, url: str, *worlds: World, **places: str) -> Iterator[Running]:
    """Run a loader of these topics; `places` replaces locations of the first topic."""
    engine = engine_of(url)
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        connection.execute("DELETE FROM feed_assets.lease")
    running, loading = Running(url, capfd), loading_of(replace(worlds[0].place, **places), url)

    def run() -> None:
        try:
            loader.run(loading, {each.name: each.settings for each in worlds}, running.stopping, (0.05, 0.1))
        except BaseException as error:  # noqa: BLE001 - it is looked at by the test
            running.ended.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        with closing(loading.schemas):
            yield running
    finally:
        running.stopping.set()
        thread.join(60)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.02)


def more(world: World, **changes) -> None:
    """Produce messages, and signal them before returning."""
    world.produce(12, **changes)
    world.run_until_done()


def test_a_database_that_is_stopped_is_waited_for(world, server, capfd):
    more(world)
    with loads(capfd, server.url, world) as running:
        running.has(world)
        server.stop()
        more(world)
        running.waits_for("the warehouse cannot do it now")
        server.start()
        running.has(world)


def test_loader_waits_for_s3_that_is_down(world, url, s3_env, capfd):
    more(world)
    (port,), target = free_ports(1), urlsplit(s3_env.endpoint).port
    with ExitStack() as stack, loads(capfd, url, world, endpoint=f"http://127.0.0.1:{port}") as running:
        with relay(port, target):
            running.has(world)
        more(world)
        running.waits_for("s3://")
        stack.enter_context(relay(port, target))
        running.has(world)


def test_loader_waits_for_a_registry_that_is_down(world, postgresql_url, capfd):
    more(world)
    (port,), target = free_ports(1), urlsplit(world.place.registry)
    elsewhere = f"http://127.0.0.1:{port}{target.path}"
    with ExitStack() as stack, loads(capfd, postgresql_url, world, registry=elsewhere) as running:
        with relay(port, target.port):
            running.has(world)
        more(world)
        running.has(world)
        more(world, fields=MORE)
        running.waits_for("cannot look up schema")
        stack.enter_context(relay(port, target.port))
        running.has(world)


HOLDS = """
import duckdb, sys
held = None
while held is None:
    try:
        held = duckdb.connect(sys.argv[1])
    except duckdb.IOException:
        pass
print("held", flush=True)
input()
"""
"""The loader has it open now and then."""


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_loader_waits_for_a_duckdb_file_that_is_open_elsewhere(world, url, capfd):
    more(world)
    with loads(capfd, url, world) as running:
        running.has(world)
        command = [sys.executable, "-c", HOLDS, url.removeprefix("duckdb://")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline()
            more(world)
            running.waits_for("the other process that has the file open")
            holder.communicate(b"\n")
        running.has(world)


@pytest.mark.soak
def test_loader_waits_for_a_broker_that_is_down(registry, s3_url, s3_env, postgresql_url, tmp_path, capfd):
    ports = free_ports(2)
    with ExitStack() as first:
        broker = first.enter_context(kafka_at(tmp_path, *ports))
        with World.of(broker, registry, s3_url, s3_env.endpoint) as world:
            world.create()
            more(world)
            with loads(capfd, postgresql_url, world) as running:
                running.has(world)
                first.close()
                running.waits_for("")
                with kafka_at(tmp_path, *ports):
                    more(world)
                    running.has(world)
                    running.stopping.set()


def test_a_chunk_that_was_changed_stops_its_table_alone(world, broker, registry, server, capfd):
    with World.of(broker, registry, world.board.url, world.place.endpoint) as other:
        other.create()
        for each in (world, other):
            more(each)
        path = (other.signals()[1].path or "").removeprefix(f"{other.board.url}/")
        other.board.put(path, other.board.get(path)[::-1])
        with loads(capfd, server.url, world, other) as running:
            for _ in range(3):
                running.has(world)
                more(world)
            running.has(world)
            assert "the digest" in problems(server.url)[other.name]
        assert check(other, engine_of(server.url)) == {}


def problems(url: str) -> dict[str, str | None]:
    with opened(engine_of(url)) as connection:
        return {each.topic: each.problem for each in load_state.tables(connection)}

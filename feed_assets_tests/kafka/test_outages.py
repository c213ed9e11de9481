"""Broker, registry and store are unavailable for a while: the connector waits, says so, and resumes."""

import re
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from feed_assets.kafka import service
from feed_assets_tests.support.connector_thread import Connector
from feed_assets_tests.support.kafka_servers import kafka_at
from feed_assets_tests.support.kafka_topics import MORE, World
from feed_assets_tests.support.port_relay import relay
from feed_assets_tests.support.servers import free_ports


def said(capfd, pattern: str, so_far: list[str]) -> bool:
    so_far.append(capfd.readouterr().err)
    return re.search(pattern, "".join(so_far)) is not None


def test_a_registry_that_is_away_is_waited_for(world, capfd):
    (port,) = free_ports(1)
    target = urlsplit(world.place.registry)
    elsewhere = replace(world.place, registry=f"http://127.0.0.1:{port}{target.path}")
    world.create()
    world.produce(5)
    with world.connector(place=elsewhere) as running:
        running.wait(lambda: said(capfd, r"waits [\d.]+ s, then tries again: cannot register clicks", []), "a line")
        with relay(port, target.port):
            running.wait(world.is_done, "all to be signalled")
    world.check()


def test_connector_waits_for_a_registry_that_is_down(world, capfd):
    (port,) = free_ports(1)
    target = urlsplit(world.place.registry)
    elsewhere = replace(world.place, registry=f"http://127.0.0.1:{port}{target.path}")
    world.create()
    world.produce(5)
    with ExitStack() as stack, world.connector(place=elsewhere) as running:
        with relay(port, target.port):
            running.wait(world.is_done, "the first ones")
        world.produce(5, fields=MORE)
        so_far: list[str] = []
        running.wait(lambda: said(capfd, r"waits [\d.]+ s, then tries again: cannot look up schema", so_far), "a line")
        stack.enter_context(relay(port, target.port))
        running.wait(world.is_done, "all to be signalled")
    world.check()


def test_connector_waits_for_s3_that_is_down(s3_world, s3_env, capfd):
    (port,) = free_ports(1)
    elsewhere = replace(s3_world.place, endpoint=f"http://127.0.0.1:{port}")
    s3_world.create()
    s3_world.produce(5)
    with ExitStack() as stack, s3_world.connector(place=elsewhere) as running:
        with relay(port, urlsplit(s3_env.endpoint).port):
            running.wait(s3_world.is_done, "the first ones")
        s3_world.produce(5)
        so_far: list[str] = []
        running.wait(lambda: said(capfd, r"waits [\d.]+ s, then tries again: .*s3://", so_far), "a line")
        stack.enter_context(relay(port, urlsplit(s3_env.endpoint).port))
        running.wait(s3_world.is_done, "all to be signalled")
    s3_world.check()


def test_a_store_that_is_away_is_waited_for(world, capfd, tmp_path):
    world.create()
    world.produce(5)
    with world.connector() as running:
        running.wait(world.is_done, "the first ones")
        folder = Path(urlsplit(world.board.url).path.replace("%20", " "))
        folder.rename(tmp_path / "away")
        world.produce(5)
        so_far: list[str] = []
        running.wait(lambda: said(capfd, r"waits 0\.\d+ s.*the folder of .* is gone", so_far), "a line")
        (tmp_path / "away").rename(folder)
        running.wait(world.is_done, "all to be signalled")
    world.check()


def test_a_topic_that_is_not_there_yet_is_waited_for(world, capfd):
    with world.connector() as running:
        running.wait(lambda: said(capfd, "the broker has no topic clicks", []), "a line")
        world.create()
        world.produce(5)
        running.wait(world.is_done, "all to be signalled")
    world.check()


def test_a_topic_that_is_not_there_does_not_stop_the_others(world, capfd, monkeypatch):
    monkeypatch.setattr(service, "SAY_SECONDS", 0.3)
    world.create()
    world.produce(5)
    missing = World(world.place)
    both = Connector(world.place.chunking("one"), {world.name: world.settings, missing.name: missing.settings})
    with closing(missing.schemas), both.running() as running:
        running.wait(world.is_done, "the one that is there")
        so_far: list[str] = []
        line = f"does not read {missing.name}: the broker has no topic {missing.name}. Create it"
        running.wait(lambda: said(capfd, f"(?s){line}.*{line}", so_far), "it to be said again")
        missing.create()
        missing.produce(5)
        running.wait(missing.is_done, "the other one")
        world.produce(5)
        running.wait(world.is_done, "both")
    world.check()
    missing.check()


@pytest.mark.soak
def test_connector_waits_for_a_broker_that_is_down(registry, local_board, tmp_path):
    ports = free_ports(2)
    with ExitStack() as first:
        broker = first.enter_context(kafka_at(tmp_path, *ports))
        with World.of(broker, registry, local_board.url) as world:
            world.create()
            world.produce(15)
            with world.connector() as running:
                running.wait(world.is_done, "the first ones")
                first.close()
                with kafka_at(tmp_path, *ports):
                    world.produce(15)
                    running.wait(world.is_done, "all to be signalled")
                    running.stopping.set()
                    running.thread.join(60)
                    world.check()

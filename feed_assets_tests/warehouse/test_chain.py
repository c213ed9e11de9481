"""Connector, Spark job and loader are killed over a real broker, S3 and warehouse: the table is the topic's fold."""

import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.warehouse import loader as loaders
from feed_assets.warehouse.engines import Engine
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_topics import check, loading_of, nexts
from feed_assets_tests.warehouse.chain import CONNECTOR, JOB, LOADER, Chain, produced

SPARK_EVERY = 10
"""A job is killed at every so-maniest time: it takes eight seconds to start, so none of the first ones is."""


@pytest.fixture
def world(broker, registry, s3_url: str, s3_env) -> Iterator[World]:
    with World.of(broker, registry, s3_url, s3_env.endpoint) as made:
        made.create()
        yield made


@pytest.fixture
def chain(world: World, url: str, fork: Forks, tmp_path: Path) -> Iterator[Chain]:
    for name in ("loads", "puts"):
        (tmp_path / name).touch()
    world.schema_id()  # The first of all, and so the older one: the other has a column more.
    made = Chain(world, url, fork, tmp_path / "loads")
    try:
        yield made
    finally:
        made.end()


def victim_of(seed: int, kills: int) -> str:
    if kills > 2 * SPARK_EVERY and seed % SPARK_EVERY == SPARK_EVERY - 1:
        return JOB
    return Random(seed).choice([CONNECTOR, LOADER])  # noqa: S311


def checked(world: World, engine: Engine) -> dict[int, int]:
    """Return the positions of the table; retry while the loader has the file open."""
    for _ in range(1000):
        try:
            return check(world, engine)
        except WarehouseUnavailable:
            continue
    pytest.fail("the loader never closes the file")


@pytest.mark.parametrize("kills", seeds(20, 200))
def test_each_is_killed_at_any_moment_while_others_produce(chain, world, engine, kills, monkeypatch):
    monkeypatch.setattr(loaders, "LEASE_SECONDS", 0.0)
    places = [nexts(engine, world.name)]
    for who in (CONNECTOR, LOADER):
        chain.start(who)
    for seed in kills:
        if seed % 5 == 0:
            wait_until(lambda: moves(chain, engine, places), "the table to move", 120, 0)
        victim = victim_of(seed, len(kills))
        chain.life(victim, Random(seed))  # noqa: S311
        places.append(checked(world, engine))
        chain.start(CONNECTOR if victim == JOB else victim)
    begun, ended, cut_off = chain.loads()
    chain.end()
    finish(world, engine, chain.url)
    moved = sum(one != other for one, other in pairwise(places))
    sys.stdout.write(f"{len(kills)} kills, {begun} loads, {cut_off} of them cut off, {moved} moves\n")
    assert begun - ended >= cut_off >= len(kills) // 20, "no load was cut off"
    assert moved >= len(kills) // 10, "the table hardly moved"


def moves(chain: Chain, engine: Engine, places: list[dict[int, int]]) -> bool:
    """Produce more messages, and return True if the table has advanced."""
    produced(chain.world, Random(len(places)))  # noqa: S311
    return checked(chain.world, engine) != places[-1]


def finish(world: World, engine: Engine, url: str) -> None:
    """Signal and load the remaining messages without faults: each once, and all of them."""
    world.run_until_done()
    world.check()
    loading = loading_of(world.place, url)
    with closing(loading.schemas):
        loaders.once(loading, {world.name: world.settings})
    assert check(world, engine) == {0: world.end()}

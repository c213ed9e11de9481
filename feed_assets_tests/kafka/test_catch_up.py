"""Catching up with a topic: the service's own files and signals, of what there is, then it ends."""

from contextlib import closing
from itertools import count

import pytest

from feed_assets.core.errors import FencedOff
from feed_assets.kafka.catch_up import catch_up
from feed_assets_tests.kafka.world import MORE, POISON


def take(world, **changes):
    chunking = world.place.chunking(**changes)
    with closing(chunking.schemas):
        return catch_up(chunking, world.name, world.settings)


def test_all_that_there_is_becomes_the_chunks_that_the_service_makes(world):
    world.create(partitions=2)
    world.produce(25)
    world.produce(3, partition=1, fields=MORE)
    world.send(POISON, partition=1)
    found = take(world)
    world.check(2)
    assert world.is_done(2)
    ranges = [(each.partition, each.first_offset, each.last_offset) for each in found]
    assert sorted(ranges) == [(0, 0, 9), (0, 10, 19), (0, 20, 24), (1, 0, 3)]
    assert take(world) == []


def test_the_service_goes_on_where_it_ended_and_it_where_the_service_did(world):
    world.create()
    world.produce(12)
    take(world)
    world.produce(3)
    world.run_until_done()
    world.produce(9)
    take(world)
    world.check()
    assert [each.next_offset for each in world.signals()] == [10, 12, 15, 20, 24], "the lines of the grid stay"


@pytest.mark.parametrize("step", range(6))
def test_killed_anywhere_it_leaves_nothing_out_and_nothing_twice(world, step):
    world.create()
    world.produce(12)
    steps = count()

    def kill(_):
        if next(steps) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(world, on_step=kill)
    take(world)
    world.check()
    assert world.is_done()


def test_a_service_that_reads_the_topic_is_put_out(world):
    world.create()
    world.produce(5)
    with world.connector() as running:
        running.wait(world.is_done, "all to be signalled")
        take(world)
        world.produce(1)
        running.thread.join(60)
        assert isinstance(running.error, FencedOff)
        running.error = None
    take(world)
    world.check()

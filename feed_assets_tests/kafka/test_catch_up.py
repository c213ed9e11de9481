"""Catching up with a topic: the same files and signals as the service makes, up to the current end."""

from contextlib import closing
from itertools import count

import pytest

from feed_assets.core.chunks import OffsetRange
from feed_assets.core.errors import FencedOff, LogTrimmed
from feed_assets.kafka.range_reader import follow
from feed_assets_tests.kafka.topic_steps import catch_up_once, trim
from feed_assets_tests.support.kafka_topics import MORE, POISON


def test_a_catch_up_makes_the_same_chunks_as_the_service(world):
    world.create(partitions=2)
    world.produce(25)
    world.produce(3, partition=1, fields=MORE)
    world.send(POISON, partition=1)
    found = catch_up_once(world)
    world.check(2)
    assert world.is_done(2)
    ranges = [(each.partition, each.first_offset, each.last_offset) for each in found]
    assert sorted(ranges) == [(0, 0, 9), (0, 10, 19), (0, 20, 24), (1, 0, 3)]
    assert catch_up_once(world) == []


def test_service_and_catch_up_resume_where_the_other_stopped(world):
    world.create()
    world.produce(12)
    catch_up_once(world)
    world.produce(3)
    world.run_until_done()
    world.produce(9)
    catch_up_once(world)
    world.check()
    assert [each.next_offset for each in world.signals()] == [10, 12, 15, 20, 24], "the lines of the grid stay"


@pytest.mark.parametrize("step", range(6))
def test_a_catch_up_killed_anywhere_loses_and_repeats_nothing(world, step):
    world.create()
    world.produce(12)
    steps = count()

    def kill(_):
        if next(steps) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catch_up_once(world, on_step=kill)
    catch_up_once(world)
    world.check()
    assert world.is_done()


def test_a_service_that_reads_the_topic_is_put_out(world):
    world.create()
    world.produce(5)
    with world.connector() as running:
        running.wait(world.is_done, "all to be signalled")
        catch_up_once(world)
        world.produce(1)
        running.thread.join(60)
        assert isinstance(running.error, FencedOff)
        running.error = None
    catch_up_once(world)
    world.check()


def test_catch_up_goes_on_beside_a_partition_that_needs_a_person(world):
    world.create(partitions=2)
    world.produce(10)
    catch_up_once(world)
    world.produce(30)
    world.produce(10, 1)
    trim(world, world.name, 25)
    with pytest.raises(LogTrimmed, match="/0 is to be read from offset 10 on"):
        catch_up_once(world)
    assert (world.reached(), world.reached(1)) == (10, 10)


def test_reading_a_range_that_the_broker_trims_raises(world):
    world.create()
    world.produce(10)
    trim(world, world.name, 5)
    with closing(world.place.chunking().clients.reader()) as reader, pytest.raises(LogTrimmed, match="offset 2 on"):
        [*follow(reader, world.name, {0: OffsetRange(2, 10)})]


def test_a_packed_chunk_that_its_time_had_ended_is_cut_again_as_it_was(world):
    world.settings = world.settings.model_copy(update={"gzip": True})
    world.create()
    world.produce(4)

    def kill(step):
        if step == "signal":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catch_up_once(world, on_step=kill)
    world.produce(3)
    catch_up_once(world)
    world.check()
    assert [each.last_offset for each in world.signals()] == [3, 6]

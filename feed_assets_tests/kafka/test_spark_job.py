"""Catching up with Spark's executors: the same chunks as the service makes, despite kills and takeovers."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from feed_assets.core.errors import FencedOff, KafkaUnavailable, LogTrimmed
from feed_assets.kafka import catch_up as module
from feed_assets.kafka import spark_job
from feed_assets.kafka.offset_range import Chunking
from feed_assets.kafka.registry_schemas import RegistryFails
from feed_assets.kafka.spark_job import Executors
from feed_assets_tests.kafka.topic_steps import another_group, trim
from feed_assets_tests.support.kafka_topics import MORE, POISON, Place, World


@pytest.fixture(autouse=True)
def short_spans(monkeypatch):
    """Two grid lines in each task."""
    monkeypatch.setattr(spark_job, "SPAN", 20)


@dataclass
class Taker:
    """Catches up with the topic of a world; `jobs` are the spans of each Spark job."""

    world: World
    spark: object
    jobs: list[list[tuple[int, int, int]]]

    def __call__(self, least: int = 1, made: Callable[[], Chunking] | None = None, **changes):
        chunking = self.world.place.chunking(**changes)
        executors = Executors(lambda: self.spark, made or self.world.place.chunking, least)
        with closing(chunking.schemas):
            found = module.catch_up(chunking, self.world.name, self.world.settings, executors)
        return self.world.committed(found)


@pytest.fixture
def take(world, spark, monkeypatch):
    taker, cut = Taker(world, spark, []), spark_job.cut

    def noted(executors, name, topic, wanted):
        taker.jobs.append([(each.number, each.start, each.end) for each in wanted])
        return cut(executors, name, topic, wanted)

    monkeypatch.setattr(spark_job, "cut", noted)
    return taker


def fill(world: World) -> None:
    """Fill two partitions with two schemas, deletes and poison."""
    world.create(partitions=2)
    world.produce(45)
    world.send(None, 3)
    world.produce(24, partition=1, fields=MORE)
    world.send(POISON, partition=1, op="create")
    world.produce(13, partition=1)
    world.produce(22)


def told(world: World) -> list[tuple[object, ...]]:
    signals = [each for number in (0, 1) for each in world.signals(number)]
    return [(each.partition, each.first_offset, each.last_offset, each.records, each.sha256) for each in signals]


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
def test_executors_make_the_same_chunks_as_the_service(world, take, chunk_format):
    world.change(format=chunk_format)
    fill(world)
    found = take()
    world.check(2)
    assert [sorted(each) for each in take.jobs] == [[(0, 0, 20), (0, 20, 40), (0, 40, 60), (1, 0, 20), (1, 20, 30)]]
    assert sorted((each.partition, each.first_offset) for each in found) == [each[:2] for each in told(world)]
    other = World(world.place)
    with closing(other.schemas):
        fill(other)
        other.settings = world.settings.model_copy(update={"seconds": 4})
        other.run_until_done(2)
        assert told(world) == told(other)
    (letter,) = world.dead_letters()
    headers = dict(letter.headers())
    assert (letter.value(), headers["op"], headers["feed_assets.offset"]) == (POISON, b"create", b"24")
    (poison,) = [each for each in world.messages() if each.value() == POISON]
    assert (letter.key(), int(headers["feed_assets.timestamp"])) == (poison.key(), poison.timestamp()[1])
    assert take() == []


def test_a_small_backlog_is_cut_without_spark(world, take):
    world.create()
    world.produce(45)
    assert len(take(least=46)) == 5
    assert take.jobs == []


@pytest.mark.parametrize("step", range(4))
def test_a_job_killed_while_signalling_makes_the_same_chunks_again(world, take, step):
    world.create()
    world.produce(25)
    steps = count()

    def kill(_):
        if next(steps) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(on_step=kill)
    put = {key: world.board.get(key) for key in world.files()}
    assert len(put) == 2
    take()
    world.check()
    assert world.is_done()
    assert put.items() <= {key: world.board.get(key) for key in world.files()}.items()


def dying(place: Place, mark: Path) -> Chunking:
    """Kill the process at its third chunk, unless one was killed before."""
    steps = count(1)

    def step(what: str) -> None:
        if what == "put" and next(steps) == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return place.chunking(on_step=step)


def test_a_killed_executor_loses_nothing(world, take, tmp_path):
    world.create()
    world.produce(45)
    made = partial(dying, world.place, tmp_path / "killed")
    with pytest.raises(KafkaUnavailable, match=r"executors cannot make the chunks of clicks.*worker exited"):
        take(made=made)
    assert (tmp_path / "killed").exists()
    take(made=made)
    world.check()
    assert world.is_done()


def test_an_error_of_an_executor_is_reported(world, take):
    world.create()
    world.produce(25)
    nowhere = replace(world.place, registry="http://127.0.0.1:1/apis/ccompat/v7")
    said = r"executors cannot make the chunks of clicks.*: cannot look up schema .*Each needs feed-assets"
    with pytest.raises(KafkaUnavailable, match=said):
        take(made=nowhere.chunking)
    take()
    world.check()


def test_an_executor_ends_its_task_where_the_registry_fails_with_a_schema(world, take):
    world.create()
    world.produce(25)
    place = world.place

    def made():
        def fails(schema_id):
            raise RegistryFails("no answer for this schema")

        chunking = place.chunking()
        chunking.schemas.get = fails
        return chunking

    take(made=made)
    assert take.jobs
    world.check()
    assert world.is_done()


def test_a_job_fenced_while_executors_cut_signals_nothing(world, take, monkeypatch):
    world.create()
    world.produce(25)
    cut = spark_job.cut

    def overtaken(*arguments):
        for each in cut(*arguments):
            monkeypatch.undo()
            with world.connector(place=another_group(world)) as service:
                service.wait(world.is_done, "the service to take all")
            yield each

    monkeypatch.setattr(spark_job, "cut", overtaken)
    with pytest.raises(FencedOff):
        take()
    world.check()
    assert [each.next_offset for each in world.signals()] == [10, 20, 25]


def test_unsignalled_files_of_another_grid_are_harmless(world, take):
    world.create()
    world.produce(45)
    world.settings = world.settings.model_copy(update={"messages": 4})

    def kill(step):
        if step == "signal":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(on_step=kill)
    assert len(world.files()) == 11
    world.settings = world.settings.model_copy(update={"messages": 10})
    take()
    world.check()
    assert world.is_done()
    world.produce(1)
    world.run_until_done()
    world.check()


LONG = {"transaction.timeout.ms": 900_000}
"""Keep a transaction open while Spark starts."""


def test_messages_of_an_open_transaction_are_left_to_the_next_run(world, take):
    world.create()
    world.produce(23)
    producer = Producer({"bootstrap.servers": world.place.servers, "transactional.id": world.name, **LONG})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.name, world.value(1), world.key(1), 0)
    producer.flush(30)
    world.produce(20)
    take()
    assert world.reached() == 23
    producer.commit_transaction(30)
    take()
    world.check()
    assert world.is_done()


def test_dead_letters_are_no_more_at_once_than_the_driver_can_hold(world, take):
    world.create(**{"max.message.bytes": "8000000"})
    for _ in range(4):
        world.send(b"x" * 900_000)
        world.send(b"y" * 900_000)
        world.send(b"z" * 900_000)
    world.produce(20)
    take()
    world.check()
    assert len(take.jobs) > 2
    assert len(world.dead_letters()) == 12


def test_a_trimmed_log_raises(world, take):
    world.create()
    world.produce(10)
    take()
    world.produce(30)
    trim(world, world.name, 15)
    with pytest.raises(LogTrimmed, match="from offset 10 on, which the broker has removed"):
        take()

"""A connector as a process of its own that is killed at a named step or moment, and deliberately wrong variants."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Event, Thread, Timer

from confluent_kafka import Producer

from feed_assets.core.topics import Topic
from feed_assets.kafka import chunk_files, offset_range, partition, service, spark_job
from feed_assets.kafka.catch_up import catch_up
from feed_assets.kafka.cutter import Cutter
from feed_assets.kafka.offset_range import Chunking
from feed_assets.kafka.spark_job import Executors
from feed_assets.settings import Settings
from feed_assets.spark.session import session
from feed_assets_tests.support.kafka_topics import Place
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.stepped_clients import CalledClients

MEMBER = "one"
"""Its name in the consumer group: a member with the same name takes over the partitions of the killed one at once."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(place: Place, name: str, topic: Topic, log: Path, step: str, number: int, wrong: str = "") -> None:
    """Run a connector, and kill its process right before the n-th occurrence of a step."""
    seen: list[str] = []

    def on_step(what: str) -> None:
        seen.append(what)
        if seen.count(step) == number:
            die()

    _serve(place, name, topic, log, wrong, on_step=on_step)


def killed_after(place: Place, name: str, topic: Topic, log: Path, seconds: float, is_early: bool) -> None:
    """Run a connector, and kill its process so many seconds after its start, or after it was assigned its partition."""
    timer = Timer(seconds, die)
    assign = service.ConnectorSession._assign

    def assigned(self, consumer, places):
        assign(self, consumer, places)
        timer.start()

    if is_early:
        timer.start()
    else:
        service.ConnectorSession._assign = assigned
    _serve(place, name, topic, log)


def job_killed_after(place: Place, name: str, topic: Topic, log: Path, seconds: float) -> None:
    """Catch up by Spark repeatedly, and kill the process so many seconds after the first chunk was put.

    Its executors end when they notice. Chunks that they put until then belong to no signal.
    """
    spark_job.SPAN = 2 * topic.messages
    log_puts(log)
    spark, timer = session(Settings()), Timer(seconds, die)
    before = log.stat().st_size
    Thread(target=_when, args=(lambda: log.stat().st_size > before, timer.start), daemon=True).start()
    while True:
        chunking = place.chunking()
        catch_up(chunking, name, topic, Executors(lambda: spark, partial(logging, place, log), 1))
        chunking.schemas.close()


def _when(condition: Callable[[], bool], then: Callable[[], None]) -> None:
    wait_until(condition, "a chunk", 300, 0.005)
    then()


def logging(place: Place, log: Path) -> Chunking:
    """Return the chunking of an executor that logs each put in `log`."""
    log_puts(log)
    return place.chunking()


def killed_after_call(place: Place, name: str, topic: Topic, log: Path, number: int) -> None:
    """Run a connector, and kill its process after the producer's n-th transactional call, or end after the chunk."""
    calls, stopping = count(1), Event()

    def after(producer: Producer, _: str) -> None:
        if next(calls) == number:
            producer.flush(30)  # The broker must have all messages: a kill that left some here would prove nothing.
            die()

    def on_step(step: str) -> None:
        if step == "signalled":
            stopping.set()

    log_puts(log)
    chunking = place.chunking(MEMBER, on_step=on_step)
    counted = replace(chunking, clients=CalledClients(chunking.clients, after))
    service.run(counted, {name: topic}, stopping, (0.1, 1))


def _serve(place: Place, name: str, topic: Topic, log: Path, wrong: str = "", **changes) -> None:
    {"": lambda: None, "clock": by_the_clock, "checkpoint": lambda: by_a_checkpoint(log)}[wrong]()
    log_puts(log)
    service.run(place.chunking(MEMBER, **changes), {name: topic}, Event(), (0.1, 1))


def log_puts(log: Path) -> None:
    """Log the digest of each chunk once it is stored."""
    if chunk_files.put.__name__ == "noted":
        return
    put = chunk_files.put

    def noted(board, key, content, *, replaces):
        put(board, key, content, replaces=replaces)
        with log.open("a") as file:
            file.write(f"{key} {sha256(content).hexdigest()}\n")

    chunk_files.put = noted


def by_the_clock() -> None:
    """Cut wrongly: chunks end by time alone, and leftover chunks are not checked."""

    class Clock(Cutter):
        def __init__(self, start, topic, until, body):
            super().__init__(start, topic.model_copy(update={"messages": 1_000_000}), 0, body)

    offset_range.Cutter = Clock
    chunk_files.put = lambda board, key, content, *, replaces: board.put(f"{chunk_files.FOLDER}/{key}", content)


def by_a_checkpoint(log: Path) -> None:
    """Continue wrongly: the position comes from a separate file that is written before the signal."""
    kept = log.with_suffix(".checkpoint")
    begin, write = partition.PartitionReader._begin, partition.PartitionReader._write

    def started(self, reader):
        return int(kept.read_text()) if kept.exists() else begin(self, reader)

    def noted(self, chunk):
        kept.write_text(str(chunk.signal.next_offset))
        return write(self, chunk)

    partition.PartitionReader._begin, partition.PartitionReader._write = started, noted

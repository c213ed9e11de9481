"""A connector killed over a real broker and S3: every offset is signalled once, and files never change."""

import hmac
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from time import sleep
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState, Producer

from feed_assets.core.topics import signals_of
from feed_assets.kafka import avro
from feed_assets_tests.kafka.members import AWAITED, BEGUN, DEAD, ELDERS, NEWCOMER, PARTITIONS, cast, member
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, POISON, World
from feed_assets_tests.support.killed_connectors import (
    job_killed_after,
    killed_after,
    killed_after_call,
    killed_at,
)
from feed_assets_tests.support.protobuf_topics import ProtobufWorld
from feed_assets_tests.support.servers import wait_until

KILLED = -9
MASK_KEY = b"k3y-" * 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "puts").touch()
    return tmp_path / "puts"


def digests(log: Path) -> dict[str, set[str]]:
    """Return the digests of all objects ever put under each key."""
    found: dict[str, set[str]] = {}
    for key, digest in map(str.split, log.read_text().splitlines()):
        found.setdefault(key, set()).add(digest)
    return found


def check(world: World, log: Path, partitions: int = 1) -> None:
    assert [key for key, found in digests(log).items() if len(found) > 1] == [], "a key with other bytes"
    world.check(partitions)


@pytest.mark.parametrize("step", ["put", "signal", "signalled"])
@pytest.mark.parametrize(("number", "chunk_format"), [(1, "csv"), (2, "parquet")])
def test_a_connector_killed_at_any_step_resumes_where_it_stopped(s3_world, fork, log, step, number, chunk_format):
    s3_world.change(format=chunk_format)
    s3_world.create()
    s3_world.produce(5)
    s3_world.send(POISON)
    s3_world.produce(20)
    assert fork.run(killed_at, s3_world.place, s3_world.name, s3_world.settings, log, step, number) == KILLED
    s3_world.produce(4)
    s3_world.run_until_done()
    check(s3_world, log)
    assert s3_world.signals()[0].last_offset == 9


def test_a_connector_killed_in_a_transaction_wrote_dead_letter_and_signal_or_neither(s3_world, fork, log):
    """Kill after each call to the broker in turn: the last one, COMMIT, writes dead letter and signal together."""
    s3_world.create()
    job = s3_world.place, s3_world.name, s3_world.settings, log
    written = list[tuple[int, int]]()
    for number in count(1):
        produce_chunk_with_poison(s3_world)
        if (code := fork.run(killed_after_call, *job, number)) != KILLED:
            break
        written.append(written_by_the_killed(s3_world))
    assert code == 0
    *before, last = written
    assert ({*before}, last) == ({(0, 0)}, (1, 1)), f"signals and dead letters after each call: {written}"
    s3_world.run_until_done()
    check(s3_world, log)


def produce_chunk_with_poison(world: World) -> None:
    """Produce the ten messages of a chunk, one of them poison: no connector waits for the time limit."""
    world.produce(5)
    world.send(POISON)
    world.produce(4)


def written_by_the_killed(world: World) -> tuple[int, int]:
    """Return how many signals and dead letters are committed, once the broker has ended the killed transaction."""
    conf = {"bootstrap.servers": world.place.servers, "transactional.id": f"{signals_of(world.name)}/0"}
    Producer(conf).init_transactions(30)
    return len(world.signals()), len(world.dead_letters())


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
def test_a_chunk_ended_by_time_is_cut_again_identically(s3_world, fork, log, chunk_format):
    s3_world.change(format=chunk_format)
    s3_world.create()
    s3_world.produce(4)
    assert fork.run(killed_at, s3_world.place, s3_world.name, s3_world.settings, log, "signal", 1) == KILLED
    s3_world.produce(4)
    s3_world.run_until_done()
    check(s3_world, log)
    assert s3_world.signals()[0].last_offset == 3


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
@pytest.mark.parametrize("kills", seeds(20, 200))
def test_a_connector_killed_at_any_moment_of_production_loses_nothing(s3_world, fork, log, kills, chunk_format):
    s3_world.change(format=chunk_format)
    s3_world.create()
    for seed in kills:
        kill(s3_world, fork, log, seed)
    assert len(digests(log)) > len(kills) / 10, "chunks that killed ones had put"
    s3_world.run_until_done()
    check(s3_world, log)


@pytest.mark.parametrize("kills", seeds(8, 100))
def test_masked_chunks_have_the_same_bytes_and_values_however_often_a_connector_is_killed(s3_world, fork, log, kills):
    s3_world.place = replace(s3_world.place, mask_key=MASK_KEY)
    s3_world.change(mask={"id": "hash", "n": "hash", "note?": "null"})
    s3_world.create()
    s3_world.send(b"a first poison: there is at least one")
    for seed in kills:
        kill(s3_world, fork, log, seed)
    assert digests(log) != {}, "chunks that killed ones had put"
    s3_world.run_until_done()
    check(s3_world, log)
    rows = {int(row["_offset"] or ""): row for each in s3_world.signals() if each.path for row in s3_world.rows(each)}
    expected = dict(masked_rows(s3_world))
    assert rows == expected
    assert any("note" in row for row in expected.values()), "both schemas"
    assert {(each.key(), each.value()) for each in s3_world.dead_letters()} == {(None, None)}


@pytest.mark.parametrize("kills", seeds(6, 100))
def test_chunks_of_protobuf_have_each_value_once_however_often_a_connector_is_killed(s3_world, fork, log, kills):
    world = ProtobufWorld(s3_world.place)
    world.create()
    with closing(world.schemas):
        for seed in kills:
            kill(world, fork, log, seed)
        assert digests(log) != {}, "chunks that killed ones had put"
        world.produce(2, fields=MORE)
        world.run_until_done()
        check(world, log)
        rows = {int(row["_offset"] or ""): row for each in world.signals() if each.path for row in world.rows(each)}
        expected = {each.offset(): world.columns(each.value()) for each in world.messages() if each.value() != POISON}
    assert {offset: (row["id"], row["n"], "note" in row) for offset, row in rows.items()} == {
        offset: (row["id"], str(row["n"]), "note" in row) for offset, row in expected.items()
    }
    notes = {offset: row["note"] for offset, row in rows.items() if row.get("note")}
    assert {offset: json.loads(each or "") for offset, each in notes.items()} == {
        offset: row["note"] for offset, row in expected.items() if row.get("note")
    }


def masked_rows(world: World) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yield the masked row of each valid message, by plain Python."""
    for each in world.messages():
        if each.value()[:1] != b"\0":
            continue
        _, schema_id = avro.HEAD.unpack_from(each.value())
        datum = avro.decoded(each.value(), world.schemas.get(schema_id))[0]
        keyed = {name: hmac.new(MASK_KEY, str(datum[name]).encode(), "sha256").hexdigest() for name in ("id", "n")}
        null = {"note": None} if "note" in datum else {}
        yield each.offset(), {"_operation": "update", "_offset": str(each.offset()), **keyed, **null}


@pytest.mark.parametrize("kills", seeds(2, 100))
def test_the_job_and_the_service_are_killed_in_turns(s3_world, fork, log, kills):
    s3_world.create()
    for seed in kills:
        kill_job(s3_world, fork, log, seed)
        kill(s3_world, fork, log, seed)
    assert digests(log) != {}, "chunks that killed ones had put"
    s3_world.run_until_done()
    check(s3_world, log)


@pytest.mark.parametrize("kills", seeds(3, 60))
def test_one_of_three_is_killed_in_the_middle_of_a_rebalance(s3_world, fork, log, kills):
    """End most chunks by time, so that a killed connector's chunk differs from its successor's."""
    s3_world.settings = s3_world.settings.model_copy(update={"messages": 50})
    s3_world.create(PARTITIONS)
    for seed in kills:
        rebalance(s3_world, fork, log, seed)
    check(s3_world, log, PARTITIONS)


def rebalance(world: World, fork: Forks, log: Path, seed: int) -> None:
    """Start two members and add a third, kill one; the other two process everything."""
    chance = Random(seed)  # noqa: S311
    world.place = replace(world.place, group=f"group-{uuid4().hex}", conf={"session.timeout.ms": "1500"})
    (said := log.with_name(f"said {seed}")).mkdir()
    (victim, parts), lives = cast(seed), dict[str, int]()

    def start(*names: str) -> None:
        for who in names:
            job = world.place, world.name, world.settings, log, said, who, parts.get(who)
            lives[who] = fork.start(member, *job)

    def meanwhile() -> None:
        for number in range(PARTITIONS):
            load(world, chance, partition=number)
        if state(world) is ConsumerGroupState.PREPARING_REBALANCING:
            (said / AWAITED).touch()

    try:
        start(*ELDERS)
        wait_until(lambda: all((said / f"{who} shares").exists() for who in ELDERS), "two to share the partitions")
        (said / BEGUN).touch()
        start(NEWCOMER)
        assert fork.wait(lives.pop(victim), meanwhile) == KILLED
        (said / DEAD).touch()
        wait_until(lambda: world.is_done(PARTITIONS), f"{[*lives]} to do what {victim} had", pause=0.1)
    finally:
        for each in lives.values():
            os.kill(each, signal.SIGKILL)
            fork.wait(each)


def state(world: World) -> ConsumerGroupState:
    return world.admin.describe_consumer_groups([world.place.group])[world.place.group].result(120).state


def kill(world: World, fork: Forks, log: Path, seed: int) -> None:
    """Run a connector until killed, while messages are produced."""
    chance = Random(seed)  # noqa: S311
    produce = partial(load, world, chance)
    produce()
    is_early = chance.random() < 0.2
    job = world.place, world.name, world.settings, log, chance.uniform(0.02, 0.4), is_early
    assert fork.run(killed_after, *job, meanwhile=produce) == KILLED


def kill_job(world: World, fork: Forks, log: Path, seed: int) -> None:
    """Run a Spark job until killed, while messages are produced."""
    chance = Random(seed)  # noqa: S311
    job = world.place, world.name, world.settings, log, chance.uniform(0, 4)
    assert fork.run(job_killed_after, *job, meanwhile=partial(load, world, chance, 0.5)) == KILLED


def load(world: World, chance: Random, pause: float = 0.02, partition: int = 0) -> None:
    """Send a few messages, some of them poison or with another schema."""
    sleep(pause)  # A load that leaves whoever reads the time to get somewhere: Spark needs a while to start.
    world.produce(chance.randint(1, 4), partition, MORE if chance.random() < 0.1 else FIELDS)
    if chance.random() < 0.1:
        world.send(POISON, partition=partition)


@pytest.mark.parametrize(("wrong", "said"), [("clock", "with other bytes"), ("checkpoint", "a hole")])
def test_wrong_implementations_are_caught_by_the_kill_tests(s3_world, fork, log, wrong, said):
    s3_world.create()
    job = s3_world.place, s3_world.name, s3_world.settings, log
    for _ in range(2):
        s3_world.produce(4)
        assert fork.run(killed_at, *job, "signal", 1, wrong) == KILLED
    s3_world.produce(1)
    assert fork.run(killed_at, *job, "signalled", 1, wrong) == KILLED
    with pytest.raises(AssertionError, match=said):
        check(s3_world, log)

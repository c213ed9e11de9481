"""The memory of `feed-assets connector run` does not grow with the backlog."""

from weakref import WeakSet

from confluent_kafka import Producer

from feed_assets.kafka import avro, chunk_files, dialect
from feed_assets_tests.support.connector_command import connector_process
from feed_assets_tests.support.kafka_topics import MORE, POISON, World
from feed_assets_tests.support.servers import peak_mb, wait_until

MOST_MB = 300
"""Limit in MB. It takes 200 to 240, and 340 with librdkafka's default read-ahead."""

LONG, PACKED, DEAD, DELETED = range(4)
"""Partitions by content: 80 MB of values of 32 kB, twice; 20 MB of dead letters; deletes without a value."""

BEGUN = {LONG: 1000, PACKED: 1000, DEAD: 800, DELETED: 40_000}
"""Signalled offsets after a full chunk of values, and several of those that wait in memory."""


def fill(world: World) -> None:
    conf = {**world._conf, "linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
    plain, packing = Producer(conf), Producer({**conf, "compression.type": "lz4"})
    schema_id = world.schema_id(MORE)
    schema, key, headers = world.schemas.get(schema_id), world.key(1), [("op", b"update")]
    for number in range(2500):
        datum = {"id": f"k{number}", "n": number, "note": f"{number:032}" * 1000}
        value = avro.encoded(datum, schema, schema_id)
        plain.produce(world.name, value, key, LONG, headers=headers)
        packing.produce(world.name, value, key, PACKED, headers=headers)
    for _ in range(1000):
        plain.produce(world.name, POISON + b"x" * 20_000, key, DEAD, headers=headers)
    for _ in range(50_000):
        plain.produce(world.name, None, key, DELETED, headers=headers)
    assert plain.flush(60) == packing.flush(60) == 0


def test_the_connector_takes_less_than_300_mb_for_any_backlog(world, home, tmp_path):
    world.create(partitions=4)
    fill(world)
    world.settings = world.settings.model_copy(update={"messages": 1_000_000, "seconds": 60})
    with connector_process(world, home, tmp_path) as process:
        wait_until(
            lambda: process.poll() is not None or all(world.reached(each) >= end for each, end in BEGUN.items()),
            "full chunks to be signalled",
            120,
            0.5,
        )
        assert peak_mb(process.pid) < MOST_MB


def test_the_end_of_a_chunk_is_found_without_keeping_its_lines(monkeypatch):
    class Line(list):
        """A line that can be counted."""

        __hash__ = object.__hash__

    def read(_):
        alive = WeakSet[Line]()
        for number in range(100):
            alive.add(line := Line(["update", f"{number}"]))
            assert len(alive) < 4
            yield line

    monkeypatch.setattr(dialect, "read", read)
    assert chunk_files.end_of(b"a chunk", ".csv") == 100

"""A batch that ends librdkafka by an assertion: the broker takes it, and each process that reads it crashes."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic

from confluent_kafka import TopicPartition

from feed_assets.kafka import crash_probe
from feed_assets_tests.support import raw_batches
from feed_assets_tests.support.connector_command import environment, started
from feed_assets_tests.support.servers import wait_until

READ = """
import sys
from feed_assets.core.errors import KafkaUnavailable
from feed_assets.kafka import lag, message_counts, topic_reader
from feed_assets.kafka.clients import Clients
reads = {
    "read": lambda *given: topic_reader.read(*given, {}, 100, 1 << 20, 30).after,
    "lag": lag.lag,
    "oldest": message_counts.oldest,
}
try:
    print(reads[sys.argv[3]](Clients({"bootstrap.servers": sys.argv[1]}), sys.argv[2]))
except KafkaUnavailable as error:
    print(error)
"""


@contextmanager
def connector(world, home, folder):
    """Run the command until the block ends, and kill it if it still runs after SIGTERM."""
    process = started(world, home, folder)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def has_ended_or_reached(process, world, partition, offset):
    return process.poll() is not None or world.reached(partition) == offset


def send_crashing_batch(world):
    world.create(2)
    world.produce(1, 0)
    send(world, 0, raw_batches.with_empty_member(b"v"))


def send(world, partition, batch):
    """Send a batch. A new topic's leader may refuse it at first."""
    wait_until(lambda: raw_batches.send(world.place.servers, world.name, partition, batch) == 0, "the batch", 60)


def delete_records(world):
    world.admin.delete_records([TopicPartition(world.name, 0, 2)])[TopicPartition(world.name, 0, 2)].result(60)


def test_a_connector_that_crashed_sets_the_partition_aside_and_reads_the_others(world, home, tmp_path):
    send_crashing_batch(world)
    with connector(world, home, tmp_path) as process:
        assert process.wait(120) == -signal.SIGABRT
    for count in range(1, 3):  # The second start follows an ordinary end, and does not crash either.
        world.produce(1, 1)
        with connector(world, home, tmp_path) as process:
            wait_until(partial(has_ended_or_reached, process, world, 1, count), "the other partition", 120)
            text = (tmp_path / "said").read_text()
            assert f"does not read {world.name}/0: some of its messages from offset 0 on crash the process" in text
            assert process.poll() is None
    delete_records(world)
    with connector(world, home, tmp_path) as process:
        world.produce(1, 0)
        wait_until(partial(has_ended_or_reached, process, world, 0, 3), "the first partition", 120)
    assert process.returncode == 0
    assert [*(home / "reads").iterdir()] == []


def test_connectors_that_share_a_crashing_partition_crash_once_and_stay(world, home, tmp_path):
    """One partition has the batch, and there are three connectors, so some have no other partition."""
    world.create(1)
    send(world, 0, raw_batches.with_empty_member(b"v"))
    with connector(world, home, tmp_path) as process:
        assert process.wait(120) == -signal.SIGABRT
    folders = [tmp_path / str(each) for each in range(3)]
    with ExitStack() as stack:
        processes = list[subprocess.Popen[bytes]]()
        for folder in folders:
            folder.mkdir()
            processes.append(stack.enter_context(connector(world, home, folder)))
        for number in range(3):  # Each kill gives the partition to another connector, which has not searched it.
            wait_until(partial(has_one_that_set_aside, folders[number:]), "the partition to be set aside", 120)
            assert [each.poll() for each in processes[number:]] == [None] * (3 - number)
            processes[number].kill()
            processes[number].wait()


def has_one_that_set_aside(folders):
    return any("from offset 0 on crash the process" in (each / "said").read_text() for each in folders)


def test_a_search_of_many_partitions_has_one_deadline_and_gives_signs_of_life(world):
    """Half of the partitions stand still: librdkafka neither delivers their batch nor reports their end."""
    count = 8
    world.create(count)
    crashing, still = raw_batches.with_empty_member(b"v"), raw_batches.with_impossible_key()
    for number in range(count):
        send(world, number, still if number % 2 else crashing)
    waits, began = list[float](), monotonic()
    starts = {(world.name, number): 0 for number in range(count)}
    crashes = crash_probe.crashing(world.place.chunking().clients, starts, partial(waits.append, 1.0))
    assert dict(crashes) == {(world.name, number): 0 for number in range(0, count, 2)}
    assert monotonic() - began < crash_probe.SEARCH_SECONDS
    assert waits


def test_a_reader_that_crashed_names_the_partition_instead(world, home):
    send_crashing_batch(world)

    def read(kind="read"):
        command = [sys.executable, "-c", READ, world.place.servers, world.name, kind]
        env = {**os.environ, **environment(world, home)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    assert read() == (-signal.SIGABRT, "")
    for _ in range(2):
        code, text = read()
        assert code == 0
        assert text.startswith(f"cannot read {world.name}: some messages of partition 0 from offset ")
    delete_records(world)
    assert read() == (0, "{0: 2}\n")
    send(world, 0, raw_batches.with_empty_member(b"v"))
    for kind in ("lag", "lag", "oldest"):  # The first of these reads crashes its child, and the others do not try.
        code, text = read(kind)
        assert code == 0
        assert text.startswith(f"cannot read {world.name}: some messages of partition 0 from offset 2 on")
    assert len([*(home / "reads").iterdir()]) == 1

"""Topics and servers that are missing, duplicated, or changed while the connector runs."""

import re
from threading import Event

import pytest
from confluent_kafka import Producer

from feed_assets.core.errors import FencedOff, LogTrimmed, SignalsLost
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.kafka import chunk_files, companion_topics
from feed_assets.kafka.companion_topics import About
from feed_assets.kafka.lag import lag
from feed_assets.kafka.signals import Signals
from feed_assets_tests.kafka.topic_steps import another_group, trim
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, World
from feed_assets_tests.support.servers import wait_until


def test_a_second_service_on_a_partition_fences_the_first(world):
    world.create()
    world.produce(10)
    with world.connector() as first:
        first.wait(world.is_done, "the first chunk")
        with world.connector(place=another_group(world)) as second:
            second.wait(lambda: world.produce(1) or first.error is not None, "the first one to be put out")
            second.wait(world.is_done, "the second one to go on")
        fenced = first.ended_with()
    world.check()
    assert isinstance(fenced, FencedOff)
    assert re.search(r"signal clicks.*/0: another process does.*group.id", str(fenced))


def test_a_second_process_with_the_same_member_name_fences_the_first(world):
    world.create()
    world.produce(10)
    with world.connector("same") as first:
        first.wait(world.is_done, "the first chunk")
        with world.connector("same") as second:
            second.wait(lambda: first.error is not None, "the first one to be put out")
            world.produce(10)
            second.wait(world.is_done, "the second one to go on")
        fenced = first.ended_with()
    world.check()
    assert isinstance(fenced, FencedOff)


def test_a_fenced_connector_that_wakes_up_changes_no_signalled_file(world):
    world.create()
    world.produce(4)
    asleep, awake = Event(), Event()

    def sleep(step: str) -> None:
        if step == "put":
            asleep.set()
            assert awake.wait(120)

    with world.connector(on_step=sleep) as first:
        assert asleep.wait(120)  # With four messages, about to be put.
        world.produce(6)
        with world.connector(place=another_group(world)) as second:
            second.wait(world.is_done, "the second one to signal all ten")
        assert [each.records for each in world.signals()] == [10]
        first.stopping.set()
        awake.set()
    world.check()


def test_two_members_share_partitions_and_take_over_in_the_middle_of_chunks(world):
    """Let no chunk end by time: the second connector restarts the chunks of the first."""
    world.settings = world.settings.model_copy(update={"seconds": 3600})
    world.create(partitions=4)
    produce_to_all(world, 13)
    with world.connector("") as first:
        first.wait(lambda: all_reach(world, 10), "the first line by one")
        with world.connector("") as second:
            wait_until(lambda: len(members(world)) == 2, "both to have partitions", 120, 0.2)
            produce_to_all(world, 9)
            second.wait(lambda: all_reach(world, 20), "the second line by both")
        produce_to_all(world, 8)
        first.wait(lambda: all_reach(world, 30), "the third line by one again")
    world.check(4)


def produce_to_all(world: World, count: int) -> None:
    for number in range(4):
        world.produce(count, number)


def all_reach(world: World, offset: int) -> bool:
    return all(world.reached(number) >= offset for number in range(4))


def members(world: World):
    """Return the members of the group that have partitions."""
    found = world.admin.describe_consumer_groups([world.place.group])[world.place.group].result(120)
    return [each for each in found.members if each.assignment.topic_partitions]


def test_companion_topics_grow_with_the_partitions_of_their_topic(world):
    world.create(partitions=2)
    world.produce(3, 1)
    with world.connector() as running:
        running.wait(lambda: world.is_done(2), "both partitions")
        world.grow(3)
        world.produce(3, 2)
        running.wait(lambda: world.is_done(3), "the third partition")
    world.check(3)
    for name in (signals_of(world.name), dead_letters_of(world.name)):
        assert companion_topics.partitions(world.admin, name) == 3


def test_a_log_that_was_trimmed_before_it_was_read_raises(world):
    world.create()
    world.produce(10)
    world.run_until_done()
    world.produce(30)
    trim(world, world.name, 25)
    with pytest.raises(LogTrimmed, match=r"/0 is to be read from offset 10 on, which the broker has removed.*25 to 40"):
        world.run_until_done()
    assert world.reached() == 10


def ended_beside_another(world: World) -> BaseException | None:
    """Return the exception that ends a connector which has read partition 1 up to offset 10."""
    with world.connector() as running:
        running.wait(lambda: world.reached(1) == 10, "the other one")
        running.stopping.set()
        running.thread.join(60)
        return running.ended_with()


def test_connector_goes_on_beside_a_partition_that_needs_a_person(world, capfd):
    world.create(partitions=2)
    world.produce(10)
    world.run_until_done(2)
    world.produce(30)
    world.produce(10, 1)
    trim(world, world.name, 25)
    ended = ended_beside_another(world)
    assert isinstance(ended, LogTrimmed)
    assert f"feed-assets: connector: does not read {world.name}/0: {ended}" in capfd.readouterr().err
    assert world.reached() == 10


@pytest.mark.parametrize("messages", [3, 15])
def test_a_recreated_topic_raises_at_any_length(world, messages):
    world.create()
    world.produce(10)
    world.run_until_done()
    world.delete(world.name)
    world.create()
    world.produce(messages)
    said = r"/0 is signalled up to offset 10 of a topic that is gone: .*deleted and recreated.* as another table"
    with pytest.raises(LogTrimmed, match=said):
        world.run_until_it_fails()
    with pytest.raises(LogTrimmed, match=said):
        lag(world.place.chunking().clients, world.name)
    assert [each.next_offset for each in world.signals()] == [10]


def test_a_recreated_topic_with_more_partitions_gets_no_signals_at_all(world):
    world.create()
    world.produce(10)
    world.run_until_done()
    world.delete(world.name)
    world.create(partitions=2)
    world.produce(5, 1)
    with pytest.raises(LogTrimmed, match="/0 is signalled up to offset 10 of a topic that is gone"):
        world.run_until_it_fails()
    assert world.signals(1) == []


def test_a_topic_that_is_recreated_while_it_is_read_gets_no_more_signals(world):
    world.create()
    world.produce(10)
    world.run_until_done()

    def recreate(step: str) -> None:
        if step == "signal":
            world.delete(world.name)
            world.create()
            world.produce(30)  # so that the old offset exists in the new topic

    world.produce(10)
    with pytest.raises(LogTrimmed, match=r"/0 is signalled up to offset 10 of a topic that is gone: "):
        world.run_until_it_fails(on_step=recreate)
    assert [each.next_offset for each in world.signals()] == [10]


def test_a_topic_whose_first_messages_are_gone_begins_where_it_does(world):
    world.create()
    world.produce(30)
    trim(world, world.name, 13)
    world.run_until_done()
    assert [(each.first_offset, each.last_offset) for each in world.signals()] == [(13, 19), (20, 29)]


def test_signals_that_were_deleted_are_missed(world):
    world.create()
    world.produce(10)
    world.run_until_done()
    trim(world, signals_of(world.name), 2)
    with pytest.raises(SignalsLost, match="has lost its signals: the broker has deleted all messages before offset 2"):
        world.run_until_it_fails()


def test_a_stray_signal_stops_only_its_partition(world, capfd):
    world.create(partitions=2)
    world.produce(10)
    world.run_until_done()
    world.producer.produce(signals_of(world.name), b"stray", partition=0)
    assert world.producer.flush(30) == 0
    world.produce(10, 1)
    ended = ended_beside_another(world)
    assert isinstance(ended, SignalsLost)
    assert re.search(r"signals/0, at offset \d+, is not the connector's: b'stray' is not a signal", str(ended))
    assert f"does not read {world.name}/0" in capfd.readouterr().err


def test_the_last_signal_is_found_behind_aborted_transactions(world):
    """Include a transaction of a killed connector, which the next one aborts."""
    world.create()
    world.produce(10)
    world.run_until_done()
    chunking = world.place.chunking()
    for _ in range(4):
        undone = Signals(chunking.clients, world.name, 0, 1, About("an id", 1_000_000))
        undone._producer.begin_transaction()
        undone._producer.produce(signals_of(world.name), b"undone", partition=0)
        undone._producer.flush(30)
    chunking.schemas.close()
    world.produce(10)
    world.run_until_done()
    world.check()
    assert world.reached() == 20


def test_aborted_messages_and_transaction_markers_are_not_read(world):
    world.create()
    producer = Producer({"bootstrap.servers": world.place.servers, "transactional.id": world.name, "log_level": 0})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        producer.produce(world.name, world.value(number), world.key(number), 0, headers=[("op", b"create")])
        producer.flush(30)
        producer.abort_transaction(30) if number % 3 == 1 else producer.commit_transaction(30)
    world.run_until_done()
    world.check()
    assert sum(each.records for each in world.signals()) == 8
    assert world.reached() > 20


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
def test_a_kept_file_of_other_settings_is_replaced(world, chunk_format):
    world.change(format=chunk_format)
    world.create()
    world.produce(10)
    world.board.put(f"{chunk_files.FOLDER}/{world.name}/0/{0:020}.{chunk_format}", b"anything\n")
    world.run_until_done()
    world.check()


def test_packed_chunks_are_the_same_bytes(world):
    world.settings = world.settings.model_copy(update={"gzip": True})
    world.create()
    world.produce(10)
    world.run_until_done()
    (signal,) = world.signals()
    assert signal.path.endswith("/00000000000000000000.csv.gz")
    assert world.file(signal)[4:8] == bytes(4)  # No time.
    world.check()


def test_a_new_schema_in_the_middle_is_read_with_what_was_before(world):
    world.create()
    for number in range(6):
        world.produce(5, fields=MORE if number % 2 else FIELDS)
    world.run_until_done()
    world.check()

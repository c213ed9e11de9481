"""A connector reads as many partitions as one process can, of small topics first, and names those that it leaves."""

from confluent_kafka import TopicPartition

from feed_assets.core.errors import TooManyPartitions
from feed_assets.kafka import partition_limit
from feed_assets_tests.support.servers import wait_until


def test_partitions_above_the_limit_are_named_and_read_by_a_further_connector(world, monkeypatch, capfd):
    monkeypatch.setattr(partition_limit, "MOST_PARTITIONS", 3)
    world.create(5)
    for partition in range(5):
        world.produce(10, partition)
    with world.connector() as first:
        first.wait(lambda: [world.reached(number) for number in range(5)] == [10, 10, 10, 0, 0], "three partitions")
        said = f"does not read {world.name}/3, {world.name}/4: this connector reads 3 partitions, and leaves 2 of"
        wait_until(lambda: said in capfd.readouterr().err, "the partitions that are left")
        with world.connector("two") as second:
            second.wait(lambda: all(world.reached(number) == 10 for number in range(5)), "all partitions")
        first.wait(lambda: "leaves 2 of" in capfd.readouterr().err, "the partitions that are left again")
        first.stopping.set()
        first.thread.join(60)
        assert isinstance(first.ended_with(), TooManyPartitions)


def test_partitions_of_a_large_topic_are_left_before_those_of_a_small_one():
    assigned = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0), TopicPartition("c", 7)]
    ordered = partition_limit.small_topics_first(assigned)
    assert [(each.topic, each.partition) for each in ordered] == [("b", 0), ("c", 7), ("a", 0), ("a", 1)]

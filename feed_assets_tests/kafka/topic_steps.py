"""Actions of tests on a topic."""

from contextlib import closing
from dataclasses import replace
from uuid import uuid4

from confluent_kafka import TopicPartition

from feed_assets.kafka.catch_up import catch_up
from feed_assets_tests.support.kafka_topics import Place, World


def another_group(world: World) -> Place:
    """Return the same place with another consumer group."""
    return replace(world.place, group=f"group-{uuid4().hex}")


def trim(world: World, topic: str, before: int) -> None:
    """Remove the messages of partition 0 before an offset, as retention does."""
    place = TopicPartition(topic, 0, before)
    world.admin.delete_records([place])[place].result(120)


def catch_up_once(world, **changes):
    """Make chunks of all messages. Return the committed signals."""
    chunking = world.place.chunking(**changes)
    with closing(chunking.schemas):
        return world.committed(catch_up(chunking, world.name, world.settings))

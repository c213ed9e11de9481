"""A Kafka topic as an asset, with a world of its messages."""

import json
from contextlib import closing, contextmanager

from feed_assets import kafka_topic
from feed_assets.kafka.catch_up import catch_up
from feed_assets.settings import settings
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.sum_projects import harness

TABLE = "ads/clicks"


@contextmanager
def kafka_world(broker, registry, setting):
    """Yield a topic on the broker of the settings, chunked to the blackboard of the home."""
    setting(kafka=json.dumps({"bootstrap.servers": broker.servers}), kafka_registry=registry.url)
    with World.of(broker, registry, settings().blackboard) as made:
        yield made


def declared(world, **options):
    """Declare the topic as an asset with the limits of the world."""
    limits = world.settings.model_dump(exclude={"key", "gzip", "format", "columns"})
    return kafka_topic(TABLE, topic=world.name, key=["id"], **{**limits, **options})


def chunk(world):
    """Make chunks of all messages."""
    chunking = world.place.chunking()
    with closing(chunking.schemas):
        return world.committed(catch_up(chunking, world.name, world.settings))


def loop(world, *more, **options):
    return harness(declared(world, **options), *more)

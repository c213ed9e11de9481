"""A world of topics for each test."""

from collections.abc import Iterator

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.kafka_servers import Broker, Registry
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.servers import S3Server


@pytest.fixture
def world(broker: Broker, registry: Registry, local_board: Blackboard) -> Iterator[World]:
    """Return topics of one test, chunked to a fresh folder."""
    with World.of(broker, registry, local_board.url) as made:
        yield made


@pytest.fixture
def s3_world(broker: Broker, registry: Registry, s3_url: str, s3_env: S3Server) -> Iterator[World]:
    """Return topics of one test, chunked to S3."""
    with World.of(broker, registry, s3_url, s3_env.endpoint) as made:
        yield made

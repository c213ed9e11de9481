"""The objects that write Kafka topics as chunks, made from the settings, for the connector and for catch-up runs."""

from feed_assets.core.errors import InvalidSetting
from feed_assets.feeds.opened import open_board
from feed_assets.kafka.clients import Clients, say_heard
from feed_assets.kafka.offset_range import Chunking
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.settings import Settings


def chunking_of(config: Settings) -> Chunking:
    """Return the configured clients, schemas and blackboard. Raise InvalidSetting if a setting is missing."""
    conf = config.kafka.get_secret_value()
    if "bootstrap.servers" not in conf:
        raise InvalidSetting(
            "FEED_ASSETS_KAFKA has no bootstrap.servers: expected the brokers as host:port, separated by commas."
        )
    if config.kafka_registry is None:
        raise InvalidSetting("FEED_ASSETS_KAFKA_REGISTRY is not set: expected the URL of the schema registry.")
    schemas = Schemas(config.kafka_registry.get_secret_value())
    return Chunking(Clients(conf, say_heard), schemas, open_board(config), mask_key=config.mask_key_bytes)

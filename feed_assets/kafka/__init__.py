"""Conversion of topics to files that never change, with a signal for each file. Needs the extra `kafka`."""

from importlib.util import find_spec

from feed_assets.core.errors import InvalidSetting


def check_installed() -> None:
    """Raise InvalidSetting unless Kafka's libraries are installed. Only topics need them."""
    if find_spec("confluent_kafka") is None:
        raise InvalidSetting("Kafka's topics need more packages: `pip install 'feed-assets[kafka]'`.")

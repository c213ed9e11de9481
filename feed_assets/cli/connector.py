"""`feed-assets connector`: topics become chunks."""

import signal
from collections.abc import Mapping
from contextlib import closing
from importlib.util import find_spec
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.core.errors import InvalidSetting
from feed_assets.home import say
from feed_assets.settings import Settings, settings

if TYPE_CHECKING:
    from feed_assets.core.topics import Topic
    from feed_assets.kafka.partition import Chunking

app = typer.Typer(help="Make files and signals of Kafka topics.", no_args_is_help=True)


@app.callback()
def connector() -> None:
    """Make files and signals of Kafka topics."""


@app.command()
def run(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics of the settings; by default all.")
    ] = None,
) -> None:
    """Keep and signal the chunks of topics until Ctrl-C or SIGTERM; several processes share the partitions."""
    if find_spec("confluent_kafka") is None or find_spec("fastavro") is None:
        raise InvalidSetting("the connector needs more packages: `pip install 'feed-assets[kafka]'`.")
    from feed_assets.kafka import service

    wanted = _wanted(settings(), topics or [])
    stopping = Event()

    def stop(_: int, __: object) -> None:
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    chunking = _chunking(settings())
    with closing(chunking.schemas):
        service.run(chunking, wanted, stopping)
    say("connector: ended; what is not signalled is read again")


def _wanted(config: Settings, names: list[str]) -> "Mapping[str, Topic]":
    known = config.kafka_topics
    if unknown := sorted({*names} - {*known}):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidSetting(f"there is no topic {unknown[0]!r}: FEED_ASSETS_KAFKA_TOPICS has {there}. Add it there.")
    if not known:
        raise InvalidSetting("there is no topic to read: set FEED_ASSETS_KAFKA_TOPICS.")
    return {name: known[name] for name in names or known}


def _chunking(config: Settings) -> "Chunking":
    """The clients and the blackboard of the settings."""
    from feed_assets.kafka.clients import Clients
    from feed_assets.kafka.partition import Chunking
    from feed_assets.kafka.schemas import Schemas
    from feed_assets.runs.services import open_board

    conf = config.kafka.get_secret_value()
    if "bootstrap.servers" not in conf:
        raise InvalidSetting("FEED_ASSETS_KAFKA has no bootstrap.servers: expected the brokers, host:port, by commas.")
    if config.kafka_registry is None:
        raise InvalidSetting("FEED_ASSETS_KAFKA_REGISTRY is not set: expected the URL of the schema registry.")
    schemas = Schemas(config.kafka_registry.get_secret_value())
    return Chunking(Clients(conf, _say_error), schemas, open_board(config))


def _say_error(error: object) -> None:
    say(f"connector: {error}")

"""`feed-assets connector`: topics become chunks."""

import signal
from collections.abc import Mapping
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.location import Module, load_graph
from feed_assets.core.errors import InvalidName
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.core.topics import Topic

app = typer.Typer(help="Make files and signals of Kafka topics.", no_args_is_help=True)


@app.callback()
def connector() -> None:
    """Make files and signals of Kafka topics."""


@app.command()
def run(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics of the code location; by default all.")
    ] = None,
    module: Module = None,
) -> None:
    """Keep and signal the chunks of topics until Ctrl-C or SIGTERM; several processes share the partitions."""
    from feed_assets.kafka import check_installed

    check_installed()
    from feed_assets.kafka import service
    from feed_assets.runs.chunking import chunking_of

    wanted, stopping = wanted_topics(module, topics or []), stopped_by_signals()
    chunking = chunking_of(settings())
    with closing(chunking.schemas):
        service.run(chunking, wanted, stopping)
    say("connector: ended; what is not signalled is read again")


def stopped_by_signals() -> Event:
    """An event that Ctrl-C and SIGTERM set."""
    stopping = Event()

    def stop(_: int, __: object) -> None:
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    return stopping


def wanted_topics(module: str | None, names: list[str]) -> "Mapping[str, Topic]":
    """The limits of these topics, or of all that are declared. Raises InvalidName."""
    from feed_assets.orchestration.ticks.topics import topics_of

    known = {name: each.topic for name, each in topics_of(load_graph(module)).items() if each.topic}
    if unknown := sorted({*names} - {*known}):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidName(f"no topic {unknown[0]!r} is declared here: expected one of {there}.")
    if not known:
        raise InvalidName("no topic is declared here: declare one by kafka_topic, or by a TopicsComponent.")
    return {name: known[name] for name in names or known}

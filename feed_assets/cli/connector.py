"""`feed-assets connector`: write the messages of Kafka topics to chunks, and signal the chunks."""

import signal
from collections.abc import Mapping
from contextlib import closing
from difflib import get_close_matches
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.loaded_location import Module, load_graph
from feed_assets.cli.pattern_topics import patterns_in, watch_of
from feed_assets.core.errors import InvalidName
from feed_assets.core.message_words import shortened
from feed_assets.heartbeats import Heartbeat
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.core.topics import Topic
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.declare.declarations import EventTable

NAMED = 20
"""The most topics that an error names."""

app = typer.Typer(help="Turn Kafka topics into files and signals.", no_args_is_help=True)


@app.callback()
def connector() -> None:
    """Turn Kafka topics into files and signals."""


@app.command()
def run(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics of the code location; by default all.")
    ] = None,
    module: Module = None,
) -> None:
    """Write and signal chunks of topics until Ctrl-C or SIGTERM. Several processes share the topics' partitions.

    Without TOPIC, also read topics that match a pattern of kafka_topics, and look for new ones every 30 seconds.
    """
    from feed_assets.kafka import check_installed

    check_installed()
    from feed_assets.kafka import masks, service
    from feed_assets.kafka.read_notes import noted
    from feed_assets.runs.chunking import chunking_of

    graph, stopping = load_graph(module), stopped_by_signals()
    patterns = patterns_in(graph)
    selected: Mapping[str, Topic] = {} if patterns and not topics else wanted_topics(graph, topics or [])
    chunking, heartbeat = chunking_of(settings()), Heartbeat("connector")
    watch = None if topics else watch_of(graph, chunking)
    newer = watch.look if watch else service.no_newer_topics
    masks.check_key([*selected.values(), *(each.rules for each in patterns)], chunking.mask_key)
    with closing(chunking.schemas), closing(heartbeat), noted("connector") as note:
        service.run(chunking, selected, stopping, beat=heartbeat.beat, note=note, newer=newer)
    say("connector: ended; messages without a signal are read again at the next start")


def stopped_by_signals() -> Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stopping = Event()

    def stop(_: int, __: object) -> None:
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    return stopping


def wanted_topics(graph: "Graph", names: list[str]) -> "Mapping[str, Topic]":
    """Return the limits of these topics, or of all declared ones. Raise InvalidName for an undeclared topic."""
    return {name: each.topic for name, each in named_topics(graph, names).items() if each.topic}


def named_topics(graph: "Graph", names: list[str]) -> "Mapping[str, EventTable]":
    """Return the tables of these topics, or of all declared ones. Raise InvalidName for an undeclared topic."""
    from feed_assets.orchestration.ticks.topic_checks import topics_of

    declared = topics_of(graph)
    if not declared and patterns_in(graph):
        raise InvalidName("no topic that matches a pattern is recorded yet: `feed-assets connector run` records them.")
    if not declared:
        raise InvalidName("no topic is declared here: declare one by kafka_topic, or by a TopicsComponent.")
    if unknown := sorted({*names} - {*declared}):
        raise InvalidName(
            f"no topic {unknown[0]!r} is declared here{_near(unknown[0], declared)}: expected one of "
            f"{shortened(sorted(declared), NAMED)}. Correct the name, or declare it by kafka_topic."
        )
    return {name: declared[name] for name in names or sorted(declared)}


def _near(name: str, table_by_topic: "Mapping[str, EventTable]") -> str:
    """Return a note that suggests a declared topic, if its name or its table's name is similar. Return '' otherwise."""
    topics = {
        **{str(table.feed): topic for topic, table in table_by_topic.items()},
        **{topic: topic for topic in table_by_topic},
    }
    near = get_close_matches(name, topics, 1)
    return f" (is {topics[near[0]]} meant?)" if near else ""

"""Declarations of Kafka topics that become chunks: event tables whose events are the signals of the chunks."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field, ValidationError

from feed_assets.core.argument_types import Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topics import TOPIC_NAME, Topic, dead_letters_of, signals_of
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.cadences import check_cadence, freshness_of
from feed_assets.orchestration.declare.declarations import Declaration, EventTable, metadata_of
from feed_assets.orchestration.declare.input_specs import asset_key, declared_feed, group_of
from feed_assets.sources.declared import CountedTopic, EventSource, SignalTopic, TopicCounts


@typed
def kafka_topic(
    name: str,
    *,
    topic: str,
    key: Sequence[str],
    messages: int = 10_000,
    seconds: float = 60,
    operation: str | None = None,
    gzip: bool = False,
    lag: Annotated[int, Field(ge=1)] | None = None,
    counts: TopicCounts | None = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetSpec:
    """Declare a Kafka topic that becomes chunks, as an external asset: an event table, each chunk's signal an event.

    It has a partition for each of the topic's, added once it has a chunk. An event's marker is the offset behind its
    chunk. Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the S3 Spolt.

    Args:
        name: Its name here, such as `ads/clicks`.
        topic: The topic's name at the broker of `FEED_ASSETS_KAFKA`.
        key: The fields that name a row, of the value or else of the message's key.
        messages: The message limit: chunks end on lines of a grid that are so many offsets apart.
        seconds: The time limit: a chunk ends at the latest so many seconds after its first message arrived.
        operation: The place of a message's type: `header:NAME` or `field:NAME`; without it every one is an update.
        gzip: True if chunks are packed.
        lag: Messages of one partition that may be without a chunk; more fail the check `caught_up`, and are an alert.
        counts: Counting of its messages for a dataset of the state store, which a `state_table` declares.
        cadence: Schedule of chunks; a missing one raises an alert. Dagster's freshness policy is made of it.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an address of e-mail.

    Returns:
        The spec of the external asset, to be an input of datasets by events.

    Raises:
        InvalidName: The name is none that a table can have.
        InvalidDefinition: A value is of a wrong type, or out of its bounds, or the topic's name is none.
    """
    feed = declared_feed(name)
    counted = (CountedTopic(topic, counts),) if counts else ()
    source = EventSource(_source_of(topic), (SignalTopic(topic, counts), *counted))
    limits = _limits(topic, key=tuple(key), messages=messages, seconds=seconds, operation=operation, gzip=gzip)
    partitions_def = dg.DynamicPartitionsDefinition(name=f"kafka/{topic}")
    check_cadence(feed, cadence, partitions_def)
    return dg.AssetSpec(
        asset_key(feed),
        partitions_def=partitions_def,
        description=description or f"The chunks of the Kafka topic {topic}.",
        group_name=group_of(feed),
        kinds={"kafka"},
        owners=owners,
        freshness_policy=freshness_of(cadence),
        metadata=metadata_of(EventTable(feed, source, topic, cadence, limits, lag)),
    )


def declared_topics(declarations: Iterable[Declaration]) -> dict[str, EventTable]:
    """Return the tables that are Kafka topics, by the topic's name.

    Raise InvalidDefinition for two of one topic, and for a topic that the connector itself writes for another one.
    """
    table_by_topic: dict[str, EventTable] = {}
    for each in declarations:
        if not isinstance(each, EventTable) or not each.topic:
            continue
        if (first := table_by_topic.setdefault(each.table_name, each)).feed != each.feed:
            names = f"{first.feed} and {each.feed}"
            raise InvalidDefinition(f"the topic {each.table_name} is declared twice, as {names}: expected one.")
    for name in table_by_topic:
        for written in {signals_of(name), dead_letters_of(name)} & {*table_by_topic}:
            why = f"which the connector writes of {name}: expected a topic that others produce to"
            raise InvalidDefinition(
                f"{table_by_topic[written].feed} is the topic {written}, {why}. Remove it, or rename one."
            )
    return table_by_topic


def _source_of(topic: str) -> str:
    """Return the event source of a topic. Topics that only differ in `.`, `-` and `_` would have the same one."""
    if not re.fullmatch(TOPIC_NAME, topic):
        raise InvalidDefinition(
            f"topic {topic!r}: expected up to 200 letters, digits, '_', '-' and '.', '.' not first."
        )
    return f"topic_{re.sub('[.-]', '_', topic)}"


def _limits(topic: str, **values: object) -> Topic:
    try:
        return Topic.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidDefinition(f"topic {topic}: {where} is {first['input']!r}: {first['msg']}.") from error

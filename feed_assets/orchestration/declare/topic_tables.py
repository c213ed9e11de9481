"""Declarations of Kafka topics that are written as chunks.

Each is an event table whose events are the chunks' signals.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field, ValidationError

from feed_assets.core.argument_types import Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topic_patterns import identifier_of
from feed_assets.core.topics import (
    TOPIC_NAME,
    ChunkFormat,
    Conflicts,
    Framing,
    KeyFormat,
    Mask,
    Topic,
    ValueFormat,
    dead_letters_of,
    signals_of,
)
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
    values: ValueFormat = "avro",
    schema: str | None = None,
    keys: KeyFormat = "avro",
    framing: Framing = "confluent",
    mask: Mapping[str, Mask] | None = None,
    format: ChunkFormat = "csv",  # noqa: A002
    gzip: bool = False,
    conflicts: Conflicts = "stop",
    newest_by: str | None = None,
    snapshot_markers: str | None = None,
    flatten: int = 0,
    lag: Annotated[int, Field(ge=1)] | None = None,
    counts: TopicCounts | None = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetSpec:
    """Declare a Kafka topic that is written as chunks, as an external asset.

    The asset is an event table with one event per chunk. The table has one partition per partition of the topic. A
    partition is added with its first chunk. An event's marker is the offset after its chunk. Source: "Streaming
    Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the S3 Spolt.

    Args:
        name: The table's name in this project, such as `ads/clicks`.
        topic: The topic's name at the broker of `FEED_ASSETS_KAFKA`.
        key: The fields that identify a row. A field that a message's value lacks is read from the message's key.
        messages: The message limit: chunks end at offsets that are multiples of this number.
        seconds: The time limit: a chunk ends at most this many seconds after its first message arrived.
        operation: The place in a message that names its operation: `header:NAME`, `field:NAME`, or `debezium` for
            values that are Debezium's envelopes. By default every message is an update.
        values: The format of values: `avro`, `protobuf` or `json_schema`, with a schema of a registry, or `json`,
            which needs `schema`.
        schema: The columns of values in JSON, in Spark's DDL. Every column may be null. A value with another field, or
            with a value of another type, becomes a dead letter.
        keys: The format of keys: `avro` or `protobuf`, one of Kafka's own serializers (`string`, `int`, `long`,
            `uuid`), or `json`.
        framing: How keys and values with a schema name it: `confluent`, or `apicurio_content_id` or
            `apicurio_global_id` for the serializers of Apicurio, by the id that they write, or `glue` for those of
            AWS Glue, which may compress.
        mask: Columns that no chunk has in plain text, such as `{"email": "hash", "iban": "last4", "birth": "null"}`.
            `hash` is an HMAC-SHA-256 with `FEED_ASSETS_MASK_KEY`, so equal values stay equal. `last4` keeps the last
            four characters. Both make the column a text. A message whose schema lacks a column becomes a dead letter,
            unless the column's name ends with `?`. Dead letters of the topic have no content.
        format: The file format of chunks: `csv` or `parquet`.
        gzip: True if chunks in CSV are compressed with gzip.
        conflicts: What warehouse tables of the topic do with rows that they cannot take: a key from a second partition,
            or a field of an incompatible type. `stop` stops the table until a person decides. `refuse` records the rows
            in `feed_assets.refused`, and the table continues. `variant` does so, too, but gives values of another type
            a column of their own, `<name>__<type>`.
        newest_by: The field whose greatest value wins for a key in warehouse tables, whichever partition it comes from:
            a whole number, a decimal, a date or a timestamp. Null is lowest, and equal values are ordered by partition
            and offset. So the topic may get more partitions. By default the highest offset wins, and a key must stay in
            one partition.
        snapshot_markers: Where messages mark the begin and the end of a snapshot, which is all rows of the source read
            again: `debezium`, or `header:NAME` or `field:NAME` with the words `begin` and `end` in each partition. A
            snapshot that was loaded whole removes the rows of its partition that it did not name from warehouse tables.
            `debezium` needs a topic of one partition.
        flatten: The levels of nested records whose fields become columns, up to 10: with 1, the field `city` of the
            record `home` is the column `home__city`. Deeper records, arrays and maps are one column of JSON each.
            `key`, `mask`, `newest_by` and `schema` have the names of columns.
        lag: Greatest number of a partition's messages that may be in no chunk yet. If there are more, the check
            `caught_up` fails and an alert opens.
        counts: Rules to count the messages for a dataset of the state store, which a `state_table` declares.
        cadence: Schedule of chunks. A missing chunk opens an alert. A cron in it also sets the asset's freshness policy
            in Dagster.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an e-mail address.

    Returns:
        The spec of the external asset, to be an input of datasets by events.

    Raises:
        InvalidName: The name is invalid.
        InvalidDefinition: A value has a wrong type or is out of bounds, or the topic's name is invalid.
    """
    feed = declared_feed(name)
    counted = (CountedTopic(topic, counts),) if counts else ()
    source = EventSource(_source_of(topic), (SignalTopic(topic, counts), *counted))
    limits = rules_of(
        topic,
        key=tuple(key),
        messages=messages,
        seconds=seconds,
        operation=operation,
        values=values,
        columns=schema,
        keys=keys,
        framing=framing,
        mask=mask or {},
        format=format,
        gzip=gzip,
        conflicts=conflicts,
        newest_by=newest_by,
        snapshot_markers=snapshot_markers,
        flatten=flatten,
    )
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
        metadata=metadata_of(EventTable(feed, source, topic, cadence=cadence, topic=limits, lag=lag)),
    )


def declared_topics(declarations: Iterable[Declaration]) -> dict[str, EventTable]:
    """Return the tables that are Kafka topics, by topic name.

    A topic that `kafka_topic` declares is not one of a pattern. Raise InvalidDefinition if two tables declare one
    topic, or if the connector itself writes a declared topic.
    """
    table_by_topic: dict[str, EventTable] = {}
    tables = [each for each in declarations if isinstance(each, EventTable) and each.topic]
    by_name = {each.table_name for each in tables if not each.by_pattern}
    for each in tables:
        if each.by_pattern and each.table_name in by_name:
            continue
        if (first := table_by_topic.setdefault(each.table_name, each)).feed != each.feed:
            names = f"{first.feed} and {each.feed}"
            raise InvalidDefinition(f"the topic {each.table_name} is declared twice, as {names}: expected one.")
    for name in table_by_topic:
        for written in {signals_of(name), dead_letters_of(name)} & {*table_by_topic}:
            why = f"which the connector writes for {name}: expected a topic that others produce to"
            raise InvalidDefinition(
                f"{table_by_topic[written].feed} is the topic {written}, {why}. Remove it, or rename one."
            )
    return table_by_topic


def _source_of(topic: str) -> str:
    """Return the name of a topic's event source.

    Topics whose names differ only in `.`, `-` and `_` get the same name.
    """
    if not re.fullmatch(TOPIC_NAME, topic):
        raise InvalidDefinition(
            f"topic {topic!r}: expected up to 200 letters, digits, '_', '-' and '.', not beginning with '.'."
        )
    return identifier_of(topic)


def rules_of(topic: str, **values: object) -> Topic:
    """Return the rules for chunks of a topic. Raise InvalidDefinition for an invalid value."""
    try:
        return Topic.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        where = ".".join(map(str, first["loc"])).replace("columns", "schema")
        place = f"{where} is {first['input']!r}: " if where else ""
        raise InvalidDefinition(f"topic {topic}: {place}{message}.") from error

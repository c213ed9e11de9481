"""Declarations of all Kafka topics that match a pattern: each recorded topic becomes assets, without a broker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from pydantic import Field

from feed_assets.core.argument_types import Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topic_patterns import TopicPattern, check_collisions, check_pattern
from feed_assets.core.topics import ChunkFormat, Conflicts, Framing, KeyFormat, Mask, Topic, ValueFormat
from feed_assets.core.typed import typed
from feed_assets.home import say
from feed_assets.orchestration.declare.declarations import KEY, Asset, EventTable, LoadedTopic, declaration_of
from feed_assets.orchestration.declare.input_specs import asset_key, declared_feed, group_of
from feed_assets.orchestration.declare.topic_tables import kafka_topic, rules_of
from feed_assets.orchestration.declare.warehouse_tables import tables_of
from feed_assets.settings import settings

PATTERN = "feed_assets/topic_pattern"
"""The metadata key of a pattern."""

_NO_KEY = ("key",)
"""A placeholder for the key of rules whose topics have keys of their own."""


@typed
def kafka_topics(
    prefix: str,
    *,
    pattern: str,
    key: Sequence[str] | None = None,
    warehouses: Sequence[str] = (),
    histories: Sequence[str] = (),
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
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> list[dg.AssetSpec]:
    r"""Declare all Kafka topics whose names match a pattern. A new topic needs no line of code.

    `feed-assets connector run` lists the broker's topics every 30 seconds. It records those that match in the ledger,
    and then reads them. Definitions load from these records, without the broker: a new topic is an asset after the next
    load. Without records, only the pattern itself is an asset. A topic that was deleted at the broker stays an asset
    until `feed-assets kafka forget`. Topics that `kafka_topic` declares, Kafka's internal topics, and the topics of
    signals and dead letters do not match. The other options are those of `kafka_topic`, and hold for each topic.

    Args:
        prefix: The first part of the tables' names, such as `shop`. The pattern itself is an asset with this name.
        pattern: A regular expression of Python that matches a topic's whole name. If it has a group, a table's name is
            the prefix and what the group matches: `shop\.(.+)` makes `shop/orders` of `shop.orders`. Without a group,
            it is the prefix and the topic's name.
        key: The fields that identify a row, in all topics. By default each topic has the fields of its newest key
            schema when the connector first sees it, the subject `<topic>-key` in the registry.
        warehouses: The warehouses that each topic is loaded into, each as a table `<warehouse>/<table>` with the
            topic's lag and cadence. A running loader begins with a new topic within seconds.
        histories: The warehouses in which each topic has a history, as a table `<warehouse>/<table>_history`.
        messages: The message limit: chunks end at offsets that are multiples of this number.
        seconds: The time limit: a chunk ends at most this many seconds after its first message arrived.
        operation: The place in a message that names its operation: `header:NAME`, `field:NAME`, or `debezium`.
        values: The format of values: `avro`, `protobuf` or `json_schema`, with a schema of a registry, or `json`,
            which needs `schema`.
        schema: The columns of values in JSON, in Spark's DDL.
        keys: The format of keys. Formats other than `avro` and `protobuf` need `key`.
        framing: How keys and values with a schema name it, as in `kafka_topic`.
        mask: Columns that no chunk has in plain text. A name that ends with `?`, such as `email?`, is a column that
            schemas may lack. A topic whose schema lacks another masked column has only dead letters.
        format: The file format of chunks: `csv` or `parquet`.
        gzip: True if chunks in CSV are compressed with gzip.
        conflicts: What warehouse tables of the topics do with rows that they cannot take.
        newest_by: The field of all topics whose greatest value wins for a key in their warehouse tables.
        snapshot_markers: Where messages of all topics mark the begin and the end of a snapshot.
        flatten: The levels of nested records whose fields become columns, in all topics.
        lag: Greatest number of a partition's messages that may be in no chunk yet.
        cadence: Schedule of each topic's chunks.
        description: A description of the pattern for the UI.
        owners: Owners for the UI: `team:shop`, or an e-mail address.

    Returns:
        The specs of external assets: of the pattern, and of each recorded topic with its warehouse tables.

    Raises:
        InvalidName: The prefix is invalid.
        InvalidDefinition: A value has a wrong type or is out of bounds, the pattern is invalid, two recorded topics
            need one name, or keys without a schema have no declared `key`.
        LedgerUnavailable: The ledger does not answer.
    """
    from feed_assets.ledger.matched_topics import recorded_in  # Other declarations need no ledger.

    feed = declared_feed(prefix)
    if feed.version:
        raise InvalidDefinition(f"kafka_topics({prefix!r}): expected a prefix without a version, such as shop.")
    if key is None and framing == "glue":
        raise InvalidDefinition(
            f"kafka_topics({prefix!r}): schemas are in AWS Glue, and keys are looked up in the registry: expected "
            "key=[…]. Add it."
        )
    if key is None and keys not in ("avro", "protobuf"):
        raise InvalidDefinition(
            f"kafka_topics({prefix!r}): keys are {keys!r}, which have no schema with fields: expected key=[…]. Add it."
        )
    options: dict[str, Any] = {
        "messages": messages,
        "seconds": seconds,
        "operation": operation,
        "values": values,
        "keys": keys,
        "framing": framing,
        "format": format,
        "gzip": gzip,
        "conflicts": conflicts,
        "newest_by": newest_by,
        "snapshot_markers": snapshot_markers,
        "flatten": flatten,
        "mask": mask or {},
    }
    fields = _NO_KEY if key is None else tuple(key)
    rules = rules_of(f"pattern {pattern}", key=fields, columns=schema, **options)
    declared = TopicPattern(
        prefix,
        check_pattern(pattern),
        rules,
        has_key=key is not None,
        warehouses=tuple(warehouses),
        histories=tuple(histories),
    )
    topics = declared.topics(recorded_in(settings().ledger, prefix))
    check_collisions(declared, topics)
    if not topics:
        say(f"kafka_topics({prefix!r}) declares no topic yet: `feed-assets connector run` records those that match.")
    of_each: dict[str, Any] = {**options, "schema": schema, "lag": lag, "cadence": cadence, "owners": owners}
    spec = dg.AssetSpec(
        asset_key(feed),
        description=description or f"The Kafka topics that match {pattern}: {len(topics):,} are recorded.",
        group_name=group_of(feed),
        kinds={"kafka"},
        owners=owners,
        metadata={PATTERN: ObjectMetadataValue(f"{prefix}: {pattern}", instance=declared)},
    )
    return [spec, *(each for name, topic in topics.items() for each in _specs(declared, name, topic, of_each))]


def _specs(declared: TopicPattern, name: str, topic: Topic, options: dict[str, Any]) -> Iterator[dg.AssetSpec]:
    """Yield the assets of one topic: itself, and its warehouse tables."""
    table = f"{declared.table_of(name)}"
    spec = _by_pattern(kafka_topic(table, topic=name, key=topic.key, **options))
    yield spec
    follows = {"lag": options["lag"], "cadence": options["cadence"]}
    for each in tables_of(spec, table, declared.warehouses, declared.histories, **follows):
        yield _by_pattern(each)


def _by_pattern(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec with a declaration that names a pattern as its origin."""
    entry = spec.metadata[KEY]
    marked = ObjectMetadataValue(entry.class_name, instance=replace(entry.instance, by_pattern=True))
    return spec.merge_attributes(metadata={KEY: marked})


def patterns_of(assets: Iterable[Asset]) -> list[TopicPattern]:
    """Return the patterns among some assets. Equal ones, such as of two imports, are returned once."""
    entries = [each.metadata.get(PATTERN) for each in assets]
    held = [each.instance for each in entries if isinstance(each, ObjectMetadataValue)]
    return list(dict.fromkeys(each for each in held if isinstance(each, TopicPattern)))


def without_declared(assets: Sequence[Any]) -> list[Any]:
    """Return assets without those of patterns whose topic `kafka_topic` declares: it may have other options."""
    tables = [(each, declaration_of(each) if isinstance(each, dg.AssetSpec) else None) for each in assets]
    by_name = {table.table_name for _, table in tables if isinstance(table, EventTable) and _is_named(table)}
    return [each for each, table in tables if not (by_name and _topic_of(table) in by_name)]


def _is_named(table: EventTable) -> bool:
    return table.topic is not None and not table.by_pattern


def _topic_of(table: object) -> str | None:
    """Return the topic of a pattern's table, or of a warehouse table of it. Return None for any other table."""
    if not isinstance(table, EventTable) or not table.by_pattern:
        return None
    return table.loaded.topic if isinstance(table.loaded, LoadedTopic) else table.table_name

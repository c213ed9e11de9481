"""A YAML component for Kafka topics that become chunks and tables. A new topic needs no Python."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topics import ChunkFormat, Conflicts, Framing, KeyFormat, Mask, ValueFormat, history_of
from feed_assets.orchestration.declare.pattern_tables import kafka_topics
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.orchestration.declare.warehouse_tables import tables_of, warehouse_table
from feed_assets.orchestration.execute.yaml_models import DeclaredComponent, placed
from feed_assets.sources.declared import TopicCounts


class _TopicOptions(BaseModel):
    """Options of topics, in the same form for one topic and for a pattern."""

    model_config = ConfigDict(extra="forbid")

    messages: int = 10_000
    seconds: float = 60
    operation: str | None = None
    values: ValueFormat = "avro"
    columns: str | None = Field(None, alias="schema")
    keys: KeyFormat = "avro"
    framing: Framing = "confluent"
    mask: dict[str, Mask] = Field(default_factory=dict[str, Mask])
    format: ChunkFormat = "csv"
    gzip: bool = False
    conflicts: Conflicts = "stop"
    newest_by: str | None = None
    snapshot_markers: str | None = None
    flatten: int = 0
    lag: int | None = None
    cadence: Cadence | None = None
    description: str | None = None
    owners: list[str] | None = None
    warehouses: list[str] = Field(default_factory=list)
    histories: list[str] = Field(default_factory=list)


class TopicModel(_TopicOptions):
    """One topic: the arguments of `kafka_topic`. The argument `name` is called `table` here."""

    table: str
    topic: str
    key: list[str]
    counts: TopicCounts | None = None


class PatternModel(_TopicOptions):
    """All topics that match a pattern: the arguments of `kafka_topics`."""

    prefix: str
    pattern: str
    key: list[str] | None = None


class UnionModel(BaseModel):
    """Several topics of the same file that are loaded into one table."""

    model_config = ConfigDict(extra="forbid")

    table: str
    union: str
    topics: list[str]
    topic_in_key: bool = False
    lag: int | None = None
    cadence: Cadence | None = None
    description: str | None = None
    owners: list[str] | None = None
    warehouses: list[str] = Field(default_factory=list)
    histories: list[str] = Field(default_factory=list)


class TopicsComponent(DeclaredComponent):
    """Kafka topics that become chunks, as external assets, with their warehouse tables.

    Args:
        topics: Single topics, each with `table`, `topic`, `key`, and other arguments of `kafka_topic`. A topic is
            loaded into its `warehouses`, each as a table `<warehouse>/<table>` with the topic's lag and cadence. In its
            `histories` it has a table `<warehouse>/<table>_history` with a row for each message.
        patterns: Patterns, each with `prefix`, `pattern`, and other arguments of `kafka_topics`.
        unions: Tables of several topics of this component, each with `table`, `topics` (their `table`), `union`, its
            `warehouses` and `histories`, and other arguments of `warehouse_table`.
    """

    topics: list[TopicModel] = Field(default_factory=list[TopicModel])
    patterns: list[PatternModel] = Field(default_factory=list[PatternModel])
    unions: list[UnionModel] = Field(default_factory=list[UnionModel])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each topic, for each of its tables, and for each pattern."""
        with placed(context):
            specs = [spec for each in self.topics for spec in _specs(each)]
            matched = [spec for each in self.patterns for spec in kafka_topics(**_arguments(each))]
            unions = [spec for each in self.unions for spec in _union_specs(each, specs)]
            return dg.Definitions(assets=[*specs, *matched, *unions])


def _arguments(declared: BaseModel) -> dict[str, Any]:
    """Return the arguments that the file has, by their names in Python."""
    fields = type(declared).model_fields
    return {fields[name].alias or name: getattr(declared, name) for name in declared.model_fields_set}


def _specs(declared: TopicModel) -> Iterator[dg.AssetSpec]:
    own = ("table", "warehouses", "histories")
    arguments = {name: each for name, each in _arguments(declared).items() if name not in own}
    topic = kafka_topic(declared.table, **arguments)
    yield topic
    follows = {"lag": declared.lag, "cadence": declared.cadence}
    yield from tables_of(topic, declared.table, declared.warehouses, declared.histories, **follows)


def _union_specs(declared: UnionModel, specs: Sequence[dg.AssetSpec]) -> Iterator[dg.AssetSpec]:
    """Yield the tables of a union, with the topics that the file declares by their `table`."""
    by_table = {each.key: each for each in specs}
    keys = [dg.AssetKey(each.split("/")) for each in declared.topics]
    if unknown := [each for each, key in zip(declared.topics, keys, strict=True) if key not in by_table]:
        raise InvalidDefinition(
            f"the union {declared.union} has the topic {unknown[0]!r}: expected the `table` of one of `topics` of this "
            "component."
        )
    own = ("table", "topics", "warehouses", "histories")
    arguments = {name: each for name, each in _arguments(declared).items() if name not in own}
    topics = [by_table[each] for each in keys]
    for each in declared.warehouses:
        yield warehouse_table(f"{each}/{declared.table}", topics=topics, warehouse=each, **arguments)
    for each in declared.histories:
        name = f"{each}/{history_of(declared.table)}"
        yield warehouse_table(name, topics=topics, warehouse=each, history=True, **arguments)

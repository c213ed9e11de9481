"""A YAML component for Kafka topics that become chunks and tables. A new topic needs no Python."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from feed_assets.core.cadence import Cadence
from feed_assets.core.topics import ChunkFormat, Conflicts, KeyFormat, Mask, ValueFormat
from feed_assets.orchestration.declare.pattern_tables import kafka_topics
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.orchestration.declare.warehouse_tables import tables_of
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
    mask: dict[str, Mask] = Field(default_factory=dict[str, Mask])
    format: ChunkFormat = "csv"
    gzip: bool = False
    conflicts: Conflicts = "stop"
    newest_by: str | None = None
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


class TopicsComponent(DeclaredComponent):
    """Kafka topics that become chunks, as external assets, with their warehouse tables.

    Args:
        topics: Single topics, each with `table`, `topic`, `key`, and other arguments of `kafka_topic`. A topic is
            loaded into its `warehouses`, each as a table `<warehouse>/<table>` with the topic's lag and cadence. In its
            `histories` it has a table `<warehouse>/<table>_history` with a row for each message.
        patterns: Patterns, each with `prefix`, `pattern`, and other arguments of `kafka_topics`.
    """

    topics: list[TopicModel] = Field(default_factory=list[TopicModel])
    patterns: list[PatternModel] = Field(default_factory=list[PatternModel])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each topic, for each of its tables, and for each pattern."""
        with placed(context):
            specs = [spec for each in self.topics for spec in _specs(each)]
            matched = [spec for each in self.patterns for spec in kafka_topics(**_arguments(each))]
            return dg.Definitions(assets=[*specs, *matched])


def _arguments(declared: _TopicOptions) -> dict[str, Any]:
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

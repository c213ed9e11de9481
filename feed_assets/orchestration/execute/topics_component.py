"""A YAML component for Kafka topics that become chunks and tables. A new topic needs no Python."""

from collections.abc import Iterator

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from feed_assets.core.cadence import Cadence
from feed_assets.core.topics import ChunkFormat, Conflicts, KeyFormat, Mask, ValueFormat
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.orchestration.declare.warehouse_tables import warehouse_table
from feed_assets.orchestration.execute.yaml_models import DeclaredComponent, placed
from feed_assets.sources.declared import TopicCounts


class TopicModel(BaseModel):
    """One topic: the arguments of `kafka_topic`. The argument `name` is called `table` here."""

    model_config = ConfigDict(extra="forbid")

    table: str
    topic: str
    key: list[str]
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
    counts: TopicCounts | None = None
    cadence: Cadence | None = None
    description: str | None = None
    owners: list[str] | None = None
    warehouses: list[str] = Field(default_factory=list)


class TopicsComponent(DeclaredComponent):
    """Kafka topics that become chunks, as external assets: the arguments of `kafka_topic` and `warehouse_table`.

    Args:
        topics: The topics, each with `table`, `topic`, `key`, and other arguments of `kafka_topic`. A topic is loaded
            into its `warehouses`, each as a table `<warehouse>/<table>` with the topic's lag and cadence.
    """

    topics: list[TopicModel]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each topic, and for each of its tables."""
        with placed(context):
            return dg.Definitions(assets=[spec for each in self.topics for spec in _specs(each)])


def _specs(declared: TopicModel) -> Iterator[dg.AssetSpec]:
    fields, names = TopicModel.model_fields, declared.model_fields_set - {"table", "warehouses"}
    arguments = {fields[name].alias or name: getattr(declared, name) for name in names}
    topic = kafka_topic(declared.table, **arguments)
    yield topic
    for warehouse in declared.warehouses:
        name = f"{warehouse}/{declared.table}"
        yield warehouse_table(name, topic=topic, warehouse=warehouse, lag=declared.lag, cadence=declared.cadence)

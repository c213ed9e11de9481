"""A YAML component: Kafka topics that become chunks. A new topic is a few lines of `defs.yaml`, and no code."""

import dagster as dg
from pydantic import BaseModel, ConfigDict

from feed_assets.core.cadence import Cadence
from feed_assets.orchestration.build.yaml_models import DeclaredComponent, placed
from feed_assets.orchestration.declare.topics import kafka_topic
from feed_assets.sources.declared import TopicCounts


class TopicModel(BaseModel):
    """One topic: the arguments of `kafka_topic`, its name being `table`."""

    model_config = ConfigDict(extra="forbid")

    table: str
    topic: str
    key: list[str]
    messages: int = 10_000
    seconds: float = 60
    operation: str | None = None
    gzip: bool = False
    lag: int | None = None
    counts: TopicCounts | None = None
    cadence: Cadence | None = None
    description: str | None = None
    owners: list[str] | None = None


class TopicsComponent(DeclaredComponent):
    """Kafka topics that become chunks, each as an external asset: what `kafka_topic` declares.

    Args:
        topics: The topics, each with `table`, `topic`, `key`, and what else `kafka_topic` takes.
    """

    topics: list[TopicModel]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """One external asset for each topic."""
        with placed(context):
            return dg.Definitions(assets=[_spec(each) for each in self.topics])


def _spec(declared: TopicModel) -> dg.AssetSpec:
    given = {name: getattr(declared, name) for name in declared.model_fields_set - {"table"}}
    return kafka_topic(declared.table, **given)

"""Checks of `feed-assets doctor` for Kafka: the broker, the registry, the declared topics."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feed_assets.cli.loaded_location import load_graph
from feed_assets.core.errors import InvalidSetting, NoTopic
from feed_assets.core.message_words import shortened

if TYPE_CHECKING:
    from feed_assets.settings import Settings

SECONDS = 5
"""Seconds within which the broker must answer. The registry's client has its own limit, and tries twice."""

NAMED = 4


@dataclass(frozen=True)
class KafkaLooks:
    """The checks for Kafka. Each check returns what it found as text, or raises an error."""

    settings: "Settings"
    module: str | None

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Return the checks by name. Return () if no setting is about Kafka."""
        if not self.settings.kafka.get_secret_value() and self.settings.kafka_registry is None:
            return ()
        return (("Kafka", self._broker), ("schema registry", self._registry), ("topics", self._topics))

    def _broker(self) -> str:
        topics, brokers = self._listed()
        return f"{self._servers}: answers, {brokers} brokers, {len(topics)} topics"

    def _registry(self) -> str:
        from feed_assets.kafka.registry_schemas import Schemas

        if self.settings.kafka_registry is None:
            raise InvalidSetting("FEED_ASSETS_KAFKA_REGISTRY is not set: expected the URL of the schema registry.")
        with closing(Schemas(self.settings.kafka_registry.get_secret_value())) as schemas:
            schemas.check()
        return "answers"

    def _topics(self) -> str:
        from feed_assets.kafka.masks import check_key
        from feed_assets.orchestration.ticks.topic_checks import topics_of

        declared = topics_of(load_graph(self.module))
        existing, _ = self._listed()
        if absent := sorted({*declared} - existing):
            names = shortened(absent, NAMED)
            cure = "Create them, or correct the names."
            if any(declared[name].by_pattern for name in absent):
                cure = f"{cure} `feed-assets kafka forget` removes those of a pattern."
            raise NoTopic(f"declared topics that the broker does not have: {names}. {cure}")
        check_key([each.topic for each in declared.values() if each.topic], self.settings.mask_key_bytes)
        return f"{len(declared)} declared, all of them at the broker"

    def _listed(self) -> tuple[set[str], int]:
        """Return the names of the broker's topics, and the number of brokers. Raise KafkaUnavailable on failure."""
        from feed_assets.kafka import check_installed

        check_installed()
        from feed_assets.kafka.clients import Clients, translated

        conf = self.settings.kafka.get_secret_value()
        if not self._servers:
            raise InvalidSetting("FEED_ASSETS_KAFKA has no bootstrap.servers: expected host:port, separated by commas.")
        client = Clients(conf).admin()
        with translated(f"reach {self._servers}", client):
            metadata = client.list_topics(timeout=SECONDS)
        return {*metadata.topics}, len(metadata.brokers)

    @property
    def _servers(self) -> str:
        return self.settings.kafka.get_secret_value().get("bootstrap.servers", "")

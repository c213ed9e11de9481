"""What a receiver measures, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from feed_assets.intake.receiver import Answer
from feed_assets.intake.spool import Spool


class Metrics:
    """The numbers of one receiver, from its start on."""

    def __init__(self, spool: Spool) -> None:
        self._registry = CollectorRegistry()
        about = {"registry": self._registry}
        self.requests = Counter("feed_assets_receiver_requests", "Requests by status", ["status"], **about)
        self.events = Counter("feed_assets_receiver_events", "Events by feed and fate", ["feed", "fate"], **about)
        self.flushes = Counter(
            "feed_assets_receiver_flushes", "Looks at sealed segments by outcome", ["outcome"], **about
        )
        size = Gauge("feed_assets_receiver_spool_bytes", "Bytes that are accepted and not published", **about)
        size.set_function(lambda: spool.size)
        waiting = Gauge("feed_assets_receiver_spool_seconds", "Age of the oldest segment that waits", **about)
        waiting.set_function(spool.oldest_seconds)

    def count(self, feed: str, answer: Answer) -> None:
        """Count the events of a request that was taken for the first time."""
        self.events.labels(feed, "accepted").inc(answer.accepted)
        self.events.labels(feed, "rejected").inc(answer.rejected)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._registry)

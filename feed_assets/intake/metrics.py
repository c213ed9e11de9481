"""Metrics of a receiver, in Prometheus's format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from feed_assets.intake.receiver import RequestAnswer
from feed_assets.intake.spool import Spool

UNKNOWN = "unknown"
"""The partner of a request without a valid key."""


class Metrics:
    """The numbers of one receiver since its start."""

    def __init__(self, spool: Spool) -> None:
        self._registry = registry = CollectorRegistry()
        name = "feed_assets_receiver_"
        refused = "Requests that were refused, by status and partner"
        self.refused = Counter(f"{name}refused", refused, ["status", "partner"], registry=registry)
        self.events = Counter(
            f"{name}events", "Accepted and rejected events, by feed", ["feed", "fate"], registry=registry
        )
        self.flushes = Counter(f"{name}flushes", "Flushes of the spool, by outcome", ["outcome"], registry=registry)
        size = Gauge(f"{name}spool_bytes", "Bytes of accepted events that are not yet published", registry=registry)
        size.set_function(lambda: spool.size)
        oldest = Gauge(f"{name}spool_seconds", "Seconds for which the oldest events have waited", registry=registry)
        oldest.set_function(spool.oldest_seconds)
        damaged = Gauge(f"{name}damaged_segments", "Segments that the disk has damaged", registry=registry)
        damaged.set_function(lambda: len(spool.damaged()))

    def count(self, feed: str, answer: RequestAnswer) -> None:
        """Count the events of an accepted request. A repeated answer counts no events."""
        self.events.labels(feed, "accepted").inc(answer.accepted)
        self.events.labels(feed, "rejected").inc(answer.rejected)

    def text(self) -> bytes:
        """Return all numbers, in Prometheus' text format."""
        return generate_latest(self._registry)

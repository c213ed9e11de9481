"""A day of many consumers that wait for one hourly feed: verdicts, and the requests to the store that they cost.

No run is launched: only the steps of a tick before its run requests are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import dagster as dg
import sqlalchemy as sa

from feed_assets import Completeness, feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.core.reports import Report
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.tables import due
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks import steps
from feed_assets.orchestration.ticks.tick import Budget, Tick
from feed_assets.runs.services import Services
from feed_assets_tests.support.s3_proxy import Proxy

RAW = Feed.parse("web/raw/v1.0")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00")
HOUR, BASE = timedelta(hours=1), timedelta(minutes=5)
STEPS = (steps.DECLARE, steps.DISCOVER, steps.COUNT, steps.FAN_OUT, steps.DECIDE)


def definitions(consumers: int) -> dg.Definitions:
    """Return one hourly feed with complete windows, and so many datasets that read it."""
    raw = foreign_feed(str(RAW), partitions_def=HOURS, schema="k string", completeness=Completeness(tiers=("kafka",)))

    def consumer(number: int) -> dg.AssetsDefinition:
        @feed_asset(f"web/c{number:03d}/v1.0", partitions_def=HOURS, inputs={"raw": raw})
        def made(raw):
            """Never run here."""

        return made

    return with_automation(dg.Definitions(assets=[raw, *map(consumer, range(consumers))]))


@dataclass
class Share:
    """Verdicts, and requests that read the store."""

    decisions: int = 0
    requests: int = 0

    @property
    def of_decisions(self) -> float:
        """Return the share of the verdicts in the sum of verdicts and requests."""
        return self.decisions / (self.decisions + self.requests)

    def __str__(self) -> str:
        return f"{self.decisions:,} decisions, {self.requests:,} LIST and GET at the store: {self.of_decisions:.1%}"


@dataclass
class Day:
    """Hours that arrive one by one, and a tick each five minutes. With `looks`, each decision also reads the store."""

    graph: Graph
    services: Services
    proxy: Proxy
    producer: Blackboard
    """The same blackboard without the proxy: the producer's writes are not counted."""
    looks: bool = False
    share: Share = field(default_factory=Share)

    def run(self, hours: int) -> Share:
        """Tick through so many hours."""
        with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance) as context:
            for number in range(12, 12 * (hours + 1)):
                now = FIRST + number * BASE
                self._arrive(now)
                self._tick(context, now)
        return self.share

    def _arrive(self, now: datetime) -> None:
        """Report the source's counts of the last hour and publish its file at once.

        Report the ingested counts at a quarter past.
        """
        hour = now.replace(minute=0) - HOUR
        partition = Partition(RAW, hour.strftime("%Y-%m-%d-%H:%M"))
        bases = [hour + number * BASE for number in range(12)]
        if now.minute == 0:
            self._tell(partition, "kafka", bases, now)
            write.publish(self.producer, partition, {"part-1": b'{"k": "a"}\n'}, now)
        if now.minute == 15:
            self._tell(partition, "", bases, now)

    def _tell(self, partition: Partition, tier: str, bases: Sequence[datetime], now: datetime) -> None:
        told = Report(RAW, "", f"topic {partition.key}", tuple((each, 100) for each in bases), tier)
        report(self.services.ledger, [told], now)

    def _tick(self, context: dg.SensorEvaluationContext, now: datetime) -> None:
        self.proxy.begin()
        with dg.partition_loading_context(now):
            tick = Tick(context, self.graph, self.services.ledger, now, Budget(600), None)
            tick.services = Services(self.services.board, self.services.ledger, self.services.maker, lambda: now)
            for step in STEPS:
                step.take(tick, _never)
        for _, verdict in tick.decided if self.looks else ():
            read.latest(self.services.board, Partition(RAW, verdict.output.key))
        self._leave(tick)
        self.share.decisions += len(tick.decided)
        self.share.requests += sum(not each.startswith(("put", "create")) for each in self.proxy.asked)

    def _leave(self, tick: Tick) -> None:
        """Remove outputs that a run would build now: otherwise each later tick would decide and count them again."""
        built = {verdict.output for _, verdict in tick.decided if verdict.state is State.BUILD}
        with self.services.ledger.change() as connection:
            for feed, key in sorted((str(each.feed), each.key) for each in built):
                connection.execute(sa.delete(due).where(due.c.feed == feed, due.c.partition == key))


def _never() -> bool:
    return False

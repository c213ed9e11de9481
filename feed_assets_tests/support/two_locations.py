"""Two code locations on one ledger that read the same foreign feed, and their ticks up to the decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
import sqlalchemy as sa
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed
from feed_assets.core.readiness import State, Verdict
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import due
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks import steps
from feed_assets.orchestration.ticks.tick import Budget, Tick
from feed_assets.runs.services import Services

RAW = Feed.parse("web/raw/v1.0")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00")
STEPS = (steps.DECLARE, steps.DISCOVER, steps.COUNT, steps.FAN_OUT, steps.DECIDE)


def definitions(location: str, consumers: int) -> dg.Definitions:
    """Return the hourly foreign feed, and so many datasets of a code location that read it."""
    raw = foreign_feed(str(RAW), partitions_def=HOURS, schema="k string")

    def consumer(number: int) -> dg.AssetsDefinition:
        @feed_asset(f"web/{location}{number:03d}/v1.0", partitions_def=HOURS, inputs={"raw": raw})
        def made(raw):
            """Never run here."""

        return made

    return with_automation(dg.Definitions(assets=[raw, *map(consumer, range(consumers))]))


@dataclass(frozen=True)
class Location:
    """A code location with its view of the store. No run is launched."""

    name: str
    graph: Graph
    board: Blackboard
    ledger: Ledger

    @classmethod
    def of(cls, name: str, consumers: int, board: Blackboard, ledger: Ledger) -> "Location":
        """Return a code location with so many consumers."""
        return cls(name, Graph(definitions(name, consumers).resolve_asset_graph()), board, ledger)

    def tick(self, now: datetime) -> Sequence[Verdict]:
        """Take the steps of a tick before its run requests. Return the verdicts."""
        with (
            dg.DagsterInstance.ephemeral() as instance,
            self._context(instance) as context,
            dg.partition_loading_context(now),
        ):
            tick = Tick(context, self.graph, self.ledger, now, Budget(600), None)
            tick.services = Services(self.board, self.ledger, lambda: None, lambda: now)
            for step in STEPS:
                step.take(tick, lambda: False)
        verdicts = [verdict for _, verdict in tick.decided]
        self._leave(verdicts)
        return verdicts

    def _context(self, instance: dg.DagsterInstance) -> dg.SensorEvaluationContext:
        """Return the context of a tick by the daemon, which names the code location."""
        origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name=__name__), location_name=self.name)
        return dg.SensorEvaluationContext(None, instance=instance, code_location_origin=origin)

    def _leave(self, verdicts: Sequence[Verdict]) -> None:
        """Remove outputs that a run would build now: otherwise each later tick would decide and count them again."""
        built = [each.output for each in verdicts if each.state is State.BUILD]
        with self.ledger.change() as connection:
            for output in built:
                of_output = (due.c.feed == str(output.feed)) & (due.c.partition == output.key)
                connection.execute(sa.delete(due).where(of_output))

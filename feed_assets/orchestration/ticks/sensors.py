"""The sensors of a code location. `steps.py` has the steps of each, except for those of the sensor `orphans`.

One sensor requests all runs of a dataset. The sensor `watch` opens and resolves alerts. What a tick does is imported by
the first tick, because most processes that load the definitions never run one.
"""

from collections.abc import Sequence
from typing import Literal

import dagster as dg

from feed_assets.core.pulls import Pull
from feed_assets.orchestration.declare.declarations import Declaration, Foreign
from feed_assets.orchestration.declare.event_tables import declared_sources

SensorKind = Literal["feeds", "events", "pull", "watch"]


def sensors_of(declarations: Sequence[Declaration]) -> list[dg.SensorDefinition]:
    """Return the sensors of a code location: `feeds`, `watch`, `orphans`, and one per event source.

    If files are pulled, return the sensor `pull`, too.
    """
    is_pulled = any(isinstance(each, Foreign) and isinstance(each.intake, Pull) for each in declarations)
    events = map(_events_sensor, sorted(declared_sources(declarations)))
    return [*([_pull_sensor()] if is_pulled else []), feeds_sensor(), *events, _watch_sensor(), _orphans_sensor()]


def feeds_sensor() -> dg.SensorDefinition:
    """Return the sensor for foreign feeds and for all datasets that read no event source."""
    return _sensor(
        "feeds",
        "feeds",
        "Records new valid updates of foreign feeds, checks that our own updates still exist, and requests "
        "partitions that were never built and now can be, or that are due by events. The automation condition "
        "handles late data of partitions that are already built.",
    )


def _events_sensor(source: str) -> dg.SensorDefinition:
    return _sensor(
        f"events_{source}",
        "events",
        f"Reads the event source {source}, and requests runs of datasets by events that read its tables, once an "
        "update has reached all their inputs.",
        source,
    )


def _pull_sensor() -> dg.SensorDefinition:
    """Return the sensor for partners' files. It is separate, because other steps must not wait for a long copy."""
    return _sensor(
        "pull",
        "pull",
        "Pulls new files of partners into batches of their feeds, at the ticks of their crons. Requests nothing: the "
        "log triggers the readers of these feeds.",
    )


def _watch_sensor() -> dg.SensorDefinition:
    return _sensor(
        "watch",
        "watch",
        "Publishes our events to the configured sinks, opens and resolves alerts, and reports them as asset checks. "
        "Requests nothing.",
    )


def _orphans_sensor() -> dg.SensorDefinition:
    def tick(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from feed_assets.orchestration.ticks.orphan_sensor import sweep_orphans

        return sweep_orphans(context)

    return dg.SensorDefinition(
        name="orphans",
        evaluation_fn=tick,
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
        description=(
            "Once an hour: removes day-old leftovers of dead and refused attempts on the blackboard, old claims, and "
            "scratch files of killed Spark processes; opens alerts for undeclared feeds and partitions. Once a day: "
            "removes old rows of the ledger, and searches some newest updates for bit rot. Requests nothing; a tick's "
            "message lists what was done."
        ),
    )


def _sensor(name: str, kind: SensorKind, description: str, source: str | None = None) -> dg.SensorDefinition:
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from feed_assets.orchestration.ticks.steps import STEPS
        from feed_assets.orchestration.ticks.tick import evaluate

        return evaluate(context, STEPS[kind], source)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=tick,
        minimum_interval_seconds=1,  # the daemon ticks every five seconds, or slightly earlier
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
        description=description,
    )

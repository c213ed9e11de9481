"""The sensors, each with a list of steps.

One sensor requests all runs of a dataset. The sensor `watch` opens and resolves alerts.
"""

from collections.abc import Sequence

import dagster as dg

from feed_assets.core.pulls import Pull
from feed_assets.orchestration.declare.declarations import Declaration, Foreign
from feed_assets.orchestration.declare.event_tables import declared_sources
from feed_assets.orchestration.ticks.steps import (
    COUNT,
    DECIDE,
    DECLARE,
    DISCOVER,
    EXTEND,
    FAN_OUT,
    FINISH,
    FOLD,
    INGEST,
    NOTIFIED,
    PULL,
    REPORT_CHECKS,
    REPORT_EVENTS,
    REPORT_UPDATES,
    REQUEST,
    SINK,
    TELL_WAITS,
    TOPICS,
    WATCH,
)
from feed_assets.orchestration.ticks.tick import Step, evaluate

FEEDS = (FINISH, DECLARE, NOTIFIED, DISCOVER, COUNT, FAN_OUT, DECIDE, REPORT_UPDATES, REQUEST, TELL_WAITS)
EVENTS = (EXTEND, INGEST, FAN_OUT, DECIDE, REPORT_EVENTS, REQUEST, TELL_WAITS)
PULLS = (PULL,)
WATCHES = (SINK, TOPICS, FOLD, WATCH, REPORT_CHECKS)


def sensors_of(declarations: Sequence[Declaration]) -> list[dg.SensorDefinition]:
    """Return the sensors of a code location: `feeds`, `watch`, one per event source, and `pull` if files are pulled."""
    is_pulled = any(isinstance(each, Foreign) and isinstance(each.intake, Pull) for each in declarations)
    events = map(_events_sensor, sorted(declared_sources(declarations)))
    return [*([_pull_sensor()] if is_pulled else []), feeds_sensor(), *events, _watch_sensor()]


def feeds_sensor() -> dg.SensorDefinition:
    """Return the sensor for foreign feeds and for all datasets that read no event source."""
    return _sensor(
        "feeds",
        FEEDS,
        "Records new valid updates of foreign feeds, checks that our own updates still exist, and requests "
        "partitions that were never built and now can be, or that are due by events. The automation condition "
        "handles late data of partitions that are already built.",
    )


def _events_sensor(source: str) -> dg.SensorDefinition:
    return _sensor(
        f"events_{source}",
        EVENTS,
        f"Reads the event source {source}, and requests runs of datasets by events that read its tables, once an "
        "update has reached all their inputs.",
        source,
    )


def _pull_sensor() -> dg.SensorDefinition:
    """Return the sensor for partners' files. It is separate, because other steps must not wait for a long copy."""
    return _sensor(
        "pull",
        PULLS,
        "Pulls new files of partners into batches of their feeds, at the ticks of their crons. Requests nothing: the "
        "log triggers the readers of these feeds.",
    )


def _watch_sensor() -> dg.SensorDefinition:
    return _sensor(
        "watch",
        WATCHES,
        "Publishes our events to the configured sinks, opens and resolves alerts, and reports them as asset checks. "
        "Requests nothing.",
    )


def _sensor(name: str, steps: Sequence[Step], description: str, source: str | None = None) -> dg.SensorDefinition:
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate(context, steps, source)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=tick,
        minimum_interval_seconds=1,  # the daemon ticks every five seconds, or slightly earlier
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
        description=description,
    )

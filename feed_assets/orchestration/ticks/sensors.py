"""The sensors, each a list of steps. A dataset belongs to one of those that request, and alerts to none of these."""

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
    """Return the sensors of a code location: `feeds`, `watch`, one for each event source, `pull` for pulled files."""
    is_pulled = any(isinstance(each, Foreign) and isinstance(each.intake, Pull) for each in declarations)
    events = map(_events_sensor, sorted(declared_sources(declarations)))
    return [*([_pull_sensor()] if is_pulled else []), feeds_sensor(), *events, _watch_sensor()]


def feeds_sensor() -> dg.SensorDefinition:
    """Return the sensor of foreign feeds, and of every dataset that reads no event source."""
    return _sensor(
        "feeds",
        FEEDS,
        "Records the new valid updates of foreign feeds, looks whether ours are still there, and requests every "
        "partition that was never built and now can be, or by events is due. Late data of what was built already are "
        "the automation condition's business.",
    )


def _events_sensor(source: str) -> dg.SensorDefinition:
    return _sensor(
        f"events_{source}",
        EVENTS,
        f"Reads the event source {source}, and requests the runs of datasets by events that read its tables, once an "
        "update has reached all that they read.",
        source,
    )


def _pull_sensor() -> dg.SensorDefinition:
    """Return the sensor of partners' files: alone, as a long copy must not hold up what others wait for."""
    return _sensor(
        "pull",
        PULLS,
        "Pulls the new files of partners, at the ticks of their crons, into the batches of their feeds. Requests "
        "nothing: the log wakes who reads them.",
    )


def _watch_sensor() -> dg.SensorDefinition:
    return _sensor(
        "watch",
        WATCHES,
        "Publishes our events where the settings say, raises and resolves alerts, and reports them as asset checks. "
        "Requests nothing.",
    )


def _sensor(name: str, steps: Sequence[Step], description: str, source: str | None = None) -> dg.SensorDefinition:
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate(context, steps, source)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=tick,
        minimum_interval_seconds=1,  # The daemon ticks every five: a moment less would be too early.
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
        description=description,
    )

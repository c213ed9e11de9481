"""The steps of ticks. Each step is idempotent: after a kill, the next tick repeats it. `tick.py` takes the steps."""

from feed_assets.core.isolation import failing_alone
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import NAMED, State
from feed_assets.ledger.states.old_reports import fold
from feed_assets.ledger.states.window_queries import declare
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to, look_at_held
from feed_assets.orchestration.decide.requests import in_progress, requests_for
from feed_assets.orchestration.ticks.counting import count
from feed_assets.orchestration.ticks.dead_runs import finish_left
from feed_assets.orchestration.ticks.ingest import ingest, sources_of
from feed_assets.orchestration.ticks.publishing import publish_events
from feed_assets.orchestration.ticks.pull_step import pull_files
from feed_assets.orchestration.ticks.reported_waits import tell_waits
from feed_assets.orchestration.ticks.reporter import report_checks, report_events, report_updates
from feed_assets.orchestration.ticks.store_queues import hear_stores
from feed_assets.orchestration.ticks.tick import OutOfTime, Step, Tick, location_of
from feed_assets.orchestration.ticks.topic_checks import new_partitions, watch_topics
from feed_assets.orchestration.ticks.watch import keep_alerts
from feed_assets.runs.discover import discover
from feed_assets.runs.verify import verify
from feed_assets.settings import settings

DECISIONS_PER_TICK = 1000
"""Greatest number of outputs that one tick decides. The next ticks decide the others."""


def _finish(tick: Tick, _: OutOfTime) -> None:
    """Finish the runs that ended without recording their end."""
    for finished in finish_left(tick.context.instance, tick.services):
        tick.context.log.info(
            f"finished run {finished.run.id} of {finished.run.output}, which ended without recording its end"
        )


def _discover(tick: Tick, out_of_time: OutOfTime) -> None:
    """Record new valid updates of foreign feeds, and find missing updates of our own feeds."""
    graph = tick.graph
    location = location_of(tick.context)
    discovered = discover(tick.services, graph.polled(), out_of_time, graph.appendable(), location)
    tick.is_complete &= discovered.is_complete
    tick.problems |= {str(feed): f"the feed could not be read: {error}" for feed, error in discovered.failed.items()}
    _verify(tick, out_of_time)


def _verify(tick: Tick, out_of_time: OutOfTime) -> None:
    """Verify that some of our own updates still exist. A missing update is reported once and built again.

    A failed verification is only logged. An alert about it would resolve at the next tick, which checks other updates.
    """
    verified = verify(tick.services, tick.graph.own(), tick.graph.by_feed, out_of_time)
    if verified.is_other_blackboard:
        tick.problems |= verified.problems
    else:
        for feed, why in verified.problems.items():
            tick.context.log.warning(f"{feed}: {why}")
    for feed in {gone.partition.feed for gone in verified.gone}:
        tick.problems[str(feed)] = shortened(
            [str(gone) for gone in verified.gone if gone.partition.feed == feed], NAMED
        )


def _ingest(tick: Tick, out_of_time: OutOfTime) -> None:
    """Record the new events of the source."""
    source = sources_of(tick.graph)[tick.source or ""]
    ingested = ingest(tick.graph, tick.services, source, tick.now, out_of_time)
    tick.is_complete &= ingested.is_complete
    tick.problems |= ingested.problems
    if source.parts and len(ingested.problems) == len(source.parts):
        tick.unreadable = shortened([f"{part}: {why}" for part, why in ingested.problems.items()], NAMED)
    for part, why in ingested.waits.items():
        tick.context.log.warning(f"{part}: {why}")
    if ingested.rejected:
        tick.context.log.warning(f"{ingested.rejected} rows are no events: feed-assets events ls --rejected lists them")


def _extend(tick: Tick, _: OutOfTime) -> None:
    """Add the partitions of Kafka topics to Dagster. Partitions are never removed."""
    for node in [each for each in tick.graph.tables() if each.partitioned_as and each.source == tick.source]:
        with failing_alone(tick.problems, str(node.feed)):
            tick.partitions = [*tick.partitions, *new_partitions(node)]


def _declare(tick: Tick, _: OutOfTime) -> None:
    """Record the window rules of datasets in the ledger. Write only differences."""
    if tracked := tick.graph.tracked():
        refused = declare(tick.ledger, tracked, tick.now)
        tick.problems |= {str(feed): str(error) for feed, error in refused.items()}


def _fan_out(tick: Tick, out_of_time: OutOfTime) -> None:
    """Put outputs on the due list if changes since the last tick affect them."""
    datasets = tick.graph.datasets_of(tick.source)
    tick.is_complete &= fan_out_to(tick.graph, datasets, tick.ledger, tick.now, out_of_time)


def _decide(tick: Tick, out_of_time: OutOfTime) -> None:
    """Decide the listed outputs, and log a warning for built outputs that cannot be built any more."""
    datasets = tick.graph.datasets_of(tick.source)
    look_at_held(tick.graph, {node.feed for node in datasets}, tick.ledger, tick.now)
    # Read the outputs in progress before the decision. If the run of one of them ends during the decision, its verdict
    # is outdated, and the output must not be requested.
    tick.busy = in_progress(tick.graph, tick.ledger, tick.context.instance)
    decided = decide_due(
        tick.graph,
        datasets,
        tick.ledger,
        now=tick.now,
        limit=DECISIONS_PER_TICK,
        out_of_time=out_of_time,
        busy=tick.busy,
    )
    tick.decided += decided.verdicts
    tick.is_complete &= decided.is_complete
    for _, verdict in decided.verdicts:
        if verdict.published and verdict.state in (State.WAITS_FOR_INPUT, State.WAITS_FOR_A_PERSON):
            tick.context.log.warning(f"{verdict.output} {verdict.state.value}: {verdict.reason}")


def _sink(tick: Tick, out_of_time: OutOfTime) -> None:
    """Publish our own events to the configured sinks."""
    if settings().events_to:
        instance = tick.context.instance
        tick.problems |= publish_events(tick.services, tick.graph, instance, out_of_time, now=tick.now)


def _fold(tick: Tick, _: OutOfTime) -> None:
    """Merge some old reports of other teams, to save rows."""
    fold(tick.ledger, tick.now, settings().state_report_days)


def _watch(tick: Tick, out_of_time: OutOfTime) -> None:
    """Open and resolve alerts, and deliver them."""
    tick.problems |= keep_alerts(tick.graph, tick.ledger, tick.now, out_of_time)


def _request(tick: Tick, _: OutOfTime) -> None:
    """Request runs for ready outputs. Request nothing in a tick that fails, because Dagster would drop the requests."""
    if not tick.raised:
        tick.requests = requests_for(tick.graph, tick.ledger, tick.decided, tick.busy, tick.now)


EXTEND = Step("extend", 0.1, _extend)
FINISH = Step("finish", 0.1, _finish)
DECLARE = Step("declare", 0.1, _declare)
NOTIFIED = Step("notified", 0.2, hear_stores)
DISCOVER = Step("discover", 0.35, _discover)
INGEST = Step("ingest", 0.35, _ingest)
PULL = Step("pull", 0.8, pull_files)
COUNT = Step("count", 0.45, count)
FAN_OUT = Step("fan out", 0.5, _fan_out, hears=True)
DECIDE = Step("decide", 0.65, _decide, hears=True)
SINK = Step("sink", 1, _sink)
FOLD = Step("fold", 0.9, _fold)
TOPICS = Step("topics", 0.8, watch_topics)
WATCH = Step("watch", 0.9, _watch)
REPORT_UPDATES = Step("report updates", 0.8, report_updates, hears=True)
REPORT_EVENTS = Step("report events", 0.8, report_events, hears=True)
REPORT_CHECKS = Step("report checks", 1, report_checks)
TELL_WAITS = Step("tell waits", 0.9, tell_waits, hears=True)
REQUEST = Step("request", 1, _request, hears=True)

FEEDS = (FINISH, DECLARE, NOTIFIED, DISCOVER, COUNT, FAN_OUT, DECIDE, REPORT_UPDATES, REQUEST, TELL_WAITS)
EVENTS = (EXTEND, INGEST, FAN_OUT, DECIDE, REPORT_EVENTS, REQUEST, TELL_WAITS)
PULLS = (PULL,)
WATCHES = (TOPICS, FOLD, WATCH, SINK, REPORT_CHECKS)
STEPS = {"feeds": FEEDS, "events": EVENTS, "pull": PULLS, "watch": WATCHES}
"""The steps of the sensors of each kind."""

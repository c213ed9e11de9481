"""Publication of the log to configured sinks.

A sink gets our events and window transitions, lineage, or catalog entries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import dagster as dg

from feed_assets.core.errors import SinkUnavailable
from feed_assets.core.events import NO_NEW_DATA, Operation, Recorded, WriteEvent, decode
from feed_assets.core.isolation import failing_alone
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import NAMED
from feed_assets.core.secrets import masked
from feed_assets.core.setting_types import GLUE, KAFKA, LINEAGE
from feed_assets.deliveries import outbox, outlets
from feed_assets.kafka import check_installed
from feed_assets.ledger import closures, event_store, subscriptions
from feed_assets.ledger.run_changes import run_changes
from feed_assets.ledger.states.state_views import Transition, transitions
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.pipeline_tables import published
from feed_assets.orchestration.ticks.sink_failures import add_failures, failures, name_of, recorded
from feed_assets.runs.services import Services
from feed_assets.settings import expand, settings
from feed_assets.sources.pipeline_sink import pipelines_beside
from feed_assets.sources.sinks import Sink, open_sink

if TYPE_CHECKING:
    from feed_assets.sources.glue import Registered

EVENTS_PER_WRITE = 1000
"""Number of events to publish at a time."""

CHANGES_PER_WRITE = 10
"""Number of run changes to send at a time. The endpoint takes one change per request.

After a kill, up to this many are repeated.
"""

BATCHES_PER_WRITE = 100
"""Number of log changes whose batches are registered at a time. Glue takes one batch per request."""

_Event = TypeVar("_Event")


@dataclass(frozen=True)
class _Outlet(Generic[_Event]):
    """A sink and the log entries for it. `after` returns up to `limit` events after a log number, in order."""

    name: str
    sink: Sink[_Event]
    after: Callable[[int], list[tuple[int, _Event]]]
    limit: int


def publish_events(
    services: Services,
    graph: Graph,
    instance: dg.DagsterInstance,
    out_of_time: Callable[[], bool],
    *,
    now: datetime,
    again: bool = False,
) -> dict[str, str]:
    """Publish new events to every sink until the time is over. Return the problems by sink.

    A sink that failed is skipped until its next try is due, unless `again` is set, and while it waits for a person.
    """
    problems: dict[str, str] = {}
    urls = [each.get_secret_value() for each in settings().events_to]
    before = failures(services.ledger, urls)
    for url in urls:
        if outlets.waits(before.get(url), now, again=again):
            continue
        with failing_alone(problems, masked(url)):
            opened = next((each for start, each in _BY_START.items() if url.startswith(start)), _events)
            outlet = opened(url, services, graph, instance)
            with failing_alone(problems, masked(url)):
                _publish_pipelines(outlet.sink, graph, services)
            with recorded(services.ledger, outlet.name, before.get(url), now):
                foreign = _publish(services, outlet, out_of_time)
            if foreign:
                problems[masked(url)] = (
                    f"{shortened(foreign, NAMED)} not written by us and left unchanged: expected only our files. A "
                    "reader of files by name may have skipped our events. Remove these files, and let nobody else "
                    "write there."
                )
    if before or problems:
        add_failures(services.ledger, urls, problems)
    return problems


def _publish_pipelines(sink: Sink[Any], graph: Graph, services: Services) -> None:
    """Publish pipelines before events. A reader of a new table's event must know which other tables to wait for.

    A failure is reported, and the events are published anyway: readers keep the previous pipelines.
    """
    if beside := pipelines_beside(sink):
        with services.ledger.read() as connection:
            retired = closures.retired(connection)
        beside.publish(published(graph, retired), services.now())


def _events(url: str, services: Services, graph: Graph, _: dg.DagsterInstance) -> _Outlet[WriteEvent]:
    """Return the outlet for our write events and window transitions.

    The sink must not be inside a feed on the blackboard.
    """
    sink = open_sink(expand(url), services.board_named(None), graph.on_blackboard())
    return _Outlet(name_of(url), sink, lambda last: _after(services, last), EVENTS_PER_WRITE)


def _lineage(url: str, services: Services, graph: Graph, instance: dg.DagsterInstance) -> _Outlet[Any]:
    """Return the outlet for lineage of runs and copies. The sink's client library is imported only if needed."""
    from feed_assets.orchestration.ticks.lineage_events import RunEvents
    from feed_assets.sources.openlineage import OpenLineageSink

    def after(last: int) -> list[tuple[int, Any]]:
        with services.ledger.read() as connection:
            changes = run_changes(connection, last, CHANGES_PER_WRITE)
            copies = event_store.published_copies(connection, last, CHANGES_PER_WRITE)
        run_ids = [each.run.dagster_run for each in changes if each.run.dagster_run]
        jobs = (
            {run.run_id: run.job_name for run in instance.get_runs(dg.RunsFilter(run_ids=run_ids))} if run_ids else {}
        )
        url_by_feed = {feed: settings().place(name).url for feed, name in graph.elsewhere.items()}
        lineage = RunEvents(graph, services.board_named(None).url, jobs, url_by_feed)
        events = [(each.sequence, lineage.event(each)) for each in changes]
        events += [(each.sequence, lineage.copy(each)) for each in copies]
        return sorted(events, key=lambda numbered: numbered[0])[:CHANGES_PER_WRITE]

    return _Outlet(name_of(url), OpenLineageSink(url), after, CHANGES_PER_WRITE)


def _glue(url: str, services: Services, graph: Graph, _: dg.DagsterInstance) -> "_Outlet[Registered | None]":
    """Return the outlet for the current state of changed batches.

    The sink's client library is imported only if needed.
    """
    from feed_assets.orchestration.ticks.catalog import Catalog
    from feed_assets.sources.glue import GlueSink

    catalog = Catalog(graph, services.ledger, services.board_named(None).url)
    limit = BATCHES_PER_WRITE
    return _Outlet(name_of(url), GlueSink(url.removeprefix(GLUE)), lambda last: catalog.after(last, limit), limit)


def _topic(url: str, services: Services, _graph: Graph, _: dg.DagsterInstance) -> _Outlet[WriteEvent]:
    """Return the outlet for our events as messages. The sink's client library is imported only if needed."""
    check_installed()
    from feed_assets.sources.topic_sink import topic_sink

    sink = topic_sink(url.removeprefix(KAFKA))
    return _Outlet(name_of(url), sink, lambda last: _after(services, last), EVENTS_PER_WRITE)


_BY_START: Mapping[str, Callable[..., _Outlet[Any]]] = {LINEAGE: _lineage, GLUE: _glue, KAFKA: _topic}


def _publish(services: Services, outlet: _Outlet[_Event], out_of_time: Callable[[], bool]) -> list[str]:
    """Publish until nothing is left or the time is over. Return files that others wrote to the sink.

    Search for such files before publishing, too: once more of our files follow, a foreign file with a number between
    ours cannot be found.
    """
    foreign_files = _strangers(services, outlet)
    published = 0
    while count := _publish_some(services, outlet, foreign_files):
        published += count
        if count < outlet.limit or out_of_time():
            break
    # Without new events, a second search would have the same result.
    after = _strangers(services, outlet) if published else ()
    return sorted({*foreign_files, *after})


def _strangers(services: Services, outlet: _Outlet[_Event]) -> list[str]:
    with services.ledger.read() as connection:
        last = subscriptions.position(connection, outlet.name)
    return [*outlet.sink.strangers(last, lambda: {number for number, _ in outlet.after(last)})]


def _publish_some(services: Services, outlet: _Outlet[_Event], foreign_files: list[str]) -> int:
    """Publish some events. Return their number.

    The cursor moves last. If a kill causes a repetition, the sink drops the events that it already has.
    """
    with services.ledger.read() as connection:
        last = subscriptions.position(connection, outlet.name)
    events = outlet.after(last)
    if events:
        try:
            foreign_files += outlet.sink.publish(events)
        except SinkUnavailable as error:
            if error.failed_event:
                _advance(services, outlet, [each for each, _ in events if each < error.failed_event["number"]])
            raise
        _advance(services, outlet, [number for number, _ in events])
    return len(events)


def _advance(services: Services, outlet: _Outlet[Any], accepted: Sequence[int]) -> None:
    """Move a sink's position past accepted events, and remove the failure before them in the same transaction."""
    if accepted:
        with services.ledger.write() as connection:
            subscriptions.advance(connection, outlet.name, accepted[-1])
            outbox.remove_upto(connection, outlet.name, accepted[-1])


def _after(services: Services, sequence: int) -> list[tuple[int, WriteEvent]]:
    """Return the first `EVENTS_PER_WRITE` events and window transitions after a log number, in order."""
    with services.ledger.read() as connection:
        written = [
            (each.sequence, _as_written(each))
            for each in event_store.our_events(connection, sequence, EVENTS_PER_WRITE)
        ]
        crossed = [
            (each.sequence, _as_event(each)) for each in transitions(connection, sequence, None, EVENTS_PER_WRITE)
        ]
    return sorted([*written, *crossed], key=lambda numbered: numbered[0])[:EVENTS_PER_WRITE]


def _as_event(transition: Transition) -> WriteEvent:
    """Return a window's transition as an event of its dataset.

    The event has no new data; its context has both states.
    """
    at, bounds = transition.address, {"start": transition.start, "end": transition.end}
    causes = {name: getattr(transition, name) for name in ("why", "who") if getattr(transition, name)}
    states = {"grain": at.grain, "sub_partition": at.sub_partition, "from": transition.before, "to": transition.after}
    times = {name: moment.isoformat() for name, moment in bounds.items()}
    return WriteEvent(
        str(at.dataset),
        transition.at,
        transition.at,
        correlation_id=f"{at.partition.path}#{transition.sequence}",
        write_operation=Operation.UPDATE,
        partition_key=at.partition.key,
        context={NO_NEW_DATA: True, "transition": {**states, **times, **causes}},
    )


def _as_written(event: Recorded) -> WriteEvent:
    return WriteEvent(
        str(event.partition.feed),
        decode(event.marker),
        decode(event.event_marker),
        correlation_id=event.correlation,
        write_operation=event.operation,
        partition_key=event.partition.key,
        context=event.context,
    )

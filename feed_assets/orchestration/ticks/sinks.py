"""Our own events, published also where the team chooses: another SQL table, JSON lines on the blackboard."""

from collections.abc import Callable

from feed_assets.core.events import Recorded, WriteEvent, decode
from feed_assets.core.failures import failing_alone
from feed_assets.core.secrets import shown
from feed_assets.ledger import events, subscriptions
from feed_assets.runs.services import Services
from feed_assets.settings import expand, settings
from feed_assets.sources.sinks import open_sink

EVENTS_PER_WRITE = 1000
"""Events that are published at a time."""


def publish_events(services: Services, out_of_time: Callable[[], bool]) -> dict[str, str]:
    """Publish to every sink what it has not, until the time is over; by sink, why nothing could be published."""
    problems: dict[str, str] = {}
    for url in (each.get_secret_value() for each in settings().events_to):
        with failing_alone(problems, shown(url)):
            while _publish_some(services, url) == EVENTS_PER_WRITE and not out_of_time():
                pass
    return problems


def _publish_some(services: Services, url: str) -> int:
    """The cursor moves after the sink has them: a kill in between repeats it, and a sink drops repeats."""
    name = f"published to {shown(url)}"
    with services.ledger.read() as connection:
        start = subscriptions.position(connection, name)
        found = events.ours(connection, start, EVENTS_PER_WRITE)
    if found:
        sink = open_sink(expand(url), services.board)
        sink.publish([(each.sequence, _as_written(each)) for each in found])
        with services.ledger.write() as connection:
            subscriptions.advance(connection, name, found[-1].sequence)
    return len(found)


def _as_written(event: Recorded) -> WriteEvent:
    return WriteEvent(
        str(event.partition.feed),
        decode(event.marker),
        decode(event.event_marker),
        event.correlation,
        event.operation,
        event.partition.key,
        event.context,
    )

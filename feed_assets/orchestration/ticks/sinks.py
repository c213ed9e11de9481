"""Our own events, published also where the team chooses: another SQL table, JSON lines on the blackboard."""

from collections.abc import Callable, Collection

from feed_assets.core.events import Recorded, WriteEvent, decode
from feed_assets.core.failures import failing_alone
from feed_assets.core.feeds import Feed
from feed_assets.core.readiness import NAMED
from feed_assets.core.secrets import shown
from feed_assets.core.words import some
from feed_assets.ledger import events, subscriptions
from feed_assets.runs.services import Services
from feed_assets.settings import expand, settings
from feed_assets.sources.sinks import Sink, open_sink

EVENTS_PER_WRITE = 1000
"""Events that are published at a time."""


def publish_events(services: Services, feeds: Collection[Feed], out_of_time: Callable[[], bool]) -> dict[str, str]:
    """Publish to every sink what it has not, until the time is over; by sink, what was in the way.

    `feeds` live on the blackboard: no sink is in one of them.
    """
    problems: dict[str, str] = {}
    for url in (each.get_secret_value() for each in settings().events_to):
        with failing_alone(problems, shown(url)):
            sink = open_sink(expand(url), services.board, feeds)
            if foreign := _publish(services, sink, f"published to {shown(url)}", out_of_time):
                problems[shown(url)] = (
                    f"{some(foreign, NAMED)} not written by us, and left as found. Our events are beside it, and who "
                    "reads the files by name may have passed them over: remove it, and let nobody else write there."
                )
    return problems


def _publish(services: Services, sink: Sink, name: str, out_of_time: Callable[[], bool]) -> list[str]:
    """Publish until there is nothing left or the time is over; what of others' lies in the way.

    It is looked for before, too: between two numbers of ours it would not be seen afterwards.
    """
    found = _strangers(services, sink, name)
    published = 0
    while count := _publish_some(services, sink, name, found):
        published += count
        if count < EVENTS_PER_WRITE or out_of_time():
            break
    after = _strangers(services, sink, name) if published else ()  # Else it would be the same look again.
    return sorted({*found, *after})


def _strangers(services: Services, sink: Sink, name: str) -> list[str]:
    with services.ledger.read() as connection:
        last = subscriptions.position(connection, name)
    return [*sink.strangers(last, lambda: {each.sequence for each in _after(services, last)})]


def _publish_some(services: Services, sink: Sink, name: str, taken: list[str]) -> int:
    """The cursor moves after the sink has them: a kill in between repeats it, and a sink drops repeats."""
    with services.ledger.read() as connection:
        last = subscriptions.position(connection, name)
    found = _after(services, last)
    if found:
        taken += sink.publish([(each.sequence, _as_written(each)) for each in found])
        with services.ledger.write() as connection:
            subscriptions.advance(connection, name, found[-1].sequence)
    return len(found)


def _after(services: Services, sequence: int) -> tuple[Recorded, ...]:
    with services.ledger.read() as connection:
        return events.ours(connection, sequence, EVENTS_PER_WRITE)


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

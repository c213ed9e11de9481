"""Our own events and the transitions of windows, published also where the team chooses: SQL, JSON lines."""

from collections.abc import Callable, Collection

from feed_assets.core.events import NO_NEW_DATA, Operation, Recorded, WriteEvent, decode
from feed_assets.core.failures import failing_alone
from feed_assets.core.feeds import Feed
from feed_assets.core.readiness import NAMED
from feed_assets.core.secrets import shown
from feed_assets.core.words import some
from feed_assets.ledger import events, subscriptions
from feed_assets.ledger.states.shown import Transition, transitions
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
    return [*sink.strangers(last, lambda: {number for number, _ in _after(services, last)})]


def _publish_some(services: Services, sink: Sink, name: str, taken: list[str]) -> int:
    """The cursor moves after the sink has them: a kill in between repeats it, and a sink drops repeats."""
    with services.ledger.read() as connection:
        last = subscriptions.position(connection, name)
    found = _after(services, last)
    if found:
        taken += sink.publish(found)
        with services.ledger.write() as connection:
            subscriptions.advance(connection, name, found[-1][0])
    return len(found)


def _after(services: Services, sequence: int) -> list[tuple[int, WriteEvent]]:
    """The first events and transitions of windows after a number, in order: of both as many as all that are taken."""
    with services.ledger.read() as connection:
        written = [(each.sequence, _as_written(each)) for each in events.ours(connection, sequence, EVENTS_PER_WRITE)]
        crossed = [
            (each.sequence, _as_event(each)) for each in transitions(connection, sequence, None, EVENTS_PER_WRITE)
        ]
    return sorted([*written, *crossed], key=lambda numbered: numbered[0])[:EVENTS_PER_WRITE]


def _as_event(transition: Transition) -> WriteEvent:
    """A transition as an event of its dataset: nothing was written by it, its context says what became what."""
    at, bounds = transition.address, {"start": transition.start, "end": transition.end}
    said = {name: getattr(transition, name) for name in ("why", "who") if getattr(transition, name)}
    states = {"grain": at.grain, "sub_partition": at.sub_partition, "from": transition.before, "to": transition.after}
    times = {name: moment.isoformat() for name, moment in bounds.items()}
    return WriteEvent(
        str(at.dataset),
        transition.at,
        transition.at,
        f"{at.partition.path}#{transition.sequence}",
        Operation.UPDATE,
        at.partition.key,
        {NO_NEW_DATA: True, "transition": {**states, **times, **said}},
    )


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

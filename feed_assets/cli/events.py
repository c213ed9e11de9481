"""`feed-assets events`: publish and list write events, and say what is due of whom."""

from getpass import getuser
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.location import DEFAULT_MODULE, Module, load_graph, open_bench
from feed_assets.cli.show import show
from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.failures import failing_alone
from feed_assets.core.feeds import Feed

if TYPE_CHECKING:
    from feed_assets.cli.event_views import ConsumerView
    from feed_assets.ledger.database import Ledger
    from feed_assets.orchestration.graph import Graph, Node

app = typer.Typer(help="Write events: what was written when, who waits for what.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table, such as 'shop/orders' or 'ads/shown/v1.0'.")]
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="A dataset that is built by events.")]
Marker = Annotated[str, typer.Option("--marker", help="A moment such as 2010-12-01T06:00:00Z, or a version.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")]


@app.command()
def publish(
    table: Table,
    marker: Marker,
    partition: Annotated[str, typer.Option("--partition", help="The partition that was written.")] = "",
    correlation: Annotated[str, typer.Option("--correlation", help="By default made of the other three.")] = "",
    operation: Annotated[str, typer.Option("--operation", help="How it was written.")] = "OVERWRITE",
    updated_at: Annotated[
        tuple[str, str] | None, typer.Option("--updated-at", help="The first and last updated_at of its rows.")
    ] = None,
    context: Annotated[str, typer.Option("--context", help="What else there is to tell, as a JSON object.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Publish a write event. Publishing it again is harmless; one whose marker is not the table's last is refused."""
    from feed_assets.cli.views import Values
    from feed_assets.core.events import Operation, WriteEvent, encode, foreign_correlation, parse_marker
    from feed_assets.core.feeds import Partition
    from feed_assets.ledger import events
    from feed_assets.runs.workbench import utc_now

    place, found = Partition(Feed.parse(table), partition), parse_marker(marker)
    if operation not in list(Operation):
        raise InvalidEvent(f"{operation!r} is no operation: expected one of {', '.join(Operation)}.")
    new = WriteEvent(
        str(place.feed),
        found,
        utc_now(),
        correlation or foreign_correlation(place, encode(found)),
        Operation(operation),
        partition,
        _object(context),
    )
    bounds = (parse_marker(updated_at[0]), parse_marker(updated_at[1])) if updated_at else None
    with _ledger().change() as connection:
        is_new = events.publish(connection, new, utc_now(), bounds)
    done = Values.of(table=str(place.feed), partition=place.key, published=is_new, correlation_id=new.correlation_id)
    show(done, as_json, "" if is_new else "it is known already")


def _object(text: str) -> dict[str, Any]:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(dict[str, Any]).validate_json(text)
    except ValueError as error:
        raise InvalidEvent(f"--context {text!r}: expected a JSON object, such as '{{\"records\": 3}}'.") from error


@app.command()
def ls(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One table's; by default of all.")] = None,
    limit: Limit = 20,
    rejected: Annotated[bool, typer.Option("--rejected", help="What was read from sources and is no event.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest write events, newest first."""
    from feed_assets.cli.event_views import EventView
    from feed_assets.cli.views import Values
    from feed_assets.ledger import events

    with _ledger().read() as connection:
        if rejected:
            found = events.rejects(connection, limit)
            show([Values.of(source=name, at=at, reason=one.reason, raw=one.raw) for name, one, at in found], as_json)
        else:
            show(EventView.each(events.newest(connection, limit, Feed.parse(table) if table else None)), as_json)


@app.command()
def due(
    consumer: Annotated[str | None, typer.Argument(metavar="[CONSUMER]", help="One; by default all.")] = None,
    module: Module = DEFAULT_MODULE,
    as_json: AsJson = False,
) -> None:
    """Say what the next runs of consumers take, what is incomplete and for how long, and up to where they have read."""
    from feed_assets.cli.event_views import UnreadView
    from feed_assets.orchestration.ingest import ingest_for
    from feed_assets.runs.workbench import utc_now

    graph, bench = load_graph(module), open_bench()
    nodes = [_consumer(graph, consumer)] if consumer else [node for node in graph.datasets() if node.by_events]
    unread = {node.feed: UnreadView.each(ingest_for(graph, bench, [node], utc_now())) for node in nodes}
    views = [_due(graph, node, bench.ledger) for node in nodes]
    show([view.model_copy(update={"unread": unread[Feed.parse(view.consumer)]}) for view in views], as_json)


def _due(graph: "Graph", node: "Node", ledger: "Ledger") -> "ConsumerView":
    """What is due of a consumer, after what the sensor does at its next tick: so that it is told as of now."""
    from feed_assets.cli.event_views import ConsumerView, DueView
    from feed_assets.cli.views import Values
    from feed_assets.ledger import inbox, pauses
    from feed_assets.orchestration.decisions import fan_out_to
    from feed_assets.runs.workbench import utc_now

    fan_out_to(graph, [node], ledger, utc_now(), lambda: False)
    known, problems = None, dict[str, str]()
    with failing_alone(problems, "lineage"):  # Its lineage table may be out of reach: that concerns it alone.
        known = graph.consumer(node)
    with ledger.read() as connection:
        found = inbox.due_of(connection, known) if known else {}
        return ConsumerView(
            problem=problems.get("lineage"),
            consumer=str(node.feed),
            paused=pauses.paused(connection, [node.feed]).get(node.feed),
            due={key: DueView.model_validate(each) for key, each in sorted(found.items())},
            markers=tuple(Values.of(**row) for row in inbox.markers(connection, node.feed)),
        )


def _consumer(graph: "Graph", name: str) -> "Node":
    node = graph.node(Feed.parse(name))
    if node.by_events is None:
        raise InvalidName(f"{name} is not built by events: expected a dataset with by_events=ByEvents().")
    return node


@app.command()
def pause(
    consumer: Consumer,
    why: Annotated[str, typer.Option("--why", help="For whoever finds it paused.")] = "",
    module: Module = DEFAULT_MODULE,
    as_json: AsJson = False,
) -> None:
    """Request no more runs of a consumer. What comes for it is kept until `resume`."""
    from feed_assets.cli.views import Values
    from feed_assets.ledger import pauses
    from feed_assets.runs.workbench import utc_now

    node, ledger = _consumer(load_graph(module), consumer), _ledger()
    pauses.pause_consumer(ledger, node.feed, why, getuser(), utc_now())
    with ledger.read() as connection:
        text = pauses.paused(connection, [node.feed])[node.feed]
    show(Values.of(consumer=str(node.feed), paused=text), as_json)


@app.command()
def resume(consumer: Consumer, module: Module = DEFAULT_MODULE, as_json: AsJson = False) -> None:
    """Go on with a paused consumer: everything that has come since is due."""
    from feed_assets.cli.views import Values
    from feed_assets.ledger import pauses
    from feed_assets.runs.workbench import utc_now

    node = _consumer(load_graph(module), consumer)
    was_paused = pauses.resume(_ledger(), node.feed, utc_now())
    show(Values.of(consumer=str(node.feed), was_paused=was_paused), as_json)


@app.command()
def stats(
    first: Annotated[str, typer.Argument(metavar="FROM", help="The table where updates begin.")],
    last: Annotated[str, typer.Argument(metavar="TO", help="The table that they reach.")],
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """Say how long updates take from one table to another, by the version of the second one's code."""
    from feed_assets.cli.event_views import TrendView
    from feed_assets.core.durations import trend
    from feed_assets.ledger.durations import durations

    with _ledger().read() as connection:
        found = trend(durations(connection, Feed.parse(first), Feed.parse(last), limit))
    show(TrendView.each(found), as_json, "" if found else f"no update has gone from {first} to {last} yet")


def _ledger() -> "Ledger":
    from feed_assets.ledger.database import open_ledger
    from feed_assets.settings import settings

    return open_ledger(settings().ledger)

"""`feed-assets events`: publish and list write events, and show what is due for each consumer."""

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from getpass import getuser
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import (
    Module,
    dynamic_partitions,
    ledger_of_settings,
    load_graph,
    open_services,
    partition_of,
)
from feed_assets.cli.show import Values, show
from feed_assets.cli.verdicts import ConsumerView, DueView, EventView, TrendView, UnreadView
from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.events import (
    Marker,
    Operation,
    WriteEvent,
    check_ahead,
    encode,
    foreign_correlation,
    parse_marker,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import check_version
from feed_assets.core.message_words import first_line, shortened
from feed_assets.core.readiness import NAMED
from feed_assets.settings import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy as sa

    from feed_assets.core.durations import Trend
    from feed_assets.core.propagation import Due
    from feed_assets.ledger.database import Ledger
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.decide.nodes import Node
    from feed_assets.runs.services import Services

app = typer.Typer(help="Write events: what was written when, and which consumer waits for what.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(metavar="TABLE", help="A table, such as 'shop/orders' or 'ads/shown/v1.0'.")]
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="A dataset that is built by events.")]
MarkerText = Annotated[str, typer.Option("--marker", help="A moment such as 2010-12-01T06:00:00Z, or a version.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="List this many at most.")]


@app.command()
def publish(
    table: Table,
    marker: MarkerText,
    partition: Annotated[str, typer.Option("--partition", help="The partition that was written.")] = "",
    correlation: Annotated[
        str, typer.Option("--correlation", help="Its correlation id; by default made of table, partition and marker.")
    ] = "",
    operation: Annotated[str, typer.Option("--operation", help="How it was written.")] = "OVERWRITE",
    updated_at: Annotated[
        tuple[str, str] | None, typer.Option("--updated-at", help="The first and last updated_at of the written rows.")
    ] = None,
    context: Annotated[str, typer.Option("--context", help="Further facts about the write, as a JSON object.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Publish a write event. Repetition is harmless. An event with a marker before the table's last one is refused."""
    from feed_assets.ledger import event_store

    bounds = (parse_marker(updated_at[0]), parse_marker(updated_at[1])) if updated_at else None
    at = partition_of(table, partition)
    check_version(at.feed)
    new = _event(at, parse_marker(marker), correlation, operation, context)
    check_ahead(new, datetime.now(UTC), timedelta(hours=settings().event_hours_ahead))
    with ledger_of_settings().change() as connection:
        is_new = event_store.publish(connection, new, datetime.now(UTC), bounds)
    done = Values.of(
        table=new.table_name, partition=new.partition_key, published=is_new, correlation_id=new.correlation_id
    )
    show(done, as_json, "" if is_new else "this event was published before")


def _event(partition: Partition, marker: Marker, correlation: str, operation: str, context: str) -> WriteEvent:
    """Return the event that the options describe. Raise InvalidEvent if they are not a valid event."""
    if operation not in list(Operation):
        raise InvalidEvent(f"{operation!r} is not an operation: expected one of {', '.join(Operation)}.")
    return WriteEvent(
        str(partition.feed),
        marker,
        datetime.now(UTC),
        correlation_id=correlation or foreign_correlation(partition, encode(marker)),
        write_operation=Operation(operation),
        partition_key=partition.key,
        context=_object(context),
    )


def _object(text: str) -> dict[str, Any]:
    try:
        return TypeAdapter(dict[str, Any]).validate_json(text)
    except ValueError as error:
        raise InvalidEvent(f"--context {text!r}: expected a JSON object, such as '{{\"records\": 3}}'.") from error


@app.command()
def ls(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this table; by default all.")] = None,
    limit: Limit = 20,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="List what was read from sources but is not a valid event.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest write events, newest first."""
    from feed_assets.ledger import event_rejects, event_store

    ledger, feed = ledger_of_settings(makes=False), Feed.parse(table) if table else None
    if feed:
        _check_known(ledger, [feed])
    with ledger.read() as connection:
        if rejected:
            rejects = event_rejects.rejects(connection, limit)
            show([Values.of(source=name, at=at, reason=one.reason, raw=one.raw) for name, one, at in rejects], as_json)
        else:
            show(EventView.each(event_store.newest(connection, limit, feed)), as_json)


@app.command()
def due(
    consumer: Annotated[str | None, typer.Argument(metavar="[CONSUMER]", help="Only this one; by default all.")] = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Show what the next runs of consumers take, which updates are incomplete, and how far consumers have read."""
    graph = load_graph(module)
    services = open_services(graph, makes=False)
    nodes = [_consumer(graph, consumer)] if consumer else [node for node in graph.datasets() if node.by_events]
    with dynamic_partitions(graph):
        show([_due(graph, node, services) for node in nodes], as_json)


def _due(graph: "Graph", node: "Node", services: "Services") -> ConsumerView:
    """Return a consumer's events, propagations and read positions, as they would be after a tick of its sensors."""
    from feed_assets.ledger import inbox, pauses
    from feed_assets.orchestration.decide.decisions import due_of, fan_out_to
    from feed_assets.orchestration.ticks.ingest import ingest_for

    unread = UnreadView.each(ingest_for(graph, services, [node], services.now()))
    fan_out_to(graph, [node], services.ledger, services.now(), lambda: False)
    problems = dict[str, str]()  # A lineage table that cannot be read affects only its consumer.
    with services.ledger.read() as connection:
        due = due_of(graph, connection, [node], services.now(), problems)
        return ConsumerView(
            problem=problems.get(str(node.feed)),
            consumer=str(node.feed),
            paused=pauses.paused(connection, [node.feed]).get(node.feed),
            due=_takes(graph, connection, due, services.now()),
            markers=tuple(Values.of(**row) for row in inbox.markers(connection, node.feed)),
            unread=unread,
        )


def _takes(
    graph: "Graph", connection: "sa.Connection", due_by_partition: "Mapping[Partition, Due]", now: datetime
) -> dict[str, DueView]:
    """Return the propagations (events with one correlation id) that each partition's next run takes.

    If a partition also waits for an input, its run takes no propagation: all are shown as `later`.
    """
    from feed_assets.core.readiness import State
    from feed_assets.orchestration.decide.decisions import verdicts

    views = {output.key: DueView.model_validate(due_by_partition[output]) for output in sorted(due_by_partition)}
    for verdict in verdicts(graph, connection, sorted(due_by_partition), now):
        if verdict.state in (State.WAITS_FOR_INPUT, State.WAITS_FOR_QUALITY):
            view = views[verdict.output.key]
            waiting = {"takes": (), "slices": (), "later": view.takes + view.later, "waits": first_line(verdict.reason)}
            views[verdict.output.key] = view.model_copy(update=waiting)
    return views


def _consumer(graph: "Graph", name: str) -> "Node":
    node = graph.node(Feed.parse(name))
    if node.by_events is None:
        raise InvalidName(f"{name} is not built by events: expected a dataset with by_events=ByEvents().")
    return node


@app.command()
def pause(
    consumer: Consumer,
    why: Annotated[str, typer.Option("--why", help="The reason, for people who find the consumer paused.")] = "",
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Request no more runs of a consumer. Its events are kept until `resume`."""
    from feed_assets.ledger import pauses

    node, ledger = _consumer(load_graph(module), consumer), ledger_of_settings(makes=False)
    pauses.pause_consumer(ledger, node.feed, why, getuser(), datetime.now(UTC))
    with ledger.read() as connection:
        text = pauses.paused(connection, [node.feed])[node.feed]
    show(Values.of(consumer=str(node.feed), paused=text), as_json)


@app.command()
def resume(consumer: Consumer, module: Module = None, as_json: AsJson = False) -> None:
    """Continue with a paused consumer: everything that has arrived meanwhile is due."""
    from feed_assets.ledger import pauses

    node = _consumer(load_graph(module), consumer)
    was_paused = pauses.resume(ledger_of_settings(makes=False), node.feed, datetime.now(UTC))
    show(Values.of(consumer=str(node.feed), was_paused=was_paused), as_json)


@app.command()
def stats(
    first: Annotated[str, typer.Argument(metavar="FROM", help="The table where updates begin.")],
    last: Annotated[str, typer.Argument(metavar="TO", help="The table that the updates reach.")],
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """Show how long updates take from one table to another, by version of the second table's code, the newest last.

    Each version's median is compared with that of the version before.
    """
    from feed_assets.core.durations import trend
    from feed_assets.ledger.update_durations import durations

    ledger, begin, end = ledger_of_settings(makes=False), Feed.parse(first), Feed.parse(last)
    _check_known(ledger, [begin, end])
    with ledger.read() as connection:
        trends = trend(durations(connection, begin, end, limit))
    show(TrendView.each(trends), as_json, _trend_note(trends) or f"no update has gone from {first} to {last} yet")


def _trend_note(trends: "Sequence[Trend]") -> str:
    """Return a sentence that compares the speed of two versions of the code; '' if there are no updates."""
    from feed_assets.core.durations import UPDATES_COMPARED, compared

    if not trends:
        return ""
    comparison, factor = compared(trends), settings().slower_factor
    if not comparison:
        return f"no two versions have {UPDATES_COMPARED} updates each, which a comparison needs"
    if comparison.times <= 1:
        return f"{comparison}: it is not slower"
    is_alert = factor and comparison.times > factor
    return f"{comparison}: it is slower{f', by more than {factor:g} times, which is an alert' if is_alert else ''}"


def _check_known(ledger: "Ledger", tables: "Sequence[Feed]") -> None:
    """Raise InvalidName for a table that the ledger does not have."""
    from feed_assets.ledger.update_durations import known_tables
    from feed_assets.orchestration.decide.undeclared import known_feeds

    with ledger.read() as connection:
        known_names = known_tables(connection)
    heard_of = {*known_names} | known_feeds(ledger, [str(table) for table in tables])
    for table in tables:
        if str(table) not in heard_of:
            near = get_close_matches(str(table), sorted(known_names), 1)
            hint = (
                f"is {near[0]} meant?"
                if near
                else f"it has events of {shortened(known_names, NAMED) or 'no table yet'}."
            )
            raise InvalidName(f"the ledger has no table {table}: {hint} Correct the name.")

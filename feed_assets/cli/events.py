"""`feed-assets events`: publish and list write events, and say what is due of whom."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.location import DEFAULT_MODULE, Module, load
from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.feeds import Feed

if TYPE_CHECKING:
    from feed_assets.core.events import Recorded
    from feed_assets.core.propagation import Due, Propagation
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
    from feed_assets.core.events import Operation, WriteEvent, encode, foreign_correlation, parse_marker
    from feed_assets.core.feeds import Partition
    from feed_assets.ledger import events
    from feed_assets.runs.workbench import utc_now

    place, found = Partition(Feed.parse(table), partition), parse_marker(marker)
    if operation not in list(Operation):
        raise InvalidEvent(f"{operation!r} is no operation: expected one of {', '.join(Operation)}.")
    told: dict[str, Any] = _object(context)
    new = WriteEvent(
        str(place.feed),
        found,
        utc_now(),
        correlation or foreign_correlation(place, encode(found)),
        Operation(operation),
        partition,
        told,
    )
    bounds = (parse_marker(updated_at[0]), parse_marker(updated_at[1])) if updated_at else None
    with _ledger().write() as connection:
        is_new = events.publish(connection, new, utc_now(), bounds)
    if as_json:
        typer.echo(json.dumps({"published": is_new, "correlation_id": new.correlation_id}))
    else:
        typer.echo(f"{place}: {'published' if is_new else 'it is known already'} ({new.correlation_id})")


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
    from feed_assets.ledger import events

    with _ledger().read() as connection:
        if rejected:
            rows = [
                {"source": source, "at": at.isoformat(), "reason": each.reason, "raw": each.raw}
                for source, each, at in events.rejects(connection, limit)
            ]
        else:
            found = events.newest(connection, limit, Feed.parse(table) if table else None)
            rows = [_values(each) for each in found]
    _print(rows, as_json)


def _values(event: "Recorded") -> dict[str, Any]:
    from feed_assets.core.events import in_words

    flag = {"flag": event.flag} if event.flag else {}
    return {
        "sequence": event.sequence,
        "table": str(event.place.feed),
        "partition": event.place.key,
        "marker": in_words(event.marker),
        "operation": event.operation.value,
        "correlation_id": event.correlation,
        "event_marker": in_words(event.event_marker),
        "source": event.source or "here",
        **flag,
        "context": dict(event.context),
    }


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo("  ".join(str(value) for value in row.values() if value not in ("", {})))
    if not rows:
        typer.echo("nothing")


@app.command()
def due(
    consumer: Annotated[str | None, typer.Argument(metavar="[CONSUMER]", help="One; by default all.")] = None,
    module: Module = DEFAULT_MODULE,
    as_json: AsJson = False,
) -> None:
    """Say what the next runs of consumers take, what is incomplete and for how long, and up to where they have read."""
    from feed_assets.ledger import inbox
    from feed_assets.orchestration.graph import Graph

    graph, ledger = Graph(load(module).resolve_asset_graph()), _ledger()
    nodes = [_consumer(graph, consumer)] if consumer else [node for node in graph.datasets() if node.by_events]
    rows: list[dict[str, Any]] = []
    for node in nodes:
        _deliver(graph, node, ledger)
        known = graph.consumer(node)
        with ledger.read() as connection:
            found = inbox.due_of(connection, known) if known else {}
            markers = [{**row, "at": row["at"].isoformat()} for row in inbox.markers(connection, node.feed)]
            paused = inbox.paused(connection, [node.feed]).get(node.feed)
        partitions = {key: due_values(each) for key, each in sorted(found.items())}
        rows.append({"consumer": str(node.feed), "paused": paused, "due": partitions, "markers": markers})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        _print_due(row)


def _consumer(graph: "Graph", name: str) -> "Node":
    node = graph.node(Feed.parse(name))
    if node.by_events is None:
        raise InvalidName(f"{name} is not built by events: expected a dataset with by_events=ByEvents().")
    return node


def _deliver(graph: "Graph", node: "Node", ledger: "Ledger") -> None:
    """As the sensor does at its next tick: what is told is of now."""
    from feed_assets.orchestration.decisions import fan_out
    from feed_assets.runs.workbench import utc_now

    fan_out(graph, [node], ledger, utc_now(), lambda: False)


def due_values(due: "Due") -> dict[str, Any]:
    """What is due, as JSON values."""
    from feed_assets.core.events import in_words

    slices = [
        {
            "table": str(each.place.feed),
            "partition": each.place.key,
            "after": in_words(each.start),
            "upto": in_words(each.end),
            "operations": sorted(operation.value for operation in each.operations),
        }
        for each in due.slices
    ]
    return {
        "takes": [each.correlation for each in due.taken],
        "slices": slices,
        "later": [each.correlation for each in due.later],
        "incomplete": [_incomplete_values(each) for each in due.incomplete],
        "waits": due.waits,
    }


def _incomplete_values(each: "Propagation") -> dict[str, Any]:
    missing = sorted(map(str, each.missing))
    return {"correlation_id": each.correlation, "missing": missing, "since": each.since.isoformat(), "why": str(each)}


def _print_due(row: dict[str, Any]) -> None:
    state = f": paused, {row['paused']}" if row["paused"] else "" if row["due"] else ": nothing is due"
    typer.echo(f"{row['consumer']}{state}")
    for key, found in row["due"].items():
        typer.echo(f"  {key or 'all of it'}: takes {len(found['takes'])}, later {len(found['later'])}")
        for each in found["slices"]:
            typer.echo(f"    reads {each['table']} {each['partition']} after {each['after']} up to {each['upto']}")
        for each in found["incomplete"]:
            typer.echo(f"    waits since {each['since']}: {each['why']}")


@app.command()
def pause(
    consumer: Consumer,
    why: Annotated[str, typer.Option("--why", help="For whoever finds it paused.")] = "",
    module: Module = DEFAULT_MODULE,
    as_json: AsJson = False,
) -> None:
    """Request no more runs of a consumer. What comes for it is kept until `resume`."""
    from feed_assets.ledger import inbox
    from feed_assets.orchestration.graph import Graph
    from feed_assets.runs.workbench import utc_now

    node = _consumer(Graph(load(module).resolve_asset_graph()), consumer)
    text = f"paused since {utc_now():%Y-%m-%d %H:%M} UTC{f': {why}' if why else ''}; events resume {node.feed} ends it"
    inbox.pause(_ledger(), node.feed, text)
    typer.echo(json.dumps({"consumer": str(node.feed), "paused": text}) if as_json else f"{node.feed}: {text}")


@app.command()
def resume(consumer: Consumer, module: Module = DEFAULT_MODULE, as_json: AsJson = False) -> None:
    """Go on with a paused consumer: everything that has come since is due."""
    from feed_assets.ledger import inbox
    from feed_assets.orchestration.graph import Graph
    from feed_assets.runs.workbench import utc_now

    node = _consumer(Graph(load(module).resolve_asset_graph()), consumer)
    was_paused = inbox.resume(_ledger(), node.feed, utc_now())
    text = "goes on" if was_paused else "was not paused"
    typer.echo(json.dumps({"consumer": str(node.feed), "was_paused": was_paused}) if as_json else f"{node.feed} {text}")


@app.command()
def stats(
    first: Annotated[str, typer.Argument(metavar="FROM", help="The table where updates begin.")],
    last: Annotated[str, typer.Argument(metavar="TO", help="The table that they reach.")],
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """Say how long updates take from one table to another, by the version of the second one's code."""
    from dataclasses import asdict

    from feed_assets.core.durations import trend
    from feed_assets.ledger.durations import durations

    with _ledger().read() as connection:
        found = trend(durations(connection, Feed.parse(first), Feed.parse(last), limit))
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    for each in found:
        change = "" if each.change is None else f", {each.change:+.0%} against the version before"
        name = f"code {each.code_version}" if each.code_version else "code without a version"
        typer.echo(f"{name}: {each.count} updates, median {each.median:.1f} s, p95 {each.p95:.1f} s{change}")
    if not found:
        typer.echo(f"no update has gone from {first} to {last} yet")


def _ledger() -> "Ledger":
    from feed_assets.ledger.database import open_ledger
    from feed_assets.settings import settings

    return open_ledger(settings().ledger)

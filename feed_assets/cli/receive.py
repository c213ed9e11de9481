"""`feed-assets receive`: the receiver for events that partners push, and their API keys."""

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, dynamic_partitions, ledger_of_settings, load_graph, open_services
from feed_assets.cli.show import Values, show
from feed_assets.cli.terminal import echo
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import FeedAssetsError, InvalidDefinition, InvalidSetting
from feed_assets.core.feeds import Feed
from feed_assets.core.message_words import excerpt
from feed_assets.home import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from feed_assets.core.events import Rejected, WriteEvent
    from feed_assets.intake.event_calls import WrittenSource
    from feed_assets.intake.pushed import PushedFeed
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.decide.nodes import Node

app = typer.Typer(help="Receive the events that partners push.")
keys = typer.Typer(help="API keys of partners: make, rotate, revoke and list them.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Partner = Annotated[str, typer.Argument(metavar="PARTNER", help="The owner of the key, such as 'men'.")]


@app.callback(invoke_without_command=True)
def receive(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = LOOPBACK,
    port: Annotated[int, typer.Option(help="Port to listen at; 0: a free one.")] = 8080,
    spool: Annotated[
        Path | None,
        typer.Option(help="Folder for events that are not published yet; by default 'receiver' in the home."),
    ] = None,
    module: Module = None,
) -> None:
    """Receive events for feeds that are declared with intake='push', until Ctrl-C. Put a proxy in front for TLS."""
    if context.invoked_subcommand:
        return
    if find_spec("fastapi") is None:
        raise InvalidSetting("the receiver needs more packages: `pip install 'feed-assets[receiver]'`.")
    from feed_assets.home import home
    from feed_assets.intake.event_calls import Calls
    from feed_assets.intake.serve import serve
    from feed_assets.orchestration.ticks.ingest import register_tables, sources_of

    graph = load_graph(module)
    feeds, sources = pushed_feeds(graph), written_sources(graph)
    if not feeds and not sources:
        raise InvalidDefinition("no feed here takes pushed events: declare a feed as foreign_feed(…, intake='push').")
    services = open_services(graph)
    for source in sources_of(graph).values():
        register_tables(graph, services.ledger, source, datetime.now(UTC))
    serve(Calls(services, sources, polled(graph)), feeds, spool or home() / "receiver", host, port)


def written_sources(graph: "Graph") -> "dict[str, WrittenSource]":
    """Return the event sources of a code location, by name."""
    from feed_assets.intake.event_calls import WrittenSource
    from feed_assets.orchestration.ticks.ingest import Naming, sources_of

    def named(naming: Naming) -> "Callable[[WriteEvent, datetime], WriteEvent | Rejected]":
        def name(event: "WriteEvent", now: datetime) -> "WriteEvent | Rejected":
            with dynamic_partitions(graph):
                return naming.of(event, now)

        return name

    return {
        name: WrittenSource(name, named(Naming(graph, source)), source.out_of_order == "refuse")
        for name, source in sources_of(graph).items()
    }


def polled(graph: "Graph") -> dict[str, bool]:
    """Return the foreign feeds that are polled, and whether each is appendable."""
    return {str(feed): feed in graph.appendable() for feed in graph.polled()}


def pushed_feeds(graph: "Graph") -> "dict[str, PushedFeed]":
    """Return the feeds of a code location that take pushed events, by name. Each source of a feed has its own entry."""
    return {each.name: each for node in graph.foreign() for each in _pushed(node)}


def _pushed(node: "Node") -> "list[PushedFeed]":
    from feed_assets.intake.pushed import PushedFeed
    from feed_assets.orchestration.declare.declarations import Foreign
    from feed_assets.orchestration.declare.partitions import sources_beside_hours, times_of

    declared, times = node.declaration, times_of(node.partitions_def)
    if not isinstance(declared, Foreign) or declared.intake != "push" or not declared.event_time or times is None:
        return []
    first = times.start.astimezone(UTC)
    grain = {"grain": node.tracked.base} if node.tracked else {}
    return [
        PushedFeed(node.feed, declared.schema, declared.event_time, first, times.fmt, **grain, source=source)
        for source in sources_beside_hours(node.partitions_def)
    ]


@keys.command()
def add(
    partner: Partner,
    scopes: Annotated[
        list[str], typer.Argument(metavar="FEED...", help="Feeds that the partner may push to, or events:SOURCE.")
    ],
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a partner and print it. The key is printed only once, because only its digest is stored.

    The feeds and sources may be declared later. If a feed or source is unknown, or takes no events, a line on stderr
    says so.
    """
    from feed_assets.intake import authentication

    _print(partner, authentication.add(ledger_of_settings(), partner, scopes, datetime.now(UTC)), as_json)
    _say_useless(scopes, module)


def _print(partner: str, key: str, as_json: bool) -> None:
    """Print a key. Without --json print nothing else, so that `KEY=$(…)` works."""
    if as_json:
        show(Values.of(partner=partner, key=key), as_json)
    else:
        echo(key)


def _say_useless(scopes: "Iterable[str]", module: str | None) -> None:
    """Print the scopes for which a key is useless under the present declarations."""
    try:
        graph = load_graph(module)
    except FeedAssetsError as error:
        say(f"cannot check whether events can be sent with this key ({excerpt(str(error))})")
        return
    for scope in scopes:
        if problem := _problem(graph, scope):
            say(f"{scope}: {problem}. The key is made anyway")


def _problem(graph: "Graph", scope: str) -> str:
    """Return why no event can be sent with this scope. Return '' if events can be sent."""
    from feed_assets.intake.authentication import EVENTS

    if scope.startswith(EVENTS):
        sources = sorted(f"{EVENTS}{name}" for name in written_sources(graph))
        return (
            "" if scope in sources else f"there is no such event source: expected one of {', '.join(sources) or 'none'}"
        )
    pushed, node = pushed_feeds(graph), graph.by_feed.get(Feed.parse(scope))
    if scope in pushed:
        return ""
    if scope in polled(graph):
        return f"it takes no pushed events: the key is only for POST /wake/{scope}"
    is_what = (
        "it is pulled" if node and node.by_intake else f"it is a {node.role} feed" if node else "no asset has this name"
    )
    return f"{is_what}: expected a feed that takes pushed events, one of {', '.join(sorted(pushed)) or 'none'}"


@keys.command()
def rotate(
    partner: Partner,
    hours: Annotated[float, typer.Option(min=0, help="Hours for which the previous keys stay valid.")] = 24,
    as_json: AsJson = False,
) -> None:
    """Make another key with the same rights as the partner's keys, and print it.

    The old keys stay valid for some hours.
    """
    from feed_assets.intake import authentication

    _print(
        partner,
        authentication.rotate(ledger_of_settings(), partner, timedelta(hours=hours), datetime.now(UTC)),
        as_json,
    )


@keys.command()
def revoke(
    partner: Partner,
    key: Annotated[str | None, typer.Option(help="One key, by the name that `ls` shows; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Revoke the keys of a partner. Receivers refuse them within seconds."""
    from feed_assets.intake import authentication

    ended = authentication.revoke(ledger_of_settings(), partner, key, datetime.now(UTC))
    show([Values.of(partner=partner, key=each, state="revoked") for each in ended], as_json)


@keys.command()
def ls(as_json: AsJson = False) -> None:
    """List the keys, including invalid ones. No secret is shown, and none is stored."""
    from feed_assets.ledger import api_keys

    now = datetime.now(UTC)
    with ledger_of_settings(makes=False).read() as connection:
        rows = api_keys.every(connection)
    views = [
        Values.of(
            partner=row.partner, key=row.id, holds=row.holds(now), made=row.made, ends=row.ends, scopes=row.scopes
        )
        for row in rows
    ]
    show(views, as_json)

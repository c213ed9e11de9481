"""`feed-assets warehouse`: chunks become tables."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.connector import stopped_by_signals, wanted_topics
from feed_assets.cli.feed import AsJson
from feed_assets.cli.location import Module, load_graph
from feed_assets.cli.show import View, show
from feed_assets.core.errors import FeedAssetsError, InvalidName, InvalidShape, NotMigratable
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.core.topics import Topic
    from feed_assets.warehouse.table import Loading

app = typer.Typer(help="Chunks of Kafka topics become tables of a warehouse.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A warehouse of FEED_ASSETS_WAREHOUSES.")]
Topics = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics that have a table there; by default all.")
]


class ChangeView(View):
    """What becomes of a table before rows of a schema are merged into it."""

    topic: str
    schema_id: int | None
    statements: tuple[str, ...]


class TableView(View):
    """A topic partition, and up to where its table has it."""

    topic: str
    partition: int | None
    schema_id: int | None
    next_offset: int | None
    loaded_at: datetime | None
    refused: int
    """Rows that the warehouse could not hold: feed_assets.refused has each with its reason."""
    problem: str | None


@app.callback()
def warehouse() -> None:
    """Chunks of Kafka topics become tables of a warehouse."""
    from feed_assets.kafka import check_installed

    check_installed()


@app.command()
def plan(name: Name, topics: Topics = None, module: Module = None, as_json: AsJson = False) -> None:
    """Print the statements that make and migrate tables for what is signalled and not loaded yet.

    The last line is the error of a table that could not go along with its topic; the exit code is 1.
    """
    wanted, found, refused = _wanted(module, name, topics or []), list[ChangeView](), list[FeedAssetsError]()
    with _loading(name) as loading:
        for topic, limits in wanted.items():
            try:
                found.extend([*_changes(loading, topic, limits)])
            except (InvalidShape, NotMigratable) as error:
                refused.append(error)
    _print(found, as_json)
    for error in refused:
        raise error


@app.command()
def load(
    name: Name,
    topics: Topics = None,
    once: Annotated[bool, typer.Option("--once", help="Load what is signalled now, then end.")] = False,
    module: Module = None,
) -> None:
    """Load the chunks of topics until Ctrl-C or SIGTERM: one process for each warehouse."""
    from feed_assets.warehouse import loader

    wanted = _wanted(module, name, topics or [])
    with _loading(name) as loading:
        if once:
            say(f"warehouse {name}: {loader.once(loading, wanted)} loads")
        else:
            loader.run(loading, wanted, stopped_by_signals())
            say(f"warehouse {name}: ended; what is not loaded is read again")


@app.command()
def state(name: Name, as_json: AsJson = False) -> None:
    """Say up to where each table has its topic, what was refused, and why one has stopped."""
    from feed_assets.warehouse import state as states
    from feed_assets.warehouse.engines import engine_of

    place = settings().warehouse(name)
    with engine_of(place.url.get_secret_value(), place.iam_role).open() as connection:
        found = states.tables(connection) if states.exists(connection) else []
    show(TableView.each(found), as_json, "" if found else f"nothing was loaded into {name} yet")


def _wanted(module: str | None, warehouse: str, names: list[str]) -> "Mapping[str, Topic]":
    """The topics that have a table in a warehouse, or these of them, with their keys. Raises InvalidName."""
    from feed_assets.orchestration.declare.warehouse_tables import declared_tables

    graph = load_graph(module)
    known = declared_tables((node.declaration for node in graph.tables()), warehouse)
    if not known:
        raise InvalidName(
            f"no table of the warehouse {warehouse} is declared here: declare one by warehouse_table, or by "
            "`warehouses` of a TopicsComponent."
        )
    if unknown := sorted({*names} - {*known}):
        raise InvalidName(f"{unknown[0]!r} has no table in {warehouse}: expected one of {', '.join(sorted(known))}.")
    return wanted_topics(graph, names or known)


def _print(found: list[ChangeView], as_json: bool) -> None:
    if as_json:
        show(found, as_json)
        return
    for each in found:
        typer.echo(f"-- {each.topic}, schema {each.schema_id}")
        for statement in each.statements:
            typer.echo(f"{statement};")
    if not found:
        typer.echo("no table changes", err=True)


def _changes(loading: "Loading", topic: str, limits: "Topic") -> Iterator[ChangeView]:
    from feed_assets.warehouse import state as states
    from feed_assets.warehouse.table import Table

    with loading.engine.open() as connection:
        known = states.read(connection, topic) if states.exists(connection) else states.Known()
    for run, change in Table(loading, "", topic, limits.key, known).plan():
        yield ChangeView(topic=topic, schema_id=run.schema_id, statements=change.statements)


@contextmanager
def _loading(name: str) -> "Generator[Loading]":
    from feed_assets.runs.chunking import chunking_of
    from feed_assets.warehouse.table import Loading

    found = settings().warehouse(name)
    chunking = chunking_of(settings())
    try:
        yield Loading(name, chunking.clients, chunking.schemas, chunking.board, found)
    finally:
        chunking.schemas.close()

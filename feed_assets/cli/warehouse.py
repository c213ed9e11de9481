"""`feed-assets warehouse`: load chunks and datasets into tables."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from feed_assets.cli.connector import stopped_by_signals, wanted_topics
from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, load_graph, open_services
from feed_assets.cli.pattern_topics import loaded_now, loads_into
from feed_assets.cli.show import Below, View, show
from feed_assets.cli.terminal import echo
from feed_assets.cli.warehouse_refused import refused
from feed_assets.core.errors import FeedAssetsError, InvalidName, ServiceUnavailable
from feed_assets.heartbeats import Heartbeat
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.warehouse.dataset_state import LoadedUpdate
    from feed_assets.warehouse.engines import Engine
    from feed_assets.warehouse.load_state import TableState
    from feed_assets.warehouse.loader import TableSource, TableSources
    from feed_assets.warehouse.target import Target

app = typer.Typer(help="Load chunks of Kafka topics, and datasets, into tables of a warehouse.", no_args_is_help=True)
app.command()(refused)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A warehouse of FEED_ASSETS_WAREHOUSES.")]
Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE...", help="Topics and datasets that have a table; by default all."),
]


class ChangeView(View):
    """The changes to a table that are needed before rows of a schema are loaded into it."""

    topic: str
    """The topic or the dataset."""
    schema_id: int | None
    """For a dataset: the digits of the id of the update that has the schema."""
    statements: tuple[str, ...] = ()
    problem: str | None = None
    """The reason why the table cannot be changed."""


class ResetView(View):
    """Statements that drop a table, so that it is made anew. `applied` is true if they were executed."""

    table: str
    statements: tuple[str, ...]
    applied: bool


class TableView(View):
    """A partition of a topic or dataset, and the offset or update up to which its table has the data."""

    table: str = Field(validation_alias="topic")
    partition: int | str | None
    schema_id: int | None
    next_offset: int | None
    update_id: str | None = None
    records: int | None = None
    loaded_at: datetime | None
    refused: int
    """The number of rows that the warehouse could not store. The table feed_assets.refused has them with reasons."""
    problem: Annotated[str | None, Below]


@app.callback()
def warehouse() -> None:
    """Load chunks of Kafka topics, and datasets, into tables of a warehouse."""


@app.command()
def plan(name: Name, topics: Topics = None, module: Module = None, as_json: AsJson = False) -> None:
    """Print the statements that create and migrate tables for data that are not loaded yet.

    If a table cannot be migrated, its error is printed at the end, and the exit code is 1.
    """
    sources = _table_sources(load_graph(module), name, topics or [])
    changes, refused = list[ChangeView](), dict[str, FeedAssetsError]()
    with _target(name, sources) as target:
        for table in sources:
            try:
                for each in _changes(target, sources, table):
                    changes.append(each)
            except ServiceUnavailable:
                raise
            except FeedAssetsError as error:
                refused[table] = error
    _print([*changes, *(_refusal(table, error) for table, error in refused.items() if as_json)], as_json)
    for table, error in refused.items():
        say(f"warehouse {name}: {table} cannot be migrated: {error}")
    if refused:
        raise typer.Exit(1)


@app.command()
def load(
    name: Name,
    topics: Topics = None,
    once: Annotated[bool, typer.Option("--once", help="Load what is there now, then exit.")] = False,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Refuse rows that a topic's table cannot take, whatever is declared.")
    ] = False,
    module: Module = None,
) -> None:
    """Load chunks of topics and rows of datasets until Ctrl-C or SIGTERM. Run one process for each warehouse."""
    from feed_assets.warehouse import loader

    graph = load_graph(module)
    sources = _table_sources(graph, name, topics or [])
    sources = _refusing(sources) if refuse else sources
    newer = None if topics else _newer_sources(graph, name, refuse=refuse)
    with _target(name, sources, adds_topics=newer is not None) as target:
        if once:
            say(f"warehouse {name}: {loader.counted(loader.once(target, sources), 'load')}")
        else:
            with closing(Heartbeat(f"loader-{name}")) as heartbeat:
                loader.run(target, sources, stopped_by_signals(), beat=heartbeat.beat, newer=newer)
            say(f"warehouse {name}: ended; data that are not loaded are read again at the next start")


@app.command()
def state(name: Name, as_json: AsJson = False) -> None:
    """Show the offset or the updates up to which each table is loaded. If loading a table stopped, show the reason."""
    from feed_assets.warehouse import dataset_state
    from feed_assets.warehouse import load_state as states

    engine = _engine(name)
    if why := engine.absence():
        show([], as_json, f"nothing was loaded into {name} yet: {why}")
        return
    with engine.open() as connection:
        table_states = states.tables(connection) if states.exists(connection, engine) else []
        held = dataset_state.loads(connection, engine)
    replaced = {each.dataset for each in held}
    topic_states = [each._replace(partition=_named(each)) for each in table_states if each.topic not in replaced]
    rows = [*TableView.each(topic_states), *_held(held, table_states)]
    show(rows, as_json, "" if rows else f"nothing was loaded into {name} yet")


@app.command()
def reset(
    name: Name,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A topic or a dataset, as `state` shows it.")],
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="stop|OFFSET", help="Keep the present position, or begin at this offset."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only this topic of a union: its rows are deleted and loaded again.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Execute the statements. Without --apply they are only printed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Drop a table and its load state, so that the next load makes it anew.

    By default the load begins at the first signal. With --from stop it continues at its present position, so the new
    table gets only data that are not loaded yet. The command fails while a loader works on the warehouse.
    """
    from feed_assets.warehouse import loader, reset

    engine, first = _engine(name), _begin(begin)
    if why := engine.absence():
        raise InvalidName(f"{table} cannot be reset: {why}.")
    if topic and begin:
        raise InvalidName("--topic reads the topic from its first signal on: leave out --from.")
    with engine.open() as connection:
        statements = (
            reset.plan_topic(connection, engine, table, topic)
            if topic
            else reset.plan(connection, engine, table, first)
        )
        if apply:
            reset.apply(connection, engine, loader.holder(), loader.LEASE_SECONDS, statements)
    if as_json:
        return show(ResetView(table=table, statements=tuple(statements), applied=apply), as_json)
    for each in statements:
        echo(f"{each};")
    anew = f"the next load makes {topic or table} anew"
    return say(f"warehouse {name}: {anew if apply else 'add --apply to run these statements'}")


def _begin(text: str | None) -> int | str | None:
    from feed_assets.warehouse.reset import STOP

    if text is None or text == STOP:
        return text
    if not (text.isascii() and text.isdigit()):
        raise InvalidName(f"--from {text!r}: expected {STOP}, or an offset such as 1200.")
    return int(text)


def _engine(name: str) -> "Engine":
    from feed_assets.warehouse.target import engine_at

    place = settings().warehouse(name)
    return engine_at(place, name)


def _named(state: "TableState") -> int | str | None:
    """Return the partition as it is shown: a number, or `topic-0` in a table of several topics."""
    return state.partition if state.place in (None, str(state.partition)) else state.place


def _held(held: "Iterable[LoadedUpdate]", table_states: "Iterable[TableState]") -> Iterator[TableView]:
    from feed_assets.warehouse.load_state import TableState

    tables = {each.topic: each for each in table_states}
    for each in sorted(held):
        table = tables.get(each.dataset) or TableState(
            each.dataset, None, None, next_offset=None, loaded_at=None, refused=0, problem=_GONE
        )
        named = table._asdict() | {"partition": each.partition}
        yield TableView.model_validate({**named, **{name: getattr(each, name) for name in _OF_UPDATES}})


_OF_UPDATES = ("update_id", "records", "loaded_at")
_GONE = "its row in feed_assets.tables is gone: the next load makes the table anew, with all partitions"


def _newer_sources(graph: "Graph", warehouse: str, *, refuse: bool) -> "Callable[[], TableSources] | None":
    """Return a function that returns the topics of patterns in a warehouse. Return None if no pattern loads into it."""
    if not loads_into(graph, warehouse):
        return None

    def newer() -> "TableSources":
        topics = loaded_now(graph, warehouse)
        return _refusing(topics) if refuse else topics

    return newer


def _table_sources(graph: "Graph", warehouse: str, names: list[str]) -> "TableSources":
    """Return the topics and datasets with a table in a warehouse, by default all. Raise InvalidName for other names."""
    from feed_assets.core.topic_unions import TopicUnion
    from feed_assets.core.topics import TopicHistory
    from feed_assets.orchestration.declare.declarations import LoadedDataset, LoadedTopic, LoadedUnion
    from feed_assets.orchestration.declare.warehouse_tables import declared_tables
    from feed_assets.warehouse.dataset import DatasetUpdates

    settings().warehouse(warehouse)
    declared = declared_tables((node.declaration for node in graph.tables()), warehouse)
    if not declared and loads_into(graph, warehouse) and not names:
        return {}
    if not declared:
        raise InvalidName(
            f"no table of the warehouse {warehouse} is declared here: declare one by warehouse_table, or by "
            "`warehouses` of a TopicsComponent or a FeedAssetComponent."
        )
    if unknown := sorted({*names} - {*declared}):
        raise InvalidName(f"{unknown[0]!r} has no table in {warehouse}: expected one of {', '.join(sorted(declared))}.")
    chosen = [declared[name] for name in names or declared]
    datasets = [each.dataset for each in chosen if isinstance(each, LoadedDataset)]
    tables = [each for each in chosen if isinstance(each, LoadedTopic)]
    unions = [each for each in chosen if isinstance(each, LoadedUnion)]
    sources: dict[str, TableSource] = {}
    if names_of_topics := [*(each.topic for each in tables), *(topic for each in unions for topic in each.topics)]:
        topics = wanted_topics(graph, [*dict.fromkeys(names_of_topics)])
        for each in tables:
            rules = topics[each.topic]
            sources[each.name] = TopicHistory(each.topic, rules) if each.is_history else rules
        for each in unions:
            rules_by_topic = {topic: topics[topic] for topic in each.topics}
            sources[each.name] = TopicUnion(rules_by_topic, each.topic_in_key, each.is_history)
    if datasets:
        services = open_services(graph, makes=False)
        sources |= {str(feed): DatasetUpdates(feed, services.ledger, services.board_of(feed)) for feed in datasets}
    return sources


def _refusing(sources: "TableSources") -> "TableSources":
    """Return the topics, histories, unions and datasets, where topics refuse rows that would stop their table."""
    from feed_assets.core.topic_unions import TopicUnion
    from feed_assets.core.topics import Topic, TopicHistory

    def refusing(rules: Topic) -> Topic:
        return rules.model_copy(update={"conflicts": "refuse"} if rules.conflicts == "stop" else {})

    refused: dict[str, TableSource] = {}
    for name, each in sources.items():
        if isinstance(each, TopicHistory):
            refused[name] = TopicHistory(each.topic, refusing(each.rules))
        elif isinstance(each, TopicUnion):
            refused[name] = replace(each, topics={topic: refusing(rules) for topic, rules in each.topics.items()})
        else:
            refused[name] = refusing(each) if isinstance(each, Topic) else each
    return refused


def _print(changes: list[ChangeView], as_json: bool) -> None:
    if as_json:
        show(changes, as_json)
        return
    for each in changes:
        echo(f"-- {each.topic}, schema {each.schema_id}")
        for statement in each.statements:
            echo(f"{statement};")
    if not changes:
        echo("no table changes", err=True)


def _refusal(table: str, error: FeedAssetsError) -> ChangeView:
    return ChangeView(topic=table, schema_id=None, problem=str(error))


def _changes(target: "Target", sources: "TableSources", table: str) -> Iterator[ChangeView]:
    from feed_assets.warehouse.loader import follower

    with nullcontext() if target.engine.absence() else target.engine.open() as connection:
        table_follower = follower(connection, target, "", table, sources[table])
    for each in table_follower.plan():
        yield ChangeView(topic=table, schema_id=each.state.schema_id, statements=each.statements)


@contextmanager
def _target(name: str, sources: "TableSources", *, adds_topics: bool = False) -> "Generator[Target]":
    """Yield a warehouse by its name.

    If a table is or may be loaded from a topic, also open Kafka and the blackboard with the chunks.
    """
    from feed_assets.kafka import check_installed
    from feed_assets.warehouse.dataset import DatasetUpdates
    from feed_assets.warehouse.target import Target

    setting = settings().warehouse(name)
    if not adds_topics and all(isinstance(each, DatasetUpdates) for each in sources.values()):
        yield Target(name, setting)
        return
    check_installed()
    from feed_assets.runs.chunking import chunking_of
    from feed_assets.warehouse.table import Loading

    chunking = chunking_of(settings())
    with closing(chunking.schemas):
        yield Loading(name, setting, chunking.clients, chunking.schemas, chunking.board)

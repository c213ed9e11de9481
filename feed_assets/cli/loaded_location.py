"""The code location that a command works on, and this home's Dagster instance."""

import os
import shutil
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from filelock import FileLock, Timeout

from feed_assets.cli.project import loading, module_of_project
from feed_assets.core.errors import FeedAssetsError, HomeBusy, InvalidDefinition, InvalidName, InvalidSetting
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from collections.abc import Generator

    import dagster as dg
    from dagster.components.definitions import LazyDefinitions

    from feed_assets.ledger.database import Ledger
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.runs.services import Services

START_SECONDS = 60
"""Seconds that a process waits for another process that is starting in the same home."""

Module = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--module",
        metavar="MODULE",
        help="Module with the Dagster definitions; by default that of pyproject.toml.",
    ),
]


def load(module: str | None) -> "dg.Definitions":
    """Return the definitions of a module, by default of the project's. Raise ModuleNotLoaded if it has a mistake."""
    import dagster as dg

    name = module or module_of_project()[0]
    with loading(name):
        defined = declared(name)
        definitions = defined if isinstance(defined, dg.Definitions) else defined()
        definitions.resolve_asset_graph()
    return definitions


def declared(module: str) -> "dg.Definitions | LazyDefinitions[dg.Definitions]":
    """Return a module's `Definitions`, or its function with `@dg.definitions`. The module need not be installed."""
    import dagster as dg
    from dagster.components.definitions import LazyDefinitions

    folders = [Path.cwd()]
    with suppress(InvalidSetting):  # If a module is named, no project is needed.
        folders.append(module_of_project()[1])
    reach(*folders)
    values: list[Any] = list(vars(import_module(module)).values())
    candidates: list[Any] = [each for each in values if isinstance(each, (dg.Definitions, LazyDefinitions))]
    if len(candidates) != 1:
        raise InvalidDefinition(f"module {module} has {len(candidates)} Definitions: expected exactly one.")
    return candidates[0]


def reach(*folders: Path) -> None:
    """Let Python find modules in these folders, after the installed ones.

    `python -m` and Dagster put such folders first. A file in such a folder may then hide a library.
    """
    sys.path[:] = dict.fromkeys([*sys.path, *map(str, folders)])


def load_graph(module: str | None) -> "Graph":
    """Return the graph of the feeds and tables in a module's definitions."""
    from feed_assets.orchestration.decide.graph import Graph

    return Graph(load(module).resolve_asset_graph())


def partition_of(feed: str, typed: str, module: str | None = None) -> Partition:
    """Return the partition that a user typed. Load a module only for a key in the UI's form (`men|2019-11-24`)."""
    if "|" not in typed:
        return Partition(Feed.parse(feed), typed)
    try:
        node = load_graph(module).node(Feed.parse(feed))
    except FeedAssetsError as error:
        raise InvalidName(
            f"{typed!r} is a key in the UI's form. The order of its parts in a path is known only from the definitions "
            f"of {feed} "
            f"({error}) Write the path, such as 2019-11-24/men."
        ) from error
    from feed_assets.orchestration.decide.typed_keys import path_of

    return Partition(node.feed, path_of(node, typed))


def open_services(graph: "Graph | None" = None, *, makes: bool = True) -> "Services":
    """Open blackboard, ledger and Spark of the settings, and the other blackboards that a graph's feeds use.

    Without a graph, feeds are searched on our own named blackboards. `makes` creates a missing blackboard or ledger.
    Commands that only read do not set `makes`.
    """
    from feed_assets.runs.services import Services, elsewhere_of
    from feed_assets.settings import settings

    _look_at_home(makes=makes)
    elsewhere = graph.elsewhere if graph else elsewhere_of(settings())
    return Services.of(settings(), elsewhere=elsewhere, makes=makes)


def _look_at_home(*, makes: bool) -> None:
    """Warn if other users can read the home, before a command writes into it."""
    from feed_assets.home import home, say_who_enters

    if makes and home().is_dir():
        say_who_enters(home())


def ledger_of_settings(*, makes: bool = True) -> "Ledger":
    """Open the ledger of the settings for a command that needs nothing else.

    With `makes`, create the ledger if it is missing.
    """
    from feed_assets.ledger.database import found_ledger, open_ledger
    from feed_assets.settings import make_board, settings

    _look_at_home(makes=makes)
    if not makes:
        return found_ledger(settings().ledger)
    make_board(settings())  # A later reader, such as `explain`, needs the blackboard, too.
    return open_ledger(settings().ledger)


def open_instance() -> "dg.DagsterInstance":
    """Open this home's Dagster instance. Create it if it is missing. This process prints the output of its runs.

    By default, Dagster starts four processes for each run to capture the output, and copies the captured output to this
    process. Ctrl-C also reaches these processes, which then print stack traces.
    """
    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    from feed_assets.home import home

    ref = InstanceRef.from_dir(str(prepare(home())))
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    nothing = {"module_name": "dagster._core.storage.noop_compute_log_manager", "class_name": "NoOpComputeLogManager"}
    captured = ref.compute_logs_data._replace(**nothing, config_yaml="{}")
    return dg.DagsterInstance.from_ref(ref._replace(compute_logs_data=captured))


def found_instance(folder: Path) -> "dg.DagsterInstance | None":
    """Open a home's Dagster instance as it is. Return None if the home has no instance."""
    if not (folder / "dagster.yaml").exists():
        return None
    import dagster as dg

    os.environ["DAGSTER_HOME"] = str(folder)
    return dg.DagsterInstance.get()


@contextmanager
def dynamic_partitions(graph: "Graph") -> "Generator[None]":
    """Read dynamic partitions from Dagster's instance. There are none if Dagster's home does not exist."""
    import dagster as dg

    from feed_assets.home import home
    from feed_assets.orchestration.declare.partitions import by_dimension

    parts = [part for node in graph.by_feed.values() for part in by_dimension(node.partitions_def).values()]
    if not any(isinstance(part, dg.DynamicPartitionsDefinition) for part in parts):
        yield
        return
    is_there = (home() / "dagster.yaml").exists()
    opened = open_instance() if is_there else dg.DagsterInstance.ephemeral()  # pyright: ignore[reportUnknownMemberType]
    with opened as instance, dg.partition_loading_context(dynamic_partitions_store=instance):
        yield


DAGSTERS = ("history", "schedules", "storage")
"""Folders of the home that Dagster would make readable for everybody, although a run's output may show rows."""


def prepare(folder: Path, patience: float = START_SECONDS) -> Path:
    """Make the home folder, with our dagster.yaml if it has none. Set DAGSTER_HOME for all processes started here.

    Dagster's tables are made here, too, by one process at a time. Two processes at once would leave two schema versions
    in Dagster's SQLite database, permanently. If a process was killed while it made the tables, Dagster itself
    completes them. An existing home keeps its permissions, and a warning is printed if other users can read it. Raise
    HomeBusy if another process works here for more than `patience` seconds.
    """
    import dagster as dg

    from feed_assets.home import OWNED, make_home, say_who_enters

    make_home(folder)
    say_who_enters(folder)
    os.environ["DAGSTER_HOME"] = str(folder)
    with _alone(folder, patience):
        if not (yaml := folder / "dagster.yaml").exists():
            yaml.with_suffix(".new").touch(OWNED)
            shutil.copyfile(Path(__file__).with_name("dagster.yaml"), yaml.with_suffix(".new"))
            yaml.with_suffix(".new").rename(yaml)
        for name in DAGSTERS:
            (folder / name).mkdir(0o700, exist_ok=True)
        with dg.DagsterInstance.get():
            pass
    return folder


@contextmanager
def _alone(folder: Path, patience: float) -> "Generator[None]":
    lock = FileLock(folder / ".lock", timeout=patience, mode=0o600)
    try:
        with lock:
            yield
    except Timeout:
        raise HomeBusy(
            f"{folder}: another process has been starting here for over {patience} s: expected about a second. End "
            f"it (`fuser {folder / '.lock'}` shows its id), then try again."
        ) from None

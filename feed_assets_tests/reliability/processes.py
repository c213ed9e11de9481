"""Processes of the world: each is forked, sees the time of the schedule, and may be killed at one of its changes."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import dagster as dg
from pydantic import SecretStr

import feed_assets
from feed_assets.cli.explain import _decided
from feed_assets.cli.loaded_location import open_instance, open_services
from feed_assets.cli.receive import pushed_feeds
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.warehouses import Warehouse
from feed_assets.feeds.store_clients import ObstoreClient
from feed_assets.feeds.stores import local_root
from feed_assets.intake import authentication
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.serve import serve
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.execute.makers import make_with
from feed_assets.orchestration.runner import Runner
from feed_assets.runs import services
from feed_assets.settings import settings
from feed_assets.warehouse import loader
from feed_assets.warehouse.dataset import DatasetUpdates
from feed_assets.warehouse.target import Target
from feed_assets_tests.reliability import clock, reports, shop, wrong
from feed_assets_tests.reliability.making import WorldMaker
from feed_assets_tests.support import speedups
from feed_assets_tests.support.kill_points import die_at

LOADS = "WHOLE_LOADS"
"""The environment variable with which this module loads everything that forks need."""
LOCATIONS = {"shop": shop.definitions, "reports": reports.definitions}

OF_DAGSTER = (
    "dagster._core.execution.execute_in_process",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.storage.migration.utils",
    "dagster._core.storage.noop_compute_log_manager",
    "dagster._core.storage.root",
    "dagster._core.system_config.composite_descent",
)
_NOT_NEEDED = ("feed_assets.cli.demo", "feed_assets.defs")


def load_everything() -> None:
    """Import what processes need, and build both code locations: otherwise each fork would need seconds for it."""
    for module in walk_packages(feed_assets.__path__, "feed_assets."):
        if not module.name.startswith(_NOT_NEEDED):
            with suppress(ImportError):  # An extra is not installed.
                import_module(module.name)
    for name in ("pandas", "pyarrow.dataset", "pyspark.sql", "upath.implementations.local", *OF_DAGSTER):
        import_module(name)
    speedups.prepare()
    os.environ["FEED_ASSETS_DATA_CENTERS"] = '{"b": {"url": "file:///b", "datasets": ["*"]}}'  # so each has `replicate`
    for definitions in LOCATIONS.values():
        for code in shop.CODES:
            definitions(code).get_repository_def()


REQUESTS = ("list", "children", "get", "head", "put", "put_chunks", "delete")


@dataclass(frozen=True)
class Life:
    """The time at which a process begins, the change at which it is killed, and the file for its last words."""

    begins: datetime
    dies_at: int | None = None
    words: Path | None = None


def live(life: Life, work: Callable[..., object], *arguments: object) -> None:
    """Do some work in this forked process, and write its result."""
    _print_to(Path(os.environ["WHOLE_LOG"]))
    clock.start_at(life.begins)
    settings.cache_clear()
    wrong.be_wrong(os.environ.get(wrong.VARIANT, ""))
    if life.dies_at:
        _die_at(life.dies_at)
    result = work(*arguments)
    if life.words:
        life.words.write_text(json.dumps(result))


def _die_at(number: int) -> None:
    """Kill this process before a change of this number, or, if the blackboard is on S3, before a request."""
    count_one = die_at(number, board := local_root(settings().blackboard))
    for name in REQUESTS if board is None else ():
        setattr(ObstoreClient, name, _counted(getattr(ObstoreClient, name), count_one))


def _counted(request: Callable[..., object], count_one: Callable[[], None]) -> Callable[..., object]:
    def counted(*arguments: object, **options: object) -> object:
        count_one()
        return request(*arguments, **options)

    return counted


def _print_to(path: Path) -> None:
    with path.open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)


def tick(location: str, times: int) -> int:
    """Evaluate the sensors and conditions of a code location so often, and run what they request."""
    return _driving(location, lambda runner: sum(runner.tick() for _ in range(times)))


def until_idle(location: str) -> int:
    """Evaluate and run until nothing is left to do. Return the number of ticks."""
    return _driving(location, lambda runner: runner.run_until_idle(60))


def build(location: str, feed: str, *partitions: str) -> int:
    """Run some partitions as the web UI does, one after the other. Return the number of runs that succeeded."""
    graph = Graph(LOCATIONS[location](shop.code()).resolve_asset_graph())
    outputs = graph.dataset_of(Feed.parse(feed)).outputs
    requests = [dg.RunRequest(partition_key=each, asset_selection=outputs) for each in partitions]
    return _driving(location, lambda runner: sum(runner.execute(each).success for each in requests))


def load(path: str) -> int:
    """Load the new updates of `clean` into a DuckDB file. Return the number of loads."""
    feed, found = Feed.parse(shop.CLEAN), services.Services.of(settings())
    target = Target("main", Warehouse(url=SecretStr(f"duckdb://{path}")))
    return loader.once(target, {str(feed): DatasetUpdates(feed, found.ledger, found.board)})


def add_key(feed: str) -> str:
    """Make a partner's API key for a feed, and return it."""
    return authentication.add(services.Services.of(settings()).ledger, "men", [feed], services.utc_now())


def receive(spool: str, port: int) -> None:
    """Run a receiver until it gets a signal, as `feed-assets receive` does."""
    graph = Graph(LOCATIONS["reports"](shop.code()).resolve_asset_graph())
    serve(Calls(open_services(graph)), pushed_feeds(graph), Path(spool), "127.0.0.1", port)


def explain(location: str, feed: str, partition: str) -> dict[str, str]:
    """Return what `feed-assets explain` shows of a partition."""
    graph = Graph(LOCATIONS[location](shop.code()).resolve_asset_graph())
    output = Partition(Feed.parse(feed), partition)
    view = _decided(graph, open_services(graph, makes=False), graph.dataset_of(output.feed), output)
    return {"state": view.state, "reason": view.reason}


def run_count() -> int:
    """Return the number of Dagster's runs."""
    with open_instance() as instance:
        return instance.get_runs_count()


def _driving(location: str, drive: Callable[[Runner], int]) -> int:
    with open_instance() as instance:
        make_with(instance, WorldMaker())
        runner = Runner(LOCATIONS[location](shop.code()), instance, now=services.utc_now)
        runner._release_dead_runs()
        return drive(runner)


if os.environ.get(LOADS):
    load_everything()

"""`feed-assets doctor`: check everything that runs need, print one line for each thing, and what to do."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from feed_assets.cli.compute_log_looks import look_at_compute_logs
from feed_assets.cli.data_center_looks import PROBES, DataCenterLooks, probe
from feed_assets.cli.kafka_looks import KafkaLooks
from feed_assets.cli.loaded_location import Module, found_instance, load_graph
from feed_assets.cli.queue_looks import Doubtful, QueueLooks
from feed_assets.cli.show import View, show
from feed_assets.cli.target_looks import TargetLooks
from feed_assets.cli.warehouse_looks import WarehouseLooks
from feed_assets.core.errors import SparkUnavailable, in_short
from feed_assets.core.secrets import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.settings import Settings

FREE_BYTES = 1 << 30
CLOCK_SECONDS = 5
"""The largest allowed difference between clocks, in seconds. Update ids and event times come from several clocks."""

OK, WARN, FAILED = "ok", "WARN", "FAILED"


class Diagnosis(View):
    """The result of one check, and what to do."""

    what: str
    state: str
    said: str


def doctor(
    module: Module = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check Java, Spark, blackboard, ledger, home, module, Kafka, warehouses, targets, clocks, disks; say what to do.

    The exit code is 1 if a check failed. No folder is made. A few bytes are written to the blackboard, the data centers
    and the store of runs' output, and removed.
    """
    from feed_assets.settings import settings

    results = [_looked(subject, look) for subject, look in _Doctor(settings(), module).looks()]
    show(results, as_json)
    raise typer.Exit(1 if any(each.state == FAILED for each in results) else 0)


def _looked(subject: str, look: Callable[[], str]) -> Diagnosis:
    """Return the outcome of a check. Turn an error into a failed check, so that the other checks still run."""
    try:
        return Diagnosis(what=subject, state=OK, said=look())
    except Doubtful as doubt:
        return Diagnosis(what=subject, state=WARN, said=str(doubt))
    except Exception as error:  # noqa: BLE001
        return Diagnosis(what=subject, state=FAILED, said=in_short(error))


@dataclass(frozen=True)
class _Doctor:
    """The checks of `feed-assets doctor`. Each check returns what it found as text, or raises an error."""

    settings: "Settings"
    module: str | None

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        return (
            ("Java", self.java),
            ("Spark", self.spark),
            ("blackboard", self.blackboard),
            ("blackboard by Spark", self.blackboard_by_spark),
            *(
                (f"blackboard {name}", partial(self.other, name))
                for name in self.settings.blackboards.get_secret_value()
            ),
            *DataCenterLooks(self.settings, self._own_boards).looks(),
            *QueueLooks(self.settings).looks(),
            ("ledger", self.ledger),
            ("Dagster's home", self.home),
            ("Dagster's daemon", self.daemon),
            ("output of runs", lambda: look_at_compute_logs(self._home)),
            ("module", self.definitions),
            *KafkaLooks(self.settings, self.module).looks(),
            *WarehouseLooks(self.settings).looks(),
            *TargetLooks(self.settings).looks(),
            ("clocks", self.clocks),
            ("disks", self.disks),
        )

    def java(self) -> str:
        from feed_assets.spark.java import java

        return "not needed here: Spark is a Connect server" if self.settings.spark_remote else java()

    def spark(self) -> str:
        remote = self.settings.spark_remote
        where = masked(remote.get_secret_value()) if remote else self.settings.spark_master
        return f"Spark {self._session.version} ({where})"

    def blackboard(self, own: "Blackboard | None" = None) -> str:
        return probe(own or self._board)

    def blackboard_by_spark(self, own: "Blackboard | None" = None) -> str:
        from feed_assets.spark.urls import spark_path

        board, prefix = own or self._board, f"{PROBES}/{uuid4().hex}"
        path = spark_path(board.url, prefix)
        try:
            spark = self._session
        except SparkUnavailable as error:
            raise Doubtful("not checked, because Spark is not available.") from error
        try:
            spark.range(1).write.parquet(path)
            rows, files = spark.read.parquet(path).count(), board.files(prefix)
        finally:
            board.sweep(prefix)
        if rows != 1 or not files:
            raise Doubtful(
                f"{path}: Spark wrote one row, but {rows} rows and {len(files)} files are found: are these two "
                "different stores?"
            )
        return f"{path.removesuffix('/' + prefix)}: Spark wrote a row and read it, and both see the same files"

    def other(self, name: str) -> str:
        """Look at a named blackboard as at the default one if it is ours. Write nothing to that of another team."""
        from feed_assets.feeds.opened import open_board

        board = open_board(self.settings, name=name)
        if self.settings.place(name).writable:
            return f"{self.blackboard(board)}; {self.blackboard_by_spark(board)}"
        board.page("")
        return f"{board.url}: can be listed"

    def ledger(self) -> str:
        from feed_assets.ledger.database import schema_of

        if (file := self._ledger_file) and not file.exists():
            raise Doubtful(f"{file} does not exist yet: the first command that needs this file makes it.")
        schema, newest = schema_of(self.settings.ledger)
        if schema != newest:
            raise Doubtful(
                f"its schema is {schema or 'empty'}, this version has {newest}: the next command upgrades it."
            )
        return f"schema {schema}, writable"

    def home(self) -> str:
        folder = self._home
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} is not writable: give this user write access, or set DAGSTER_HOME.")
        if not (folder / "dagster.yaml").exists():
            raise Doubtful(f"{folder} has no dagster.yaml: `feed-assets run` and `ui` make one.")
        return str(folder)

    def daemon(self) -> str:
        from feed_assets.orchestration.runner import alive_daemons

        if (opened := found_instance(self._home)) is None:
            raise Doubtful("the daemon has never run here.")
        with opened as instance:
            alive = alive_daemons(instance)
        return "runs" if alive else "does not run: here, `feed-assets run` does the daemon's work"

    def definitions(self) -> str:
        from feed_assets.orchestration.declare.declarations import EventTable
        from feed_assets.sources.sinks import check_place

        graph = load_graph(self.module)
        for sink in self.settings.events_to:
            check_place(sink.get_secret_value(), graph.on_blackboard())
        for name in graph.elsewhere.values():
            self.settings.place(name)
        for node in graph.tables():
            if isinstance(node.declaration, EventTable) and node.declaration.loaded:
                self.settings.warehouse(node.declaration.loaded.warehouse)
        nodes_by_kind = {"datasets": graph.datasets(), "tables": graph.tables(), "foreign feeds": graph.foreign()}
        return ", ".join(f"{len(nodes)} {kind}" for kind, nodes in nodes_by_kind.items() if nodes) or "none"

    def clocks(self) -> str:
        apart = {name: abs((other - own).total_seconds()) for name, (own, other) in self._clocks().items()}
        listed = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in apart.items()) or "no other clock can be read"
        if any(seconds > CLOCK_SECONDS for seconds in apart.values()):
            raise Doubtful(
                f"differences from this machine's clock: {listed}. Set the clocks by NTP: update ids are times."
            )
        return f"differences from this machine's clock: {listed}"

    def disks(self) -> str:
        folders = [folder for folder in (self._home_or_parent, self._local_board) if folder and folder.exists()]
        free = {folder: shutil.disk_usage(folder).free for folder in folders}
        listed = ", ".join(f"{room / 2**30:.1f} GB at {folder}" for folder, room in free.items())
        if any(room < FREE_BYTES for room in free.values()):
            raise Doubtful(
                f"free: {listed}. Make room: on a full disk runs stop without using an attempt, and nothing continues."
            )
        return f"free: {listed}"

    def _clocks(self) -> dict[str, tuple[datetime, datetime]]:
        """Return pairs of this machine's time and another clock's time, keyed by the name of the other clock.

        Clocks that cannot be read are left out.
        """
        from feed_assets.ledger.database import clock_of
        from feed_assets.runs.services import utc_now

        clocks: dict[str, tuple[datetime, datetime]] = {}
        with suppress(Exception):  # The check of the blackboard reports this error.
            board, prefix = self._board, f"{PROBES}/{uuid4().hex}"
            board.put(f"{prefix}/clock", b"probe")
            try:
                clocks["blackboard"] = (utc_now(), board.last_write(prefix) or utc_now() - timedelta(days=1))
            finally:
                board.sweep(prefix)
        with suppress(Exception):  # The check of the ledger reports this error.
            if self._ledger_file is None:
                clocks["ledger"] = (utc_now(), clock_of(self.settings.ledger))
        return clocks

    @cached_property
    def _session(self) -> "SparkSession":
        from feed_assets.spark.jvm import hide_banner
        from feed_assets.spark.session import session

        hide_banner()
        self.java()
        return session(self.settings)

    @cached_property
    def _board(self) -> "Blackboard":
        from feed_assets.feeds.blackboard import Blackboard

        board = self._local_board
        if board and not board.exists() and "blackboard" not in self.settings.model_fields_set:
            raise Doubtful(f"{board} does not exist yet: the first publication makes it.")
        return Blackboard.open(self.settings.blackboard, endpoint=self.settings.s3_endpoint)

    def _own_boards(self) -> list["Blackboard"]:
        from feed_assets.feeds.opened import open_board

        return [self._board, *(open_board(self.settings, name=name) for name in self.settings.own_places if name)]

    @property
    def _home(self) -> Path:
        from feed_assets.home import home

        if not home().is_dir():
            raise Doubtful(f"{home()} does not exist yet: `feed-assets run` and `ui` make it, or set DAGSTER_HOME.")
        return home()

    @property
    def _home_or_parent(self) -> Path:
        from feed_assets.home import home

        return next(folder for folder in (home(), *home().parents) if folder.is_dir())

    @property
    def _local_board(self) -> Path | None:
        from feed_assets.feeds.stores import local_root

        return local_root(self.settings.blackboard)

    @property
    def _ledger_file(self) -> Path | None:
        from feed_assets.ledger.database import file_of

        return file_of(self.settings.ledger)

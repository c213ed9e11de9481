"""The loader of one warehouse: it reads signals and the ledger's log, and loads new data until it is stopped.

A session begins with the state in the state tables. After any failure or kill, a new session begins in the same way. If
one table cannot continue, only that table stops, and the state tables get the reason. Only one loader has the lease.
"""

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from threading import Event
from time import monotonic, sleep, time
from uuid import uuid4

from feed_assets.core.errors import (
    FeedAssetsError,
    LeaseHeld,
    LedgerUnavailable,
    LoadFailed,
    ServiceUnavailable,
    TableBusy,
    WarehouseBusy,
    WarehouseTaken,
    in_short,
)
from feed_assets.core.message_words import shortened
from feed_assets.core.topic_unions import TopicUnion
from feed_assets.core.topics import Topic, TopicHistory
from feed_assets.heartbeats import Beat, Figures, no_beat
from feed_assets.home import say
from feed_assets.warehouse import dataset_state, load_state, loader_tables, snapshots, union_state
from feed_assets.warehouse.dataset import DatasetTable, DatasetUpdates
from feed_assets.warehouse.dataset_state import Mark
from feed_assets.warehouse.engines import Connection
from feed_assets.warehouse.follower import Follower
from feed_assets.warehouse.lease import RENEW_SECONDS
from feed_assets.warehouse.load_progress import LoadProgress
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.target import Target

_logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two checks for new signals and updates."""

LEASE_SECONDS = 3 * RENEW_SECONDS
"""Seconds without a renewal after which a loader loses its lease."""

SAY_SECONDS = 60.0
"""Seconds between two progress lines."""

_NAMED = 10
"""The most tables that one line of output lists."""

NEWER_SECONDS = 10.0
"""Seconds between two looks for new topics in the ledger."""

AGAIN_SECONDS = 60.0
"""Seconds after which a table is tried again if another transaction has locked it."""

BUSY_SECONDS = 600.0
"""Seconds for which `once` waits for another process that has the warehouse open."""

PAUSES = (1.0, 60.0)
"""Seconds to wait after the first failure, and the longest wait. Each further failure doubles the wait."""


TableSource = Topic | TopicHistory | TopicUnion | DatasetUpdates

TableSources = Mapping[str, TableSource]
"""Topics, histories, unions and datasets to load, by table name."""


def follower(connection: Connection | None, loading: Target, holder: str, name: str, source: TableSource) -> Follower:
    """Return the table `name` in its stored state. `connection` is None if the warehouse does not exist yet."""
    exists = connection and load_state.exists(connection, loading.engine)
    state = load_state.read(connection, name) if connection and exists else TopicState()
    if connection and state.shape:
        loader_tables.refuse_others(connection, loading.engine, name)
    if isinstance(source, DatasetUpdates):
        mark = dataset_state.mark(connection, loading.engine, name) if connection else Mark()
        return DatasetTable(loading, holder, source, state, mark)
    # Import this module here, because it needs Kafka's packages, which a dataset does not need.
    from feed_assets.warehouse.table import Loading, TopicTable
    from feed_assets.warehouse.union_table import UnionTable

    if not isinstance(loading, Loading):
        raise TypeError(f"{name} is a topic: expected a `Loading`, which has the place of its chunks.")
    union_state.check_kind(name, state, is_union=isinstance(source, TopicUnion))
    is_open = bool(connection and exists and snapshots.is_open(connection, loading.engine, name))
    if isinstance(source, TopicUnion):
        return UnionTable(loading, holder, name, source, state, has_open_snapshot=is_open)
    return TopicTable(loading, holder, name, source, state, has_open_snapshot=is_open)


def _has_markers(source: Topic | TopicHistory | TopicUnion) -> bool:
    """Return whether messages of a topic, or of a union's topics, mark snapshots."""
    if isinstance(source, TopicUnion):
        return any(each.snapshot_markers for each in source.topics.values())
    rules = source.rules if isinstance(source, TopicHistory) else source
    return rules.snapshot_markers is not None


def run(
    loading: Target,
    sources: TableSources,
    stopping: Event,
    pauses: tuple[float, float] = PAUSES,
    clock: Callable[[], float] = monotonic,
    beat: Beat = no_beat,
    newer: Callable[[], TableSources] | None = None,
) -> None:
    """Load topics and datasets until `stopping` is set. Wait for unavailable services.

    The loader calls `beat` while it loads, but not while it waits for a service. `newer` is called every
    NEWER_SECONDS, and returns all topics and datasets to load now: the loader begins those that are new.

    If another loader has the lease, wait until the lease is over: a supervisor starts a loader again at once after a
    kill. Raise WarehouseTaken if the other one gives a sign of life meanwhile, or takes the lease later.

    For topics, `loading` must be a `Loading`. A test can control time by `stopping.wait` and `clock`. If all tables
    have stopped, raise the error of the table that stopped first.
    """
    lease_holder, pause, last_sign = holder(), pauses[0], None
    tables = f"loads {counted(len(sources), 'table')}: {shortened([*sources], _NAMED)}"
    say(f"warehouse {loading.name}: {tables if sources else 'waits for topics that match a pattern'}")
    while not stopping.is_set():
        session = LoaderSession(loading, sources, lease_holder, clock, newer)
        try:
            session.run(stopping, beat)
        except LeaseHeld as error:
            if last_sign not in (None, error.last_sign):
                raise  # The other loader lives: it has given a sign of life since.
            if last_sign is None:
                say(f"warehouse {loading.name}: waits for the lease of a loader that may be gone: {error}")
            last_sign = error.last_sign
            stopping.wait(LOOK_SECONDS)
        except ServiceUnavailable as error:
            pause = pauses[0] if session.loads else pause
            say(f"warehouse {loading.name}: waits {pause:g} s, then tries again: {error}", level="warning")
            stopping.wait(pause)
            pause = min(2 * pause, pauses[1])
        sources = session.sources


def once(
    loading: Target,
    sources: TableSources,
    pauses: tuple[float, float] = PAUSES,
    clock: Callable[[], float] = monotonic,
    wait: Callable[[float], None] = sleep,
) -> int:
    """Load all present data, without waiting for more. Return the number of loads.

    Wait up to `BUSY_SECONDS` for a warehouse that another process has open. If a table stops or is busy, load the other
    tables, and then raise its error. Raise other ServiceUnavailable errors and WarehouseTaken at once.
    """
    lease_holder, pause, loads, until = holder(), pauses[0], 0, clock() + BUSY_SECONDS
    while True:
        session = LoaderSession(loading, sources, lease_holder)
        try:
            session.once()
        except WarehouseBusy as error:
            if clock() >= until:
                raise
            say(f"warehouse {loading.name}: waits {pause:g} s, then tries again: {error}", level="warning")
            wait(pause)
            loads, pause = loads + session.loads, min(2 * pause, pauses[1])
        else:
            return loads + session.loads


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def holder() -> str:
    """Return a unique name for a holder of the lease."""
    return f"process {os.getpid()} of {socket.gethostname()} ({uuid4().hex[:8]})"


def _unexpected(name: str, error: Exception) -> LoadFailed:
    """Return the error that stops a table after an exception that is not one of ours."""
    failed = LoadFailed(f"{name} cannot be loaded: {in_short(error)}. Look at its newest schema, and at the log.")
    failed.__cause__ = error
    return failed


class LoaderSession:
    """A session of the loader, from start to end."""

    def __init__(
        self,
        loading: Target,
        sources: TableSources,
        holder: str,
        clock: Callable[[], float] = monotonic,
        newer: Callable[[], TableSources] | None = None,
    ) -> None:
        self._loading, self.sources, self._holder, self._clock = loading, sources, holder, clock
        self._newer, self._next_newer = newer, clock()
        self._tables: dict[str, Follower] = {}
        self._stopped: dict[str, FeedAssetsError] = {}
        self._busy: dict[str, tuple[float, TableBusy]] = {}
        """Tables that another transaction has locked: the time of the next attempt, and the error."""
        self._renewed = self._reported = self._loaded_at = 0.0
        self._reported_loads = 0

    @property
    def loads(self) -> int:
        """Return the number of committed loads."""
        return sum(each.loads for each in self._tables.values())

    def run(self, stopping: Event, beat: Beat = no_beat) -> None:
        """Load until `stopping` is set. Raise the error that ends the session earlier."""
        with self._begun():
            while (not self.sources or len(self._stopped) < len(self.sources)) and not stopping.is_set():
                self._begin_newer()
                loads, is_behind = self.loads, self._look()
                self._loaded_at = time() if self.loads > loads else self._loaded_at
                self._say(self._clock())
                beat(self._figures)
                if not is_behind:
                    stopping.wait(LOOK_SECONDS)
        if not stopping.is_set():
            raise next(iter(self._stopped.values()))

    def _begin_newer(self) -> None:
        """Open the tables of new topics. If the ledger does not answer, the present tables do not wait for it."""
        if self._newer is None or self._clock() < self._next_newer:
            return
        self._next_newer = self._clock() + NEWER_SECONDS
        try:
            sources = {name: each for name, each in self._newer().items() if name not in self.sources}
        except LedgerUnavailable as error:
            say(f"warehouse {self._loading.name}: looks for new topics again in {NEWER_SECONDS:g} s: {error}")
            return
        if sources:
            self.sources = {**self.sources, **sources}
            say(f"warehouse {self._loading.name}: also loads {shortened([*sources], _NAMED)}")
            self._each(self._begin, sources)

    def _figures(self) -> Figures:
        """Return the numbers for the loader's heartbeat. A time of 0 means that nothing was loaded yet."""
        topics = [each.progress for each in self._tables.values()]
        last = max(topics, key=lambda each: each.loaded_at, default=LoadProgress())
        return {
            "loads_total": self.loads,
            "records_total": sum(each.records for each in topics),
            "load_latency_seconds": last.latency,
            "unloaded_since_timestamp_seconds": min([each.since for each in topics if each.since], default=0.0),
            "tables": len(self.sources),
            "tables_stopped": len(self._stopped),
            "chunks_waiting": sum(each.waiting for each in self._tables.values()),
            "last_load_timestamp_seconds": self._loaded_at,
        }

    def _look(self) -> bool:
        """Load into each table the data that are due. Return True if a table has more to read now."""
        behind = set[str]()

        def look(name: str) -> None:
            if self._tables[name].look(self._clock()):
                behind.add(name)

        self._each(look)
        return bool(behind)

    def once(self) -> None:
        """Load all present data. If tables stop on errors, load the other tables first, then raise the first error."""
        with self._begun():
            self._each(lambda name: self._tables[name].load_all())
        if len(self._stopped) > 1:
            named = shortened([*self._stopped], _NAMED)
            say(f"warehouse {self._loading.name}: {len(self._stopped)} tables have stopped: {named}")
        for error in (*self._stopped.values(), *(error for _, error in self._busy.values())):
            raise error

    @contextmanager
    def _begun(self) -> Generator[None]:
        """Take the lease, and open the tables. Release the lease at the end of the block."""
        engine = self._loading.engine
        with engine.open() as connection:
            load_state.prepare(connection, engine)
            load_state.take(connection, engine, self._holder, LEASE_SECONDS)
        try:
            self._renewed = self._reported = self._clock()
            self._each(self._begin)
            yield
        finally:
            self._release()

    def _begin(self, name: str) -> None:
        """Open a table of the warehouse, to continue from the state that its last load stored."""
        source, engine = self.sources[name], self._loading.engine
        with engine.open() as connection:
            self._tables[name] = follower(connection, self._loading, self._holder, name, source)
            if isinstance(source, DatasetUpdates):
                dataset_state.prepare(connection, engine)
            elif _has_markers(source):
                snapshots.prepare(connection, engine)

    def _release(self) -> None:
        """Release the lease for the next loader. Only print a failure: raising it could hide an earlier error."""
        try:
            with self._loading.engine.open() as connection:
                load_state.release(connection, self._holder)
        except FeedAssetsError as error:
            say(
                f"warehouse {self._loading.name}: the next loader must wait {LEASE_SECONDS:g} s, because the lease "
                f"could not be released: {error}"
            )

    def _each(self, work: Callable[[str], None], names: Iterable[str] | None = None) -> None:
        """Call `work` for each table that has not stopped. After a table was locked, skip it for AGAIN_SECONDS."""
        for name in [each for each in names or self.sources if each not in self._stopped]:
            try:
                if name in self._busy:
                    if self._clock() < self._busy[name][0]:
                        continue
                    self._begin(name)
                    del self._busy[name]
                work(name)
            except TableBusy as error:
                self._busy[name] = self._clock() + AGAIN_SECONDS, error
                say(f"warehouse {self._loading.name}: loads {name} in {AGAIN_SECONDS:g} s, and the others now: {error}")
            except (ServiceUnavailable, WarehouseTaken):
                raise
            except FeedAssetsError as error:
                self._stop(name, error)
            except Exception as error:  # A schema, a chunk or a driver may raise anything.
                _logger.exception("%s failed", name)
                self._stop(name, _unexpected(name, error))
            self._renew()

    def _stop(self, name: str, error: FeedAssetsError) -> None:
        """Continue without a table, and store the reason. Raise WarehouseTaken if another loader has the lease now."""
        self._stopped[name] = error
        say(f"warehouse {self._loading.name}: does not load {name} any more: {error}", level="error")
        try:
            with self._loading.engine.open() as connection:
                connection.execute("BEGIN")
                load_state.renew(connection, self._loading.engine, self._holder)
                load_state.note(connection, name, str(error))
                connection.execute("COMMIT")
        except LoadFailed as refused:
            say(f"warehouse {self._loading.name}: its state tables could not record why {name} has stopped: {refused}")

    def _say(self, now: float) -> None:
        if now < self._reported + SAY_SECONDS:
            return
        seconds, loads, waiting = now - self._reported, self.loads, sum(each.waiting for each in self._tables.values())
        say(
            f"warehouse {self._loading.name}: {counted(len(self.sources), 'table')}, in {seconds:.0f} s "
            f"{counted(loads - self._reported_loads, 'load')}; {waiting:,} chunks wait"
        )
        self._reported, self._reported_loads = now, loads
        for error in self._stopped.values():
            say(f"warehouse {self._loading.name}: a table has stopped: {error}", level="error")

    def _renew(self) -> None:
        if self._clock() >= self._renewed + RENEW_SECONDS:
            with self._loading.engine.open() as connection:
                load_state.renew(connection, self._loading.engine, self._holder)
            self._renewed = self._clock()

"""A source and a place, with a ledger and a clock that only the test moves."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.retention import Retention
from feed_assets.core.setting_types import DataCenter
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import event_store
from feed_assets.ledger.database import Ledger
from feed_assets.replication import replica_tasks
from feed_assets.replication.comparison import Difference, compare, feeds_of, repair
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.places import Place
from feed_assets.replication.replicator import Replicated, replicate
from feed_assets.replication.turn import LASTS, Turn
from feed_assets.runs.prune import prune
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync, sync_one

SALES = Feed.parse("shop/sales/v1.0")
AT_B = Feed.parse("shop/sales@b/v1.0")
REJECTS = Feed.parse("shop/sales_rejects/v1.0")
DAY = Partition(SALES, "2026-01-31")
START = datetime(2026, 2, 1, 3, tzinfo=UTC)
FILES = {"part-0.csv": b"id\n1\n", "part-1.csv": b"id\n2\n"}
OTHER = {"part-0.csv": b"id\n7\n8\n", "part-1.csv": b"id\n9\n"}

Content = dict[str, bytes]


class Killed(BaseException):
    """The end of a process."""


def stop(step: str, at: str | None, error: BaseException | None = None) -> None:
    """Raise an error at one step: by default the end of the process."""
    if step == at:
        raise error or Killed


class Clock:
    """A time that only `pass_` moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **time: float) -> None:
        self.now += timedelta(**time)


def _no_maker() -> Any:
    raise AssertionError("nothing is made")


def place_on(board: Blackboard, name: str = "b", **options: Any) -> Place:
    """Return a data center that gets all of `shop`."""
    return Place(name, DataCenter(**{"url": "file:///b", "datasets": ("shop/*",), **options}), board)


@dataclass
class Ends:
    """A source, a place, and what a test does at both."""

    source: Blackboard
    place: Place
    ledger: Ledger
    clock: Clock = field(default_factory=Clock)
    on_step: Callable[[str], None] = lambda _: None

    @property
    def services(self) -> Services:
        return Services(self.source, self.ledger, _no_maker, now=self.clock, on_step=lambda step: self.on_step(step))

    def publish(self, partition: Partition = DAY, files: Mapping[str, bytes] = FILES) -> Update:
        """Publish an update at the source, which the ledger knows at once."""
        self.clock.pass_(seconds=1)
        update = write.publish(self.source, partition, files, self.clock())
        sync(self.source, self.ledger, partition, self.clock())
        return update

    def rewrite(self, update: Update, files: Mapping[str, bytes]) -> None:
        """Let the owner of an update write it again under its id, which the ledger does not know yet."""
        for name, data in files.items():
            self.source.put(f"{update.path}/{name}", data)
        self.source.put(f"{update.path}/_SUCCESS", str(len(files)).encode())

    def invalidate(self, update: Update) -> None:
        write.invalidate(self.source, update.partition, update.id)
        sync_one(self.source, self.ledger, update.partition, update.id, self.clock())

    def prune(self, partition: Partition = DAY, keep: int = 1) -> None:
        prune(self.services, partition, Retention(keep=keep), apply=True)

    def replicate(self, place: Place | None = None) -> Replicated:
        return replicate(self.services, place or self.place)

    def stalled(self, when: str, meanwhile: Callable[[], object]) -> None:
        """Replicate. At a step, let another process take over, and call `meanwhile`; then go on without the turn."""
        stalls = [when]

        def on_step(step: str) -> None:
            if step in stalls:
                stalls.clear()
                self.clock.pass_(seconds=2 * LASTS.total_seconds())
                meanwhile()

        self.on_step = on_step
        self.replicate()
        self.on_step = lambda _: None

    def stopped_at(self, step: str, error: BaseException | None = None) -> None:
        """Replicate until a step, where the process is killed, or gets an error."""
        self.on_step = lambda each: stop(each, step, error)
        with suppress(Killed):
            self.replicate()
        self.on_step = lambda _: None
        self.clock.pass_(seconds=2 * LASTS.total_seconds())

    def settle(self, place: Place | None = None) -> Replicated:
        """Replicate until nothing waits, also for another try."""
        for _ in range(100):
            self.clock.pass_(minutes=10)
            result = self.replicate(place)
            if not self.waiting(place):
                return result
        raise AssertionError(f"still waiting: {self.waiting(place)[0].error}")

    def waiting(self, place: Place | None = None) -> list[replica_tasks.ReplicaTask]:
        with self.ledger.read() as connection:
            return replica_tasks.waiting(connection, (place or self.place).name)

    def with_place(self, **options: Any) -> "Ends":
        """Return the same ends with other options of the place."""
        return replace(self, place=place_on(self.place.board, **options))


def visible(board: Blackboard, partition: Partition = DAY) -> tuple[str, Content] | None:
    """Return what a reader gets of a partition: the newest valid update's id and its files."""
    update = read.latest(board, partition).update
    return (update.id, content(board, update)) if update else None


def content(board: Blackboard, update: Update) -> Content:
    return {file.key.removeprefix(f"{update.path}/"): board.get(file.key) or b"" for file in update.files}


def history(board: Blackboard, partition: Partition = DAY) -> dict[str, Content]:
    """Return every valid update of a partition."""
    return {each.id: content(board, each) for each in read.history(board, partition) if isinstance(each, Update)}


class Wire:
    """A client that counts the bytes that are sent, and can change or refuse what is sent or read."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.sent, self.operations = 0, list[str]()
        self.on_chunk: Callable[[str, bytes], bytes] = lambda _key, chunk: chunk
        self.before: Callable[[str, str], object] = lambda _operation, _key: None

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._client, name)

        def passed(*arguments: Any, **options: Any) -> Any:
            self._note(name, arguments[0] if arguments else "")
            return called(*arguments, **options)

        return passed if callable(called) else called

    def put_chunks(self, key: str, chunks: Any, /, part: int | None) -> str:
        self._note("put_chunks", key)
        return self._client.put_chunks(key, (self._sent(key, bytes(each)) for each in chunks), part)

    def _note(self, name: str, key: object) -> None:
        self.operations.append(name)
        self.before(name, str(key))

    def _sent(self, key: str, chunk: bytes) -> bytes:
        self.sent += len(chunk)
        return self.on_chunk(key, chunk)


def wired(board: Blackboard) -> tuple[Blackboard, Wire]:
    """Return a second view of a blackboard through a wire."""
    view, wire = copy(board), Wire(board._client)
    view._client = wire  # type: ignore[assignment]
    return view, wire


def overwrite(board: Blackboard, key: str, data: bytes) -> None:
    """Change the bytes of an object as a bad disk does: on local disk its size, inode and time stay."""
    if board._root is None:
        board.put(key, data)
        return
    path = board._root / key
    status = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def differences(ends: Ends, **options: Any) -> list[Difference]:
    return [*compare(ends.services, ends.place, feeds_of(ends.services, ends.place), **options)]


def repaired(ends: Ends) -> list[str]:
    """Repair all differences, and return their kinds."""
    turn = Turn(ends.ledger, ends.place.name, ends.clock)
    turn.take_or_raise()
    kinds = list[str]()
    try:
        for each in differences(ends):
            repair(CopyEnds(ends.services, ends.place, turn), each)
            kinds.append(each.kind)
    finally:
        turn.end()
    return kinds


def events_of(ledger: Ledger, table: Feed = AT_B) -> list[tuple[str, str]]:
    """Return the marker and the operation of each event of a table, oldest first."""
    with ledger.read() as connection:
        return [(each.marker, each.operation) for each in reversed(event_store.newest(connection, 100, table))]

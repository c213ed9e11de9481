"""A receiver for tests: in this process behind a real socket, or as a process that can be killed."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests

from feed_assets.core.feeds import Feed
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.intake import authentication
from feed_assets.intake.api import Door
from feed_assets.intake.authentication import Keys, Rates
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.metrics import Metrics
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.receiver import Receiver
from feed_assets.intake.serve import server_of
from feed_assets.intake.spool import Spool
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import Services

MEN, WOMEN = "partners/men/v1.0", "partners/women/v1.0"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 12, 30, tzinfo=UTC)
SCHEMA = "id string, at timestamp, n int"
LINES, ARRAY = {"Content-Type": "application/x-ndjson"}, {"Content-Type": "application/json"}
SERVED = Path(__file__).with_name("receiver_process.py")


def pushed(name: str = MEN, **changes: Any) -> PushedFeed:
    return PushedFeed(Feed.parse(name), **{"schema": SCHEMA, "event_time": "at", "first": FIRST, **changes})


FEEDS = {name: pushed(name) for name in (MEN, WOMEN)}


def no_spark():
    raise AssertionError("intake needs no Spark")


def event(number: int, at: str = "2026-01-02T11:00:00Z") -> dict[str, object]:
    return {"id": str(number), "at": at, "n": number}


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in events)


def door_of(board: Blackboard, ledger, folder: Path, **changes: Any) -> Door:
    """Return a receiver for the two feeds, with a clock that stands still."""
    values = {"now": lambda: NOW, "rate": 1e6, **changes}
    services = Services(board, ledger, no_spark, values["now"], values.get("on_step", lambda _: None))
    spool, calls = Spool(folder), Calls(services, values.get("sources", {}), values.get("polled", {}))
    receiver = Receiver(services, values.get("feeds", FEEDS), spool, timedelta(hours=24))
    return Door(receiver, Keys(ledger), Rates(values["rate"]), Metrics(spool), calls)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class Partner:
    """A client that pushes events to a receiver."""

    url: str
    key: str
    patience: float = 30
    """Seconds until it stops waiting for an answer."""

    def post(self, data: Any, feed: str = MEN, headers: Mapping[str, str] = LINES):
        return self.call(f"/v1/{feed}/events", data, headers)

    def call(self, path: str, data: Any = b"", headers: Mapping[str, str] = LINES):
        named = {"Authorization": f"Bearer {self.key}", **headers}
        return requests.post(f"{self.url}{path}", data=data, headers=named, timeout=self.patience)

    def get(self, path: str):
        return requests.get(f"{self.url}{path}", timeout=30)


@contextmanager
def listening(door: Door, flush_seconds: float = 3600, scopes: Sequence[str] = (MEN,)) -> Generator[Partner]:
    """Run a receiver behind a socket, in a thread; it flushes at the end."""
    port, ledger = free_port(), door.receiver.services.ledger
    key = authentication.add(ledger, "men", scopes, door.receiver.services.now())
    server = server_of(door, "127.0.0.1", port, flush_seconds)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the receiver did not start"
            time.sleep(0.01)
        yield Partner(f"http://127.0.0.1:{port}", key)
    finally:
        server.should_exit = True
        thread.join()


def published(board: Blackboard, feed: str = MEN) -> list[dict[str, Any]]:
    """Return every event that readers of the blackboard see, in no order."""
    found = list[dict[str, Any]]()
    for hour in board.children(feed):
        for update in batch_set.latest(board, read.Partition(Feed.parse(feed), hour)).updates:
            for file in update.files:
                content = board.get(file.key, file.size + 1) or b""
                found += map(json.loads, content.splitlines())
    return found


def numbers(events: Iterable[Mapping[str, Any]]) -> list[int]:
    return sorted(each["n"] for each in events)


@dataclass
class Process:
    """A receiver as a process of its own, with the real clock."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Wait until the receiver answers."""
        for _ in range(3000):
            assert self.process.poll() is None, "the receiver has ended"
            try:
                if requests.get(f"http://127.0.0.1:{self.port}/health", timeout=5).ok:
                    return
            except (requests.ConnectionError, requests.Timeout):
                time.sleep(0.01)
        raise AssertionError("the receiver does not answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def started(home: Path, spool: Path, port: int, *more: str, within: Sequence[str] = ()) -> Process:
    """Start a receiver with the home's ledger and the settings' blackboard; `within` is a command that wraps it."""
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    command = [*within, sys.executable, str(SERVED), str(spool), str(port), *more]
    return Process(home, port, subprocess.Popen(command, env=environment))


def partner_of(home: Path, port: int) -> Partner:
    ledger = open_ledger(f"sqlite:///{home / 'ledger.db'}")
    return Partner(f"http://127.0.0.1:{port}", authentication.add(ledger, "men", [MEN], datetime.now(UTC)))

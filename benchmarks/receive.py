"""The receiver against a bare uvicorn route that writes the same bytes to disk, with the same group commit.

The measure is CPU of the two servers: events per second on one core. `python -m benchmarks.receive` runs one of them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import requests
import uvicorn

from benchmarks import Benchmark, Goal, Pair, at_home
from feed_assets.cli.processes import Started, free_port, group, wait_for_port
from feed_assets.core.feeds import Feed
from feed_assets.intake import authentication
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.group_commit import Together
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.serve import serve
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import Services
from feed_assets.settings import settings

FEED = "partners/men/v1.0"
SCHEMA = "impression_id string, shown_at timestamp, item_id int, price double, campaign string"
REQUESTS, CLIENTS = 300, 8


def body(events: int) -> bytes:
    """Return a request with `events` events of the last hours, about 150 bytes each."""
    now = datetime.now(UTC)
    return b"".join(
        json.dumps(
            {
                "impression_id": f"impression-{number:012}",
                "shown_at": (now - timedelta(seconds=37 * number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "item_id": number,
                "price": number / 7,
                "campaign": "men",
            }
        ).encode()
        + b"\n"
        for number in range(events)
    )


def bare(folder: Path, port: int) -> None:
    """Serve a route that appends its input to a file, and answers once it is synced."""
    file = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append(group: Sequence[bytes]) -> list[None]:
        os.write(file, b"".join(group))
        os.fdatasync(file)
        return [None] * len(group)

    together = Together(append)

    async def route(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        if scope["type"] != "http":
            return
        pieces, more = list[bytes](), True
        while more:
            message = await receive()
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        await together(b"".join(pieces))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"accepted": 100, "rejected": 0, "reasons": []}'})

    uvicorn.run(route, host="127.0.0.1", port=port, log_level="warning", access_log=False, lifespan="off")


def receiver(folder: Path, port: int) -> None:
    """Serve the receiver, which publishes later."""
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
    feeds = {FEED: PushedFeed(Feed.parse(FEED), SCHEMA, "shown_at", first)}
    serve(Calls(Services.of(settings())), feeds, folder / "spool", "127.0.0.1", port)


def sent(port: int, key: str, data: bytes) -> None:
    """Send the requests over all connections at once."""

    def send(number: int) -> None:
        with requests.Session() as session:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
            for _ in range(number, REQUESTS, CLIENTS):
                session.post(f"http://127.0.0.1:{port}/v1/{FEED}/events", data, headers=headers).raise_for_status()

    with ThreadPoolExecutor(CLIENTS) as pool:
        _ = [*pool.map(send, range(CLIENTS))]


_servers: list[psutil.Process] = []


def cpu() -> float:
    """Return CPU seconds of the two servers, one of which is idle."""
    return sum(sum(server.cpu_times()[:2]) for server in _servers)


@contextmanager
def served(name: str, folder: Path) -> Iterator[tuple[int, Started]]:
    """Run one of the two servers in a separate process."""
    port = free_port()
    command = [sys.executable, "-P", "-m", "benchmarks.receive", name, str(folder), str(port)]
    with group(name, command, folder / f"{name}.log") as server:
        wait_for_port(server, port)
        _servers.append(psutil.Process(server.process.pid))
        yield port, server


@contextmanager
def against_a_bare_route(events: int) -> Iterator[Pair]:
    """Run both servers, with an unlimited key; the receiver publishes nothing meanwhile."""
    with TemporaryDirectory() as root, at_home(Path(root)):
        folder = Path(root)
        (folder / "blackboard").mkdir()
        os.environ |= {"FEED_ASSETS_RECEIVER_FLUSH_SECONDS": "86400", "FEED_ASSETS_RECEIVER_FLUSH_BYTES": str(1 << 40)}
        os.environ["FEED_ASSETS_RECEIVER_EVENTS_PER_SECOND"] = "1e9"
        key = authentication.add(open_ledger(settings().ledger), "men", [FEED], datetime.now(UTC))
        data = body(events)
        _servers.clear()
        with served("receiver", folder) as (mine, _), served("bare", folder) as (floor, _):
            yield Pair(lambda: sent(mine, key, data), lambda: sent(floor, key, data))


def _benchmark(name: str, events: int, goal: float) -> Benchmark:
    return Benchmark(
        name,
        f"CPU of the receiver for {REQUESTS} requests of {events} events, {CLIENTS} connections",
        "that of a bare route of uvicorn with the same bytes and syncs",
        Goal(goal),
        10,
        5,
        partial(against_a_bare_route, events),
        clock=cpu,
    )


BENCHMARKS = [_benchmark("receive-10", 10, 1.5), _benchmark("receive", 100, 2)]

if __name__ == "__main__":
    {"receiver": receiver, "bare": bare}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))

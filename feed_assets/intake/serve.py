"""The process of a receiver: uvicorn before it, and behind it the flushes."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.failures import failing_alone
from feed_assets.home import say
from feed_assets.intake.api import Door, app_of
from feed_assets.intake.calls import Calls
from feed_assets.intake.flush import flush_all
from feed_assets.intake.keys import Keys, Rates
from feed_assets.intake.metrics import Metrics
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.receiver import Receiver
from feed_assets.intake.spool import Spool
from feed_assets.settings import settings

HEAD_SECONDS = 10
"""Seconds in which a connection has to send the head of a request."""

CONNECTIONS = 1000
"""Connections at a time: what comes beyond is told to come again."""

LOOK_SECONDS = 1.0
"""From one look at what can be flushed to the next; after a failure up to a minute."""

_LONGEST_PAUSE = 60.0


class PatientOnlySoLong(HttpToolsProtocol):
    """Ends a connection whose client sends no head of a request: it would be one of `CONNECTIONS` for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Wait no longer: the application has a time of its own for the body."""
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


def serve(calls: Calls, feeds: Mapping[str, PushedFeed], spool: Path, host: str, port: int) -> None:
    """Take events for these feeds until a signal. Raises HomeBusy (of the spool) and InvalidSetting (of the port)."""
    with _listening(host, port) as found:
        door = door_of(calls, feeds, spool)
        receiver = door.receiver.spool.receiver
        say(f"receiver {receiver} takes events at http://{host}:{port}/v1/FEED/events; /docs describes them")
        say(f"pushed to: {', '.join(sorted(feeds)) or 'no feed'}")
        server_of(door, host, port, settings().receiver_flush_seconds).run([found])


def _listening(host: str, port: int) -> socket:
    """A socket that listens, before anything is said or spooled."""
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        raise InvalidSetting(
            f"nothing can listen at {host}:{port} ({error}): choose another --port or --host."
        ) from error


def door_of(calls: Calls, feeds: Mapping[str, PushedFeed], spool: Path) -> Door:
    """A receiver by the settings. Raises HomeBusy where another one has the spool."""
    config, kept = settings(), Spool(spool, settings().receiver_flush_bytes)
    receiver = Receiver(calls.services, feeds, kept, timedelta(hours=config.event_hours_ahead))
    keys, rates = Keys(calls.services.ledger), Rates(config.receiver_events_per_second)
    return Door(receiver, keys, rates, Metrics(kept), calls)


def server_of(door: Door, host: str, port: int, flush_seconds: float) -> uvicorn.Server:
    """A server that takes events until a signal, and then flushes what it has."""
    return uvicorn.Server(
        uvicorn.Config(
            app_of(door, _living(door, flush_seconds)),
            host=host,
            port=port,
            http=PatientOnlySoLong,
            log_level="warning",
            access_log=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=30,
            server_header=False,
        )
    )


def _living(door: Door, flush_seconds: float) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncGenerator[None]:
        """Before the first request keys and spool are known; after the last one all is flushed, or left for later."""
        await asyncio.to_thread(door.keys.load)
        await asyncio.to_thread(door.receiver.recover)
        ending = asyncio.Event()
        loading = asyncio.create_task(door.keys.keep_loading())
        flushing = asyncio.create_task(_keep_flushing(door, flush_seconds, ending))
        try:
            yield
        finally:
            loading.cancel()
            ending.set()
            await flushing
            door.receiver.spool.close()

    return living


async def _keep_flushing(door: Door, seconds: float, ending: asyncio.Event) -> None:
    """Flush what is old or large enough, and at the end all; a look that failed makes the next one wait longer."""
    pause, is_last = LOOK_SECONDS, False
    while not is_last:
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), pause)
        is_last = ending.is_set()  # It may be set during a look, too: then one more comes.
        await asyncio.to_thread(_look, door, 0 if is_last else seconds)
        pause = min(2 * pause, _LONGEST_PAUSE) if door.problem else LOOK_SECONDS


def _look(door: Door, seconds: float) -> None:
    """Whatever fails is said and tried again: if it ended the task, nobody would flush any more."""
    problems = dict[str, str]()
    with failing_alone(problems, "the spool"):
        door.problem = _flushed(door, seconds)
    door.problem = problems.get("the spool", door.problem)


def _flushed(door: Door, seconds: float) -> str:
    """Why something waits; '' if nothing does."""
    spool = door.receiver.spool
    spool.seal(older_than=seconds)
    if not (segments := spool.sealed()):
        return ""
    problem = flush_all(door.receiver, segments)
    door.metrics.flushes.labels("failed" if problem else "published").inc()
    return problem

"""The process of a receiver: uvicorn for its requests, and flushes in the background."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.isolation import failing_alone
from feed_assets.home import say
from feed_assets.intake import connections
from feed_assets.intake.api import Door, app_of
from feed_assets.intake.authentication import Keys, Rates
from feed_assets.intake.connections import Admission, BoundedHttp
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.flush import LARGE, flush_all
from feed_assets.intake.metrics import Metrics
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.receiver import Receiver
from feed_assets.intake.spool import Spool
from feed_assets.settings import settings

LOOK_SECONDS = 1.0
"""Seconds between two checks for segments to flush. After failures, the pause grows to a minute."""

_LONGEST_PAUSE = 60.0

OBJECTS_AT_A_TIME = 50_000
"""New objects after which Python's garbage collector runs. With the default of 700, parsing takes ten times longer."""


def serve(calls: Calls, feeds: Mapping[str, PushedFeed], spool: Path, host: str, port: int) -> None:
    """Run a receiver for these feeds until the process gets a signal to stop.

    Raise HomeBusy if another receiver uses the spool, and InvalidSetting if the port cannot be used.
    """
    gc.set_threshold(OBJECTS_AT_A_TIME)
    with _listening(host, port) as listener:
        door = door_of(calls, feeds, spool)
        receiver = door.receiver.spool.receiver
        say(f"receiver {receiver} takes events at http://{host}:{port}/v1/FEED/events; /docs describes them")
        say(f"feeds that take events: {', '.join(sorted(feeds)) or 'none'}")
        server_of(door, host, port, settings().receiver_flush_seconds).run([listener])


def _listening(host: str, port: int) -> socket:
    """Return a listening socket. Raise InvalidSetting if the port cannot be used."""
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        raise InvalidSetting(
            f"nothing can listen at {host}:{port} ({error}): choose another --port or --host."
        ) from error


def door_of(calls: Calls, feeds: Mapping[str, PushedFeed], spool: Path) -> Door:
    """Return a receiver with the limits in the settings. Raise HomeBusy if another receiver uses the spool."""
    config, kept = settings(), Spool(spool, settings().receiver_flush_bytes)
    receiver = Receiver(calls.services, feeds, kept, timedelta(hours=config.event_hours_ahead))
    keys, rates = Keys(calls.services.ledger), Rates(config.receiver_events_per_second)
    return Door(receiver, keys, rates, Metrics(kept), calls)


def server_of(door: Door, host: str, port: int, flush_seconds: float) -> uvicorn.Server:
    """Return a server that takes events until the process gets a signal to stop, and then flushes all events."""
    config = uvicorn.Config(
        app := app_of(door, _living(door, flush_seconds)),
        host=host,
        port=port,
        ws="none",
        log_level="warning",
        access_log=False,
        limit_concurrency=connections.CONNECTIONS,
        timeout_graceful_shutdown=30,
        server_header=False,
    )
    proxies = ProxyHeadersMiddleware(cast(Any, app), config.forwarded_allow_ips).trusted_hosts
    config.http = cast(Any, partial(BoundedHttp, Admission(proxies, door.log)))
    return uvicorn.Server(config)


def _living(door: Door, flush_seconds: float) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncGenerator[None]:
        """Load keys and spool before the first request. Flush all events after the last request.

        Events that cannot be flushed stay in the spool for the next start.
        """
        await asyncio.to_thread(door.keys.load)
        await asyncio.to_thread(door.receiver.recover)
        ending = asyncio.Event()
        loading = asyncio.create_task(door.keys.keep_loading(door.log))
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
    """Flush segments that are old or large enough. At the end, flush all. Wait longer after a failure."""
    pause, is_last = LOOK_SECONDS, False
    while not is_last:
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), pause)
        is_last = ending.is_set()  # If `ending` is set during a flush, one last flush follows.
        await asyncio.to_thread(_look, door, 0 if is_last else seconds)
        pause = min(2 * pause, _LONGEST_PAUSE) if door.problem else LOOK_SECONDS


def _look(door: Door, seconds: float) -> None:
    """Flush old segments. Keep a failure in `door.problem`. Raising it would end the task that flushes."""
    problems = dict[str, str]()
    with failing_alone(problems, "the spool"):
        door.problem = _flushed(door, seconds)
    door.problem = problems.get("the spool", door.problem)
    door.log.write_counts()


def _flushed(door: Door, seconds: float) -> str:
    """Seal a segment that is `seconds` old, and flush sealed segments.

    Return why a segment could not be flushed, or ''. At the end of the process, `seconds` is 0: all segments are
    flushed, without a limit.
    """
    spool = door.receiver.spool
    spool.seal(older_than=seconds)
    if not (segments := spool.sealed()):
        return ""
    problem = flush_all(door.receiver, segments, LARGE if seconds else None)
    door.metrics.flushes.labels("failed" if problem else "published").inc()
    return problem

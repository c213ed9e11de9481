"""Code servers whose code has crashed are started again.

Dagster's code server is a process that passes each request on to a child process, which has the code. Dagster does not
replace a child that has crashed, so all sensors of its code location would stop.
"""

import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.remote_origin import CodeLocationOrigin, GrpcServerCodeLocationOrigin
from dagster._grpc.client import DagsterGrpcClient

LOOK_SECONDS = 5.0
"""Seconds between two checks of each code server."""

_LONGEST_PAUSE = 60.0
"""Seconds after which code that crashes at each start is tried again."""

_LOAD_SECONDS = 180
"""Seconds in which a code server must have loaded its code. This is Dagster's own limit for a start."""

_NO_CHILD = "StatusCode.UNAVAILABLE"
"""A word of the parent's error if it cannot reach its child."""

_LOG = logging.getLogger("feed_assets")


@contextmanager
def kept_alive(origins: Sequence[CodeLocationOrigin]) -> Generator[None]:
    """Start crashed code servers again until the block ends."""
    ended = threading.Event()
    looks = [
        threading.Thread(target=_keep_alive, args=(each, ended), daemon=True)
        for each in origins
        if isinstance(each, GrpcServerCodeLocationOrigin)
    ]
    for each in looks:
        each.start()
    try:
        yield
    finally:
        ended.set()


def _keep_alive(origin: GrpcServerCodeLocationOrigin, ended: threading.Event) -> None:
    """Start a code server again each time when it has worked and then crashed.

    Code that does not work just after its start is not tried again, because it would most probably crash at each try.
    Code that works after its start, but crashes before the next look, is tried again after a pause that grows.
    """
    client, has_worked, pause = origin.create_client(), False, LOOK_SECONDS
    while not ended.wait(pause):
        if _answers(client):
            has_worked, pause = True, LOOK_SECONDS
        elif has_worked and _has_crashed(client):
            _LOG.warning("the code server of %s has crashed, and starts again: see its log", origin.location_name)
            with suppress(DagsterUserCodeUnreachableError):  # Dagster also tries to end the crashed process.
                client.reload_code(_LOAD_SECONDS)
            has_worked, pause = _answers(client), min(2 * pause, _LONGEST_PAUSE)


def _answers(client: DagsterGrpcClient) -> bool:
    try:
        client.ping("")
    except DagsterUserCodeUnreachableError:
        return False
    return True


def _has_crashed(client: DagsterGrpcClient) -> bool:
    """Return whether a code server's parent process answers, and cannot reach its child."""
    try:
        client.heartbeat()
        client.ping("")
    except DagsterUserCodeUnreachableError as error:
        return _NO_CHILD in str(error.__cause__)
    return False

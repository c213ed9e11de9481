"""Time limits for calls of servers that may answer very slowly, or never."""

import socket
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from threading import Thread, Timer
from typing import Any, Protocol, TypeVar

_LOOK_SECONDS = 0.05
"""Seconds between two checks of the time."""

_OVER = "the time is over"

_Result = TypeVar("_Result")


class Opened(Protocol):
    """A connection that a call has opened. While it is connected, it has a socket."""

    sock: socket.socket | None


def in_time(
    call: Callable[[], _Result], is_over: Callable[[], bool], opened: Sequence[Opened] | None = None
) -> _Result:
    """Return the result of a call, or raise its error. When time is over, close its connections and raise TimeoutError.

    `opened` is the list to which the call adds each connection. No call starts once the time is over. So a series of
    quick calls shares one limit. A call runs in a thread, because a socket's timeout applies to each single read, and
    DNS lookups have no timeout. The thread ends when it reads a closed socket, and its result is dropped.
    """
    if is_over():
        raise TimeoutError(_OVER)
    outcome: Future[_Result] = Future()
    Thread(target=_settle, args=(outcome, call), daemon=True).start()
    while not wait([outcome], _LOOK_SECONDS).done:
        if is_over():
            if opened is not None:
                Thread(target=_shut_all, args=(outcome, opened), daemon=True).start()
            raise TimeoutError(_OVER)
    return outcome.result()


def _shut_all(outcome: "Future[_Result]", opened: Sequence[Opened]) -> None:
    """Shut the connections of a call until the call ends. A connection may open after the time is over."""
    while True:
        for each in [*opened]:
            shut(each.sock)
        if wait([outcome], _LOOK_SECONDS).done:
            return


def _settle(outcome: "Future[_Result]", call: Callable[[], _Result]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  The caller's thread raises it.
        outcome.set_exception(error)


@contextmanager
def ended_after(seconds: float, end: Callable[[], object]) -> Generator[None]:
    """Call `end` from another thread if the block takes longer than `seconds`."""
    limit = Timer(seconds, end)
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def shut(opened: socket.socket | None) -> None:
    """Shut a connection down for every thread that waits on it."""
    with suppress(OSError):  # It is closed already.
        if opened:
            opened.shutdown(socket.SHUT_RDWR)


def noting(kind: type[_Result], opened: list[Opened]) -> type[_Result]:
    """Return a subclass of a connection class whose instances add themselves to `opened` before they connect."""
    base: Any = kind

    class Noting(base):
        def connect(self, *args: Any, **options: Any) -> Any:
            opened.append(self)
            return base.connect(self, *args, **options)

    return Noting

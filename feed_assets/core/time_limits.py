"""Calls of servers that may answer a byte a second, or never: the caller proceeds when the time is over."""

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import Any, Protocol, TypeVar

_LOOK_SECONDS = 0.05
"""Seconds between two checks whether the time is over."""

_Result = TypeVar("_Result")


class Opened(Protocol):
    """A connection that a call has opened: it has a socket while it is connected."""

    sock: socket.socket | None


def in_time(call: Callable[[], _Result], is_over: Callable[[], bool], opened: Sequence[Opened]) -> _Result:
    """Return or raise what a call does. Once the time is over, close what it `opened` and raise TimeoutError.

    The call runs in a thread: a socket's timeout is for each single read, and DNS has none. The thread ends when it
    reads the closed socket; its outcome is dropped.
    """
    outcome: Future[_Result] = Future()
    Thread(target=_settle, args=(outcome, call), daemon=True).start()
    while not wait([outcome], _LOOK_SECONDS).done:
        if is_over():
            for each in opened:
                shut(each.sock)
            raise TimeoutError("the time is over")
    return outcome.result()


def _settle(outcome: "Future[_Result]", call: Callable[[], _Result]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  The caller's thread raises it.
        outcome.set_exception(error)


def shut(opened: socket.socket | None) -> None:
    """End a connection for every thread that waits on it."""
    with suppress(OSError):  # It is closed already.
        if opened:
            opened.shutdown(socket.SHUT_RDWR)


def noting(kind: type[_Result], opened: list[Opened]) -> type[_Result]:
    """Return a subclass of this kind of connection that lists itself in `opened` before it connects."""
    base: Any = kind

    class Noting(base):
        def connect(self, *args: Any, **options: Any) -> Any:
            opened.append(self)
            return base.connect(self, *args, **options)

    return Noting

"""The immediate and orderly end of a command by Ctrl-C, whatever Dagster and Spark do with signals meanwhile.

Both replace our signal handlers during a run, and Dagster swallows signals between two steps. So signals are counted in
a socket: Python writes every signal to it, whichever handler is installed.
"""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from feed_assets.cli.terminal import echo

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_SAME_REQUEST_SECONDS = 0.5
"""Seconds in which a repeated signal is not a second Ctrl-C: `timeout` and `uv run` pass a signal on once more."""


@dataclass
class _Signals:
    """The signals that have arrived, as read from one end of a socket. Only signals in `handled` count."""

    inbox: socket.socket
    handled: Collection[int]
    first: int | None = None
    _began: float = 0
    _has_raised: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> bool:
        """Record arrived signals. Return whether more can arrive. A second Ctrl-C ends the process at once.

        Any thread may call this. If several do, only one of them gets an arrived signal.
        """
        with self._lock, suppress(BlockingIOError):
            came = self.inbox.recv(100)
            for number in came:
                if number in self.handled:  # The socket also gets signals of other handlers, such as an alarm.
                    self._note(number)
            return came != b""
        return True

    def _note(self, number: int) -> None:
        if self.first is None:
            self.first, self._began = number, time.monotonic()
        elif time.monotonic() > self._began + _SAME_REQUEST_SECONDS:
            os._exit(128 + number)

    def watch(self) -> None:
        """Record signals when they arrive, until no more can arrive."""
        while select.select([self.inbox], [], []) and self.look():
            pass

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt for the first signal only: a repeated signal would interrupt the clean-up."""
        if not self._has_raised:
            self._has_raised = True
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Generator[Callable[[], None]]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP end the block. The command's exit code is 128 plus the signal's number.

    A second signal ends the process at once. Yield a function that raises KeyboardInterrupt if a signal arrived. Call
    this function where the block could continue, such as after each run: Dagster may turn an interrupt into a failed
    run, or drop it.
    """
    with _signals() as signals:

        def check() -> None:
            signals.look()
            if signals.first is not None:
                raise KeyboardInterrupt

        try:
            yield check
            check()
        except BaseException:  # The interrupt may have become another error.
            signals.look()
            if signals.first is None:
                raise
            _end(signals.first)


def _end(number: int) -> NoReturn:
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    with suppress(OSError):  # The terminal may be gone.
        explanation = "partitions in progress are not published, finished ones stay"
        echo(f"stopped by {name}: {explanation}. Run the command again to continue.", err=True)
    raise SystemExit(128 + number)


@contextmanager
def _signals() -> Generator[_Signals]:
    """Yield a count of the stop signals that this process gets.

    The first signal raises KeyboardInterrupt, unless other code has replaced our handler.
    """
    inbox, outbox = socket.socketpair()
    for end in (inbox, outbox):
        end.setblocking(False)
    handlers = {number: signal.getsignal(number) for number in _STOP}
    ignored = {number for number, handler in handlers.items() if handler is signal.SIG_IGN}
    before = {number: handler for number, handler in handlers.items() if number not in ignored}
    # `nohup`, and a shell that starts a background process, let the process ignore signals. Spark and Dagster would
    # handle these signals nevertheless, so the ignored signals are blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, ignored)
    signals = _Signals(inbox, before)
    fd = signal.set_wakeup_fd(outbox.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=signals.watch, daemon=True)
    watcher.start()
    try:
        for number in before:
            signal.signal(number, signals.interrupt)
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ignored)
        signal.set_wakeup_fd(fd)
        outbox.close()
        watcher.join()
        inbox.close()

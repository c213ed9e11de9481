"""Answers of a store of others: each comes in time, or is an error, and who left one out is not asked again at once.

A partner may never answer, or send a byte every few seconds: no timeout of a socket ends that. So a thread asks, and
whoever waits for it goes on after ANSWER_SECONDS. Without the pause, each tick would wait so long for each feed.
"""

from collections.abc import Callable
from functools import cache
from threading import Event
from time import monotonic
from typing import TypeVar

from feed_assets.core.time_limits import in_time

ANSWER_SECONDS = 10.0
"""Seconds for one answer, with its retries: a listing, or the head of an object. A body has its own time."""

AGAIN_SECONDS = 60.0
"""Seconds for which a store is not asked again after an answer that did not come."""

T = TypeVar("T")


class Answers:
    """The requests to one store, from all threads of this process."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._until = float("-inf")
        self._ended = Event()
        """Set when the last request that was left behind has ended."""
        self._ended.set()

    def within(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, or raise its error. Raise OSError after ANSWER_SECONDS, and at once until then.

        At most the threads that asked at the same time are left behind: while one still waits, nobody asks again.
        """
        if not self._ended.is_set() or self._now() < self._until:
            raise OSError(f"it did not answer within {ANSWER_SECONDS:g} s, and is asked again in a minute or later")
        ended, over = Event(), self._now() + ANSWER_SECONDS

        def answer() -> T:
            try:
                return ask()
            finally:
                ended.set()

        try:
            return in_time(answer, lambda: self._now() > over, ())
        except TimeoutError:
            if ended.is_set():  # It is the store's own error.
                raise
            self._until, self._ended = self._now() + AGAIN_SECONDS, ended
            raise OSError(f"no answer within {ANSWER_SECONDS:g} s") from None


@cache
def answers_of(url: str, endpoint: str | None) -> Answers:  # noqa: ARG001 (the key)
    """Return the requests to the store at a URL, once for each process: each tick opens its blackboards anew."""
    return Answers()

"""Time limits for requests to another team's store, and to a queue.

A request without an answer in time raises an error. The store may never answer, or may send one byte every few seconds.
No socket timeout ends such a request. So another thread sends the request, and the caller stops waiting after
ANSWER_SECONDS. Then the store gets no requests for AGAIN_SECONDS. Without this pause, every tick would wait that long
for every feed.

A store may also answer each request at once, and always announce one more page. So all requests of a listing together
have a time limit, too. After this limit, the same pause follows.
"""

from collections.abc import Callable
from functools import cache
from threading import Event
from time import monotonic
from typing import TypeVar

from feed_assets.core.time_limits import in_time

ANSWER_SECONDS = 10.0
"""Seconds to wait for one answer, including retries: one page of a listing, or the head of an object.

For bodies of objects, there is another limit.
"""

LISTING_SECONDS = 30.0
"""Seconds for all requests of one listing, or of one search for names. A busy machine lists 200,000 files in that time.

With the last answer, a listing takes 40 s at most. Dagster gives up on a tick after 60 s.
"""

AGAIN_SECONDS = 60.0
"""Seconds of pause after an answer or a listing that did not end in time. Meanwhile the store gets no requests."""

T = TypeVar("T")


class Answers:
    """The requests to one store, from all threads of this process."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._until = float("-inf")
        self._problem = ""
        """The reason of the last pause."""
        self._ended = Event()
        """An event that is set when the last abandoned request has ended."""
        self._ended.set()

    def within(self, ask: Callable[[], T], ends: float = float("inf")) -> T:
        """Return what `ask` returns, or raise the error of `ask`.

        Raise OSError after ANSWER_SECONDS, at once during a pause, or if the listing's end time `ends` has passed. An
        abandoned request keeps its thread until it ends. Until then no request is sent, so threads do not pile up.
        """
        if not self._ended.is_set() or self._now() < self._until:
            raise OSError(f"{self._problem}, and it will be asked again in a minute or later")
        if self._now() > ends:
            raise self._paused(f"a listing did not end within {LISTING_SECONDS:g} s")
        ended, over = Event(), self._now() + ANSWER_SECONDS

        def answer() -> T:
            try:
                return ask()
            finally:
                ended.set()

        try:
            return in_time(answer, lambda: self._now() > over)
        except TimeoutError:
            if ended.is_set():  # `ask` has ended, so `ask` itself has raised the error.
                raise
            error, self._ended = self._paused(f"no answer within {ANSWER_SECONDS:g} s"), ended
            raise error from None

    def listing_ends(self) -> float:
        """Return when a listing that begins now has to end."""
        return self._now() + LISTING_SECONDS

    def _paused(self, problem: str) -> OSError:
        """Begin a pause, and return the error that says why."""
        self._problem, self._until = problem, self._now() + AGAIN_SECONDS
        return OSError(problem)


@cache
def answers_of(url: str, way: str | None) -> Answers:  # noqa: ARG001 (the key)
    """Return the `Answers` of the store or queue at `url`, reached by `way`: an endpoint or a profile.

    Each tick opens new blackboards. All blackboards of a process with this URL share the object.
    """
    return Answers()

"""What a command is doing, on stderr: on a terminal one line that is drawn anew, elsewhere a few plain lines."""

import shutil
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import typer

LOADING = "loading the definitions"

SECONDS_BETWEEN = 10.0
"""Seconds between two lines where these stay, as in a log; what is news is said at once."""

_CLEAR = "\r\x1b[K"
_Item = TypeVar("_Item")


@dataclass
class Progress:
    """Says what goes on. On a terminal the line goes when a result is to be printed, and at the end."""

    news: Collection[str] = frozenset({LOADING})
    """What is said at once wherever it goes."""
    now: Callable[[], float] = time.monotonic
    _last: float | None = None
    _is_drawn: bool = field(default=False)

    def say(self, text: str) -> None:
        """Say what is being done now."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            typer.echo(f"{_CLEAR}{text[:width]}", err=True, nl=False)
            self._is_drawn = True
        elif text in self.news or self._last is None or self.now() >= self._last + SECONDS_BETWEEN:
            typer.echo(f"feed-assets: {text}", err=True)
            self._last = self.now()

    @contextmanager
    def cleared(self) -> Generator[None]:
        """Take the line away at the end of a block, whatever ends it, before anybody says why."""
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Take the line away, so that something else may be printed in its place."""
        if self._is_drawn:
            typer.echo(_CLEAR, err=True, nl=False)
            self._is_drawn = False


def told(items: Sequence[_Item], doing: Progress, what: str) -> Iterator[_Item]:
    """Some things one after the other, each said when it has its turn."""
    for number, each in enumerate(items, 1):
        doing.say(f"{what} {each} ({number} of {len(items)})")
        yield each


@contextmanager
def progress(*news: str) -> Generator[Progress]:
    """What goes on until the block ends; its line goes with it."""
    shown = Progress(frozenset({LOADING, *news}))
    with shown.cleared():
        yield shown

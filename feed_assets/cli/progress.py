"""Progress of a command, on stderr: on a terminal one line that is redrawn, elsewhere a few plain lines."""

import shutil
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import typer

from feed_assets.cli.terminal import echo
from feed_assets.core.control_characters import printable

LOADING = "loading the definitions"

SECONDS_BETWEEN = 10.0
"""Seconds between two lines that are not redrawn, as in a log. Texts in `news` are printed at once."""

_CLEAR = "\r\x1b[K"
_Item = TypeVar("_Item")


@dataclass
class Progress:
    """The progress of a command. On a terminal the line is removed before a result is printed, and at the end."""

    news: Collection[str] = frozenset({LOADING})
    """Texts that are printed at once, on a terminal or not."""
    now: Callable[[], float] = time.monotonic
    _last: float | None = None
    _is_drawn: bool = field(default=False)

    def say(self, text: str) -> None:
        """Print what is being done now."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            typer.echo(f"{_CLEAR}{printable(text)[:width]}", err=True, nl=False)
            self._is_drawn = True
        elif text in self.news or self._last is None or self.now() >= self._last + SECONDS_BETWEEN:
            echo(f"feed-assets: {text}", err=True)
            self._last = self.now()

    @contextmanager
    def cleared(self) -> Generator[None]:
        """Remove the line when a block ends. If an error ends the block, the error is printed in the line's place."""
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Remove the line, so that other output can take its place."""
        if self._is_drawn:
            typer.echo(_CLEAR, err=True, nl=False)
            self._is_drawn = False


def announced(items: Sequence[_Item], doing: Progress, action: str) -> Iterator[_Item]:
    """Yield some items one after the other, and print each before its turn."""
    for number, each in enumerate(items, 1):
        doing.say(f"{action} {each} ({number} of {len(items)})")
        yield each


@contextmanager
def progress(*news: str) -> Generator[Progress]:
    """Yield the progress of a block. Remove its line at the end."""
    doing = Progress(frozenset({LOADING, *news}))
    with doing.cleared():
        yield doing

"""A process that is killed before its n-th change: a statement that writes, a commit, or an access to the board."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import sqlalchemy as sa

from feed_assets.feeds.local_disk import HALF_WRITTEN

_READS = ("SELECT", "PRAGMA", "BEGIN", "WITH")


def call_and_die(number: int, board: Path | None, call: Callable[..., object], *arguments: object) -> None:
    """Call a function, and kill the process right before a change of this number to ledger, Dagster or board."""
    die_at(number, board)
    call(*arguments)


def die_at(number: int, board: Path | None) -> Callable[[], None]:
    """Kill the process right before a change of this number from now on.

    Return a function that counts one more change, for what cannot be observed here, such as requests to S3.
    """
    changes = count(1)
    sa.event.listen(sa.Engine, "before_cursor_execute", lambda *said: _writes(said[2]) and _pass(changes, number))
    sa.event.listen(sa.Engine, "commit", lambda _: _pass(changes, number))
    sys.addaudithook(lambda name, what: _is_of(board, name, what) and _pass(changes, number))
    return lambda: _pass(changes, number)


def _writes(statement: str) -> bool:
    return not statement.lstrip().upper().startswith(_READS)


def _is_of(board: Path | None, name: str, what: tuple[object, ...]) -> bool:
    """Return True if a request to the board begins.

    It opens the board's folder first; obstore itself cannot be observed. A file that was written here gets its name.
    """
    is_named = name == "os.rename" and bool(HALF_WRITTEN.search(str(what[0])))
    return board is not None and (is_named or (name == "open" and str(what[0]) == str(board)))


def _pass(changes: Iterator[int], number: int) -> None:
    if next(changes) == number:
        os.kill(os.getpid(), signal.SIGKILL)

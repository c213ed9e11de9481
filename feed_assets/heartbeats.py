"""Signs of life of services without a port that could be checked: one small file for each service and host.

The files are in the home folder. A service replaces its file every few seconds, and counts as ready while the file is
fresh. The file also has the service's figures, for `feed-assets metrics`.
"""

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

from feed_assets.core.errors import FeedAssetsError
from feed_assets.home import OWNED, home, make_home

BEAT_SECONDS = 5.0
"""Seconds between two signs of life."""

FRESH_SECONDS = 60.0
"""Age in seconds from which a sign of life no longer counts. No round of a working service's loop takes so long."""

FOLDER = "services"
"""The folder for these files, in the home folder."""

LONGEST_FILE = 65_536
"""Maximum number of bytes that are read of a file."""

Figures = Mapping[str, float]
"""Numbers of a service by name. A name that ends with `_timestamp_seconds` is a time (UTC, since 1970)."""

Beat = Callable[[Callable[[], Figures]], None]
"""Function that a service calls in its loop. It calls its argument only if a sign of life is due."""


class NotReady(FeedAssetsError):
    """A service does not work, or is not ready yet."""


@dataclass(frozen=True)
class SignOfLife:
    """The last sign of life of a service: its name, its host, the time (seconds since 1970) and its figures."""

    service: str
    host: str
    at: float
    figures: Figures


def no_beat(_: Callable[[], Figures]) -> None:
    """Give no sign of life. Tests use this, and commands that are not services."""


class Heartbeat:
    """The sign of life of one service on this host."""

    def __init__(self, service: str, clock: Callable[[], float] = monotonic, now: Callable[[], float] = time) -> None:
        self._service, self._clock, self._now, self._next = service, clock, now, clock()
        make_home(home())
        (folder := home() / FOLDER).mkdir(0o700, exist_ok=True)
        self._path = folder / f"{service}@{socket.gethostname()}.json"

    def beat(self, figures: Callable[[], Figures]) -> None:
        """Replace the file if `BEAT_SECONDS` are over.

        A kill leaves the old file or the new one. A full disk does not end the service: its sign of life becomes old.
        """
        if self._clock() < self._next:
            return
        self._next = self._clock() + BEAT_SECONDS
        text = json.dumps({"service": self._service, "at": self._now(), "figures": dict(figures())})
        new = self._path.with_suffix(".new")
        with suppress(OSError):
            new.touch(OWNED)
            new.write_text(text, encoding="utf-8")
            new.rename(self._path)

    def close(self) -> None:
        """Remove the file, so that a service that ended normally is not taken for one that hangs."""
        with suppress(OSError):
            self._path.unlink()


def signs(folder: Path) -> tuple[SignOfLife, ...]:
    """Return the signs of life in a home folder, by service and host. Leave out files of another form."""
    held = (_sign(path) for path in sorted((folder / FOLDER).glob("*@*.json")))
    return tuple(each for each in held if each)


def check(folder: Path, service: str, now: float) -> SignOfLife:
    """Return the fresh sign of life of a service on this host. Raise NotReady if there is none."""
    host = socket.gethostname()
    last = next((each for each in signs(folder) if (each.service, each.host) == (service, host)), None)
    if last is None:
        raise NotReady(
            f"{service} on {host} has given no sign of life in {folder / FOLDER}: expected one within "
            f"{FRESH_SECONDS:g} s. Start it, with the same DAGSTER_HOME."
        )
    if not (age := now - last.at) < FRESH_SECONDS:
        raise NotReady(
            f"{service} on {host} gave its last sign of life {age:.0f} s ago: expected one within {FRESH_SECONDS:g} s. "
            "See its log: it waits for a server, or hangs."
        )
    return last


def _sign(path: Path) -> SignOfLife | None:
    """Read a file. Return None if it has another form, or was removed meanwhile."""
    try:
        with path.open("rb") as file:
            held = json.loads(file.read(LONGEST_FILE))
        figures = {str(name): float(value) for name, value in held["figures"].items()}
        return SignOfLife(str(held["service"]), path.stem.partition("@")[2], float(held["at"]), figures)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

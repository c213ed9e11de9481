"""The folder of what is kept on this machine: where it is, how it is made, and what is said on stderr of that."""

import os
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from feed_assets.core.errors import InvalidSetting

OWNED = 0o600
"""The rights of what we make in the home folder: only its owner may read it."""


def home() -> Path:
    """The folder for everything that is kept on this machine: `DAGSTER_HOME`, else `./.feed_assets`."""
    return Path(os.environ.get("DAGSTER_HOME") or ".feed_assets").resolve()


def say(line: str) -> None:
    """Say something on stderr, in whatever process."""
    sys.stderr.write(f"feed-assets: {line}\n")


@cache
def say_once(line: str) -> None:
    """Say something that several places of a process come to."""
    say(line)


def make_folder(folder: Path, what: str, mode: int = 0o777) -> None:
    """Make a folder that is not there, and say so. Raises InvalidSetting where it cannot be."""
    if not folder.is_dir():
        announce(folder, what)
        folder.mkdir(mode, exist_ok=True)


def make_home(folder: Path) -> None:
    """Make the home folder, which is for its owner alone: what lies in it has no need of rights of its own.

    Raises InvalidSetting for a path that Dagster's own storage would take for another.
    """
    if "?" in str(folder) or unquote(str(folder)) != str(folder):
        raise InvalidSetting(
            f"the home folder {folder} has a '?' or a %XX in its path, which Dagster's storage takes for parts of a "
            "URL, and so makes its files elsewhere: expected a path without. Set DAGSTER_HOME to another one."
        )
    make_folder(folder, "the home folder", 0o700)


def say_who_enters(folder: Path) -> None:
    """Say that others may enter a home that was there: its rights are kept, as they may be meant."""
    if folder.stat().st_mode & 0o077:
        say_once(f"others may enter the home folder: `chmod 700 {folder}`, unless they are meant to read what it keeps")


def announce(place: Path, what: str) -> None:
    """Say what is made where nothing is; the home folder is made for what lies in it.

    Raises InvalidSetting where any other parent is missing: its path is more likely to be mistyped.
    """
    if place.parent == home():
        make_home(home())
    if not place.parent.is_dir():
        raise InvalidSetting(f"{what} cannot be made at {place}: there is no {place.parent}. Make it, or correct it.")
    say(f"made {what} {place}")

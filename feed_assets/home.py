"""The folder of what is kept on this machine: where it is, how it is made, and what is said on stderr of that."""

import os
import stat
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.places import as_seen_from_here

OWNED = 0o600
"""The rights of what we make in the home folder: only its owner may read it."""


def home() -> Path:
    """The folder for everything that is kept on this machine: `DAGSTER_HOME`, else `.feed_assets` of the project.

    That is beside its `pyproject.toml`, from wherever in the project; elsewhere in the current folder.
    """
    if named := os.environ.get("DAGSTER_HOME"):
        return Path(named).resolve()
    found = project_here()
    return ((found[1] if found else Path.cwd()) / ".feed_assets").resolve()


def project_here() -> tuple[str, Path] | None:
    """The module and folder of the project that the current folder is in, by the nearest `pyproject.toml` with one.

    As Dagster's `dg` and `dagster dev` read it. Raises InvalidSetting for a file that is no TOML.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if module := module_in(folder / "pyproject.toml"):
            return module, folder
    return None


def module_in(path: Path) -> str | None:
    """The module with definitions that a `pyproject.toml` names."""
    project = project_in(path)
    root = project.get("root_module")
    named = project.get("code_location_target_module") or (f"{root}.definitions" if root else None)
    return named or _tools_in(path).get("dagster", {}).get("module_name")


def project_in(path: Path) -> dict[str, Any]:
    """What a `pyproject.toml` says of a project of Dagster's, `[tool.dg.project]`."""
    return _tools_in(path).get("dg", {}).get("project", {})


def _tools_in(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{as_seen_from_here(str(path))} is no TOML: {error}. Mend it, or give -m.") from None


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


def say_who_reads(output: int) -> None:
    """Say that others may read the file that the address of the web UI, with its token, is about to be printed to."""
    status = os.fstat(output)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        say("others may read the file of this output, and with the token in it command the web UI: `chmod 600` it")


def announce(place: Path, what: str) -> None:
    """Say what is made where nothing is; the home folder is made for what lies in it.

    Raises InvalidSetting where any other parent is missing: its path is more likely to be mistyped.
    """
    if place.parent == home():
        make_home(home())
    if not place.parent.is_dir():
        raise InvalidSetting(f"{what} cannot be made at {place}: there is no {place.parent}. Make it, or correct it.")
    say(f"made {what} {place}")

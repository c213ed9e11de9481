"""The home folder, which holds what is kept on this machine: its path, creation, and messages about it on stderr."""

import os
import stat
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.source_lines import as_seen_from_here

OWNED = 0o600
"""The rights of files that we make in the home folder: only its owner may read them."""


def home() -> Path:
    """Return the folder for all that is kept on this machine: `DAGSTER_HOME`, else `.feed_assets` of the project.

    That is beside its `pyproject.toml`, from wherever in the project; elsewhere in the current folder.
    """
    if named := os.environ.get("DAGSTER_HOME"):
        return Path(named).resolve()
    project = project_here()
    return ((project[1] if project else Path.cwd()) / ".feed_assets").resolve()


def project_here() -> tuple[str, Path] | None:
    """Return module and folder of the project around the current folder, by the nearest `pyproject.toml` with one.

    Dagster's `dg` and `dagster dev` read it alike. Return None if there is none. Raise InvalidSetting if it is no TOML.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if module := module_in(folder / "pyproject.toml"):
            return module, folder
    return None


def module_in(path: Path) -> str | None:
    """Return the module with definitions that a `pyproject.toml` names; None if it names none."""
    project = project_in(path)
    root = project.get("root_module")
    named = project.get("code_location_target_module") or (f"{root}.definitions" if root else None)
    return named or _tools_in(path).get("dagster", {}).get("module_name")


def project_in(path: Path) -> dict[str, Any]:
    """Return `[tool.dg.project]` of a `pyproject.toml`, which describes a project of Dagster's."""
    return _tools_in(path).get("dg", {}).get("project", {})


def _tools_in(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{as_seen_from_here(str(path))} is no TOML: {error}. Mend it, or give -m.") from None


def say(line: str) -> None:
    """Write a line to stderr, in any process."""
    sys.stderr.write(f"feed-assets: {line}\n")


@cache
def say_once(line: str) -> None:
    """Write a line that several places of a process may write, only once."""
    say(line)


def make_folder(folder: Path, label: str, mode: int = 0o777) -> None:
    """Make a missing folder, and announce it. Raise InvalidSetting if it cannot be made."""
    if not folder.is_dir():
        announce(folder, label)
        folder.mkdir(mode, exist_ok=True)


def make_home(folder: Path) -> None:
    """Make the home folder, which is for its owner alone: what lies in it needs no rights of its own.

    Raise InvalidSetting for a path that Dagster's own storage would take for another.
    """
    if "?" in str(folder) or unquote(str(folder)) != str(folder):
        raise InvalidSetting(
            f"the home folder {folder} has a '?' or a %XX in its path, which Dagster's storage takes for parts of a "
            "URL, and so makes its files elsewhere: expected a path without. Set DAGSTER_HOME to another one."
        )
    make_folder(folder, "the home folder", 0o700)


def say_who_enters(folder: Path) -> None:
    """Warn that others may enter a home that existed before: its rights are kept, as they may be intended."""
    if folder.stat().st_mode & 0o077:
        say_once(f"others may enter the home folder: `chmod 700 {folder}`, unless they are meant to read what it keeps")


def say_who_reads(output: int) -> None:
    """Warn that others may read the file to which the address of the web UI, with its token, is about to be printed."""
    status = os.fstat(output)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        say("others may read the file of this output, and with the token in it command the web UI: `chmod 600` it")


def announce(place: Path, label: str) -> None:
    """Announce what is made where nothing is; make the home folder for what lies in it.

    Raise InvalidSetting if any other parent is missing: its path is more likely to be mistyped.
    """
    if place.parent == home():
        make_home(home())
    if not place.parent.is_dir():
        raise InvalidSetting(f"{label} cannot be made at {place}: there is no {place.parent}. Make it, or correct it.")
    say(f"made {label} {place}")

"""The home folder, which holds the files that feed_assets keeps on this machine: its path, creation and warnings."""

import os
import stat
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from feed_assets import log_lines
from feed_assets.core.errors import InvalidSetting
from feed_assets.core.source_lines import as_seen_from_here

OWNED = 0o600
"""The rights of files that we make in the home folder: only its owner may read them."""


def home() -> Path:
    """Return the home folder: `DAGSTER_HOME` if it is set, else `.feed_assets` beside the project's `pyproject.toml`.

    Outside a project, return `.feed_assets` in the current folder. Raise InvalidSetting if another user made it: its
    `dagster.yaml` would run as this user.
    """
    if named := os.environ.get("DAGSTER_HOME"):
        folder = Path(named).resolve()
    else:
        project = project_here()
        folder = ((project[1] if project else Path.cwd()) / ".feed_assets").resolve()
    if folder.is_dir() and not _is_trusted(folder, beside=folder.parent):
        raise InvalidSetting(
            f"the home folder {folder} belongs to the user {folder.lstat().st_uid}: expected this user "
            f"({os.geteuid()}), because its dagster.yaml is code. Run this as its owner, or set DAGSTER_HOME to a "
            "folder of your own."
        )
    return folder


def _is_trusted(place: Path, beside: Path) -> bool:
    """Return whether a file or folder belongs to this user, to root, or to whoever owns the folder `beside`.

    In a folder that all users share, such as /tmp, anybody may have put it there.
    """
    return place.lstat().st_uid in (os.geteuid(), 0, beside.stat().st_uid)


def project_here() -> tuple[str, Path] | None:
    """Return the module and the folder of the project that contains the current folder.

    Read the nearest `pyproject.toml` that names a module, as Dagster's `dg` and `dagster dev` do. Skip a file that
    another user has put into a folder above: the module would run as this user. Return None if there is no such file.
    Raise InvalidSetting if a file on the way is not valid TOML.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        if folder != Path.cwd() and not _is_trusted(path, beside=Path.cwd()):
            say_once(f"{path} is skipped: it belongs to the user {path.lstat().st_uid}, and not to you")
        elif module := module_in(path):
            return module, folder
    return None


def module_in(path: Path) -> str | None:
    """Return the module with Dagster definitions that a `pyproject.toml` names. Return None if it names no module."""
    project = project_in(path)
    root = project.get("root_module")
    named = project.get("code_location_target_module") or (f"{root}.definitions" if root else None)
    return named or _tools_in(path).get("dagster", {}).get("module_name")


def project_in(path: Path) -> dict[str, Any]:
    """Return the table `[tool.dg.project]` of a `pyproject.toml`, which describes a Dagster project."""
    return _tools_in(path).get("dg", {}).get("project", {})


def _tools_in(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{as_seen_from_here(str(path))} is not TOML: {error}. Correct it, or pass -m.") from None


def say(line: str, level: str = "info") -> None:
    """Write a line to stderr, with the prefix `feed-assets:`, or as JSON with `level` if the settings say so."""
    log_lines.write(line, level)


@cache
def say_once(line: str) -> None:
    """Write a line to stderr once in this process, however often it is called with this line."""
    say(line)


def make_folder(folder: Path, label: str, mode: int = 0o777) -> None:
    """Make a missing folder, and announce it. Raise InvalidSetting if it cannot be made."""
    if not folder.is_dir():
        announce(folder, label)
        folder.mkdir(mode, exist_ok=True)


def refuse_others_folder(folder: Path, label: str) -> None:
    """Raise InvalidSetting unless `folder` is a folder of this user, and no link.

    Another user of a shared folder may have made it first, to read or replace what we write into it.
    """
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        return
    is_link = stat.S_ISLNK(status.st_mode)
    kind = "a link" if is_link else "a folder" if stat.S_ISDIR(status.st_mode) else "no folder"
    raise InvalidSetting(
        f"{label} {folder} is {kind}, of the user {status.st_uid}: expected a folder of this user ({os.geteuid()}) and "
        "no link, so that nobody else reads or replaces what is in it. Find out who made it, then remove it or "
        "`chown` it; or name a place where only this user may write."
    )


def make_home(folder: Path) -> None:
    """Make the home folder. Only its owner may enter it, so files in it need no restricted rights of their own.

    Raise InvalidSetting for a path that Dagster's own storage would misread as parts of a URL.
    """
    if "?" in str(folder) or unquote(str(folder)) != str(folder):
        raise InvalidSetting(
            f"the home folder {folder} has a '?' or a %XX in its path, which Dagster's storage reads as parts of a "
            "URL. Dagster would make its files elsewhere: expected a path without these. Set DAGSTER_HOME to another "
            "folder."
        )
    make_folder(folder, "the home folder", 0o700)


def say_who_enters(folder: Path) -> None:
    """Warn if other users may enter an existing home folder.

    Its rights are not changed, because they may be intended.
    """
    if folder.stat().st_mode & 0o077:
        say_once(f"other users can enter the home folder: `chmod 700 {folder}`, unless they need to read its files")


def say_who_reads(output: int) -> None:
    """Warn if other users may read the file that `output` writes to.

    The command then writes the web UI's address, with its token, into this file.
    """
    status = os.fstat(output)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        say("other users can read the file of this output, and use the web UI with its token: `chmod 600` the file")


def announce(place: Path, label: str) -> None:
    """Write to stderr that `place` is made. If it is in the home folder, make the home folder first.

    Raise InvalidSetting if any other parent folder is missing, because the path is probably mistyped.
    """
    if place.parent == home():
        make_home(home())
    if not place.parent.is_dir():
        raise InvalidSetting(
            f"{label} cannot be made at {place}: there is no {place.parent}. Make that folder, or correct the path."
        )
    say(f"made {label} {place}")

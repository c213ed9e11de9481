"""A project of a user's own, made whole or not at all: beside its place, and then moved there at once."""

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from string import Template

from feed_assets.core.errors import InvalidName, TargetNotEmpty
from feed_assets.core.project_names import check_project_name

_TEMPLATE = Path(__file__).with_name("template")
_SUFFIX = ".template"
_PACKAGE = "package"
"""The folder of the template that gets the project's name."""


def make_project(name: str, above: Path) -> Path:
    """Make the project `name` in a folder, with its sample on a blackboard of its own.

    Killed at any moment, it leaves either the whole project or a hidden folder that the next call removes.

    Raises:
        InvalidName: It is no package's name, or is something else's in Python or in the project.
        TargetNotEmpty: There is something else of this name.
    """
    check_project_name(name, frozenset(path.name for path in _TEMPLATE.iterdir() if path.is_dir()))
    check_is_free(target := above / name)
    _check_is_unknown(name, target)
    with _alone(above):
        unfinished = above / f".{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # of one that was killed
        try:
            _write(name, unfinished)
            _publish_sample(name, unfinished)
            _move(unfinished, target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _check_is_unknown(name: str, target: Path) -> None:
    """Raise InvalidName if `import name` finds something else already: one of the two would hide the other."""
    if others := [place for place in _places(name) if place != str(target)]:
        raise InvalidName(
            f"{name!r} is no name for a project: Python has a module {name} already ({others[0]}), and one would hide "
            f"the other. Choose another, such as {f'{name}_data'!r}."
        )


def _places(name: str) -> list[str]:
    """Where Python finds a module now; of folders without `__init__.py`, which are one together, each."""
    found = find_spec(name)
    if found is None:
        return []
    return [found.origin] if found.origin else [*(found.submodule_search_locations or ())]


def check_is_free(target: Path) -> None:
    """Raise TargetNotEmpty unless there is nothing, or an empty folder."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        what = "a link" if target.is_symlink() else "no folder"
        raise TargetNotEmpty(f"{target} is {what}: expected nothing there. Remove it, or choose another name.")
    if target.is_dir() and any(target.iterdir()):
        raise TargetNotEmpty(
            f"{target} is not empty: expected nothing there, or an empty folder. Choose another name, or go to another "
            "folder. Nothing was changed."
        )


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Hold a folder's lock, which a process loses however it ends; some network disks have none."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _write(name: str, folder: Path) -> None:
    for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
        parts = source.relative_to(_TEMPLATE).parts
        path = folder.joinpath(*(name if part == _PACKAGE else part for part in parts)).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(source.read_text(encoding="utf-8")).substitute(name=name), encoding="utf-8")


def _publish_sample(name: str, folder: Path) -> None:
    """Put the sample on the blackboard in the project's folder: an update for each day of each feed."""
    from feed_assets.core.feeds import Feed, Partition
    from feed_assets.feeds import write
    from feed_assets.feeds.blackboard import Blackboard

    (home := folder / ".feed_assets").mkdir(0o700)
    board = Blackboard.open((home / "blackboard").as_uri(), create=True)
    for feed in sorted((folder / "sample").iterdir()):
        for day in sorted(feed.iterdir()):
            parts = {file.name: file for file in day.iterdir()}
            write.publish(board, Partition(Feed.parse(f"{name}/{feed.name}/v1.0"), day.name), parts, datetime.now(UTC))


def _move(unfinished: Path, target: Path) -> None:
    """Give the project its name; an empty folder gives way, and one that is not empty any more does not."""
    try:
        unfinished.rename(target)
    except OSError:
        check_is_free(target)
        raise

"""A new user project. It is built in a hidden folder, which is renamed at the end, so no half-made project appears."""

import fcntl
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from feed_assets.core.errors import InvalidName, TargetNotEmpty
from feed_assets.core.project_names import check_project_name
from feed_assets.infer.python_text import literal

if TYPE_CHECKING:
    from feed_assets.infer.declaration import Inferred

_TEMPLATE = Path(__file__).with_name("template")
_SUFFIX = ".template"
_PACKAGE = "package"
"""The template folder that gets the project's name."""
_OF_ORDERS = ("package/defs/sold.py", "tests/test_sold.py", "sample/")
"""Template files that a project made from sample files does not get."""
_OF_FILES = ("tests/test_sample.py",)
"""Template files that only a project made from sample files gets."""


@dataclass(frozen=True)
class Content:
    """A project's feed, its dataset and its sample; by default those of the template."""

    feed: str = "orders"
    dataset: str = "sold"
    sample: str = "two days of sample data"
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Sample files by their path below `sample/`. If there are none, the template's sample is used."""
    module: str = ""
    """Python code that declares the feed, if there are files."""
    key: str = ""
    """The path of one partition of the sample."""

    @classmethod
    def of(cls, inferred: "Inferred") -> "Content":
        """Return the content of a project made from sample files."""
        feed, files = inferred.feed.name.rpartition("/")[2], dict[str, Path]()
        for number, (key, file) in enumerate(zip(inferred.keys, inferred.files, strict=True)):
            path = "/".join(filter(None, (feed, key, file.name)))
            files[path if path not in files else path.removesuffix(file.name) + f"{number}-{file.name}"] = file
        return cls(
            feed, f"{inferred.name}_clean", "your files", files=files, module=module_of(inferred), key=inferred.keys[0]
        )

    def named(self, name: str) -> dict[str, str]:
        """Return the names to print for the project `name`."""
        return {"feed": f"{name}/{self.feed}/v1.0", "dataset": f"{name}/{self.dataset}/v1.0", "sample": self.sample}


def module_of(inferred: "Inferred") -> str:
    """Return the code of a module that declares the sample files' feed, and a dataset of its records."""
    name, feed = inferred.name, inferred.feed.name
    partitions = f"    partitions_def={name}.partitions_def,\n" if inferred.partitions else ""
    imports = "import dagster as dg\n" if inferred.partitions else ""
    return (
        f'"""A feed of files that others drop, and a dataset made of it."""\n\n{imports}'
        "from feed_assets import checks, feed_asset, foreign_feed\nfrom pyspark.sql import DataFrame\n\n"
        f"{inferred.code}\n\n"
        f'@feed_asset(\n    "{feed.rpartition("/")[0]}/{name}_clean/v1.0",\n{partitions}'
        f'    inputs={{"{name}": {name}}},\n    checks=[checks.not_empty()],\n)\n'
        f"def {name}_clean({name}: DataFrame) -> DataFrame:\n"
        f'    """Return the records that parse: select here what you need."""\n    return {name}\n'
    )


def make_project(name: str, above: Path, content: Content = Content()) -> Path:
    """Make the project `name` in a folder, with its sample on its own blackboard.

    After a kill, there is either the complete project, or a hidden folder that the next call removes.

    Raises:
        InvalidName: The name is not a valid package name, or Python or the project uses it for something else.
        TargetNotEmpty: A file or a folder that is not empty already has this name.
    """
    check_project_name(name, frozenset(path.name for path in _TEMPLATE.iterdir() if path.is_dir()))
    check_is_free(target := above / name)
    _check_is_unknown(name, target)
    with _alone(above):
        unfinished = above / f".{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # A killed call may have left this folder.
        try:
            _write(name, unfinished, content)
            _publish_sample(name, unfinished)
            _move(unfinished, target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _check_is_unknown(name: str, target: Path) -> None:
    """Raise InvalidName if `import name` already finds another module: one of the two would hide the other."""
    if places := [place for place in _places(name) if place != str(target)]:
        raise InvalidName(
            f"{name!r} is no name for a project: Python has a module {name} already ({places[0]}), and one would "
            f"hide the other. Choose another, such as {f'{name}_data'!r}."
        )


def _places(name: str) -> list[str]:
    """Return the files or folders where Python finds a module now. A package without `__init__.py` may have several."""
    spec = find_spec(name)
    if spec is None:
        return []
    return [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]


def check_is_free(target: Path) -> None:
    """Raise TargetNotEmpty unless the target is missing or an empty folder."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        obstacle = "a link" if target.is_symlink() else "no folder"
        raise TargetNotEmpty(f"{target} is {obstacle}: expected nothing there. Remove it, or choose another name.")
    if target.is_dir() and any(target.iterdir()):
        raise TargetNotEmpty(
            f"{target} is not empty: expected nothing there, or an empty folder. Choose another name, or go to another "
            "folder. Nothing was changed."
        )


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Hold a folder's lock, which ends with the process. Hold no lock if the disk, such as a network disk, has none."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _write(name: str, folder: Path, content: Content) -> None:
    words = {"name": name, "key": literal(content.key), "folder": content.feed, "asset": f"{name}/{content.dataset}"}
    words |= content.named(name)
    left_out = _OF_ORDERS if content.files else _OF_FILES
    for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
        at = source.relative_to(_TEMPLATE)
        if not at.as_posix().startswith(left_out):
            path = folder.joinpath(*(name if part == _PACKAGE else part for part in at.parts)).with_suffix("")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(source.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    if content.files:
        (folder / name / "defs" / f"{content.dataset}.py").write_text(content.module, encoding="utf-8")
    for at, file in content.files.items():
        (copy := folder / "sample" / at).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _publish_sample(name: str, folder: Path) -> None:
    """Publish the sample to the blackboard in the project's folder: an update for each day of each feed."""
    from feed_assets.core.feeds import Feed, Partition
    from feed_assets.feeds import write
    from feed_assets.feeds.blackboard import Blackboard

    (home := folder / ".feed_assets").mkdir(0o700)
    board = Blackboard.open((home / "blackboard").as_uri(), create=True)
    for feed in sorted((folder / "sample").iterdir()):
        for at in sorted({file.parent for file in feed.rglob("*") if file.is_file()}):
            parts = {file.name: file for file in at.iterdir() if file.is_file()}
            key = "" if at == feed else at.relative_to(feed).as_posix()
            write.publish(board, Partition(Feed.parse(f"{name}/{feed.name}/v1.0"), key), parts, datetime.now(UTC))


def _move(unfinished: Path, target: Path) -> None:
    """Rename the project's folder to its final name. Replace an empty folder, but not a folder that has content."""
    try:
        unfinished.rename(target)
    except OSError:
        check_is_free(target)
        raise

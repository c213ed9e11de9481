"""File and line of users' code, such as `shop/defs/revenue.py:12`. Messages about declarations begin with both."""

import inspect
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any

_LIBRARIES = {"feed_assets", "dagster", "dagster_shared", "pydantic", "pyspark", "pandas"} | sys.stdlib_module_names
_COMMANDS = "feed_assets.cli"
_PACKAGE = Path(__file__).parents[1]
_SAMPLES = _PACKAGE / "defs"
_FILE: ContextVar[str | None] = ContextVar("_FILE", default=None)


@contextmanager
def declaring(file: str | None) -> Generator[None]:
    """Attribute declarations in this block to a file that is not Python, such as YAML.

    With None, attribute them to Python code again.
    """
    token = _FILE.set(file and as_seen_from_here(file))
    try:
        yield
    finally:
        _FILE.reset(token)


def declared_at() -> str | None:
    """Return the current line of the user's code, `shop/defs/revenue.py:12`, or the YAML file that is read.

    Return None if no code of a user is on the call stack.
    """
    return _FILE.get() or _users_line(walk_stack(inspect.currentframe()))


def raised_at(error: BaseException) -> str | None:
    """Return the line of the user's code that raised an error. Return None if other code did."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{as_seen_from_here(error.filename)}:{error.lineno}"
    return _users_line(reversed([*walk_tb(error.__traceback__)]))


def line_of(function: Callable[..., Any]) -> str | None:
    """Return the line on which a user's function begins. Return None for a library's function, or one in C."""
    bare = inspect.unwrap(function)
    code = getattr(bare, "__code__", None)
    if code is None or not _is_users(str(bare.__module__), code.co_filename):
        return None
    return f"{as_seen_from_here(code.co_filename)}:{code.co_firstlineno}"


def users_place(file: str, line: str) -> str | None:
    """Return a file and line in the form `shop/defs/revenue.py:12`. Return None if the file is a library's."""
    folders = [Path(path).resolve() for path in (sysconfig.get_path("stdlib"), _PACKAGE)]
    is_library = "site-packages" in file or any(Path(file).is_relative_to(folder) for folder in folders)
    return f"{as_seen_from_here(file)}:{line}" if not is_library or Path(file).is_relative_to(_SAMPLES) else None


def with_notes(place: str, error: BaseException) -> str:
    """Return the place that raised an error, followed by the error's notes, such as the check that ran."""
    return ", ".join([place, *getattr(error, "__notes__", ())])


def as_seen_from_here(file: str) -> str:
    """Return a file's path, relative if it is below the current folder."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _users_line(frames: Iterable[tuple[FrameType, int]]) -> str | None:
    """Return the innermost line of a user's code, or None. The bundled samples count as a user's code.

    The search ends at a frame of a command of feed_assets.
    """
    for frame, line in frames:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_COMMANDS):
            return None
        if _is_users(module, frame.f_code.co_filename):
            return f"{as_seen_from_here(frame.f_code.co_filename)}:{line}"
    return None


def _is_users(module: str, file: str) -> bool:
    is_installed = module.split(".")[0] in _LIBRARIES or "site-packages" in file
    return not is_installed or module.startswith("feed_assets.defs")

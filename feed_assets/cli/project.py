"""The module that a command works on, and clear errors if it does not load."""

import re
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfoNotFoundError, available_timezones

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from feed_assets.core.errors import (
    FeedAssetsError,
    InvalidDefinition,
    InvalidSetting,
    ModuleNotLoaded,
    SecretUnavailable,
)
from feed_assets.core.source_lines import as_seen_from_here, raised_at
from feed_assets.home import module_in, project_here, project_in

_TWICE = re.compile(r"Asset key \S+ is defined multiple times\. Definitions found in modules: (?P<modules>[\w., ]+)\.")
"""Dagster's message if modules below `defs` declare an asset twice."""

_NO_DATE = re.compile(r"time data '(?P<value>.*)' does not match format '(?P<form>.*?)(?:%z)?'")
_NO_TEXT = re.compile(r"Expected <class 'str'>\. Got (?P<value>.+) of type <class '(?P<kind>\w+)'>")
"""Dagster's messages for a partition date in another form, and for a key that is not a text."""


def module_of_project() -> tuple[str, Path]:
    """Return the module and folder of the nearest `pyproject.toml`, from the current folder upwards, as `dg` does.

    Raise InvalidSetting if there is none.
    """
    if project := project_here():
        return project
    below = [folder for folder in sorted(Path.cwd().iterdir()) if module_in(folder / "pyproject.toml")]
    hint = f"There is a project in {below[0].name}: `cd {below[0].name}`. " if below else ""
    raise InvalidSetting(
        f"which module? {hint}-m MODULE is not given, and no pyproject.toml here or above has one: expected, for "
        'example, -m shop.definitions, or [tool.dg.project] with root_module = "shop".'
    )


def location_of(module: str) -> str:
    """Return Dagster's name for a module's code location: the project's or folder's name, or else the module's name."""
    project = project_here()
    if project is None or project[0] != module:
        return module
    return project_in(project[1] / "pyproject.toml").get("code_location_name") or project[1].name


def has_module() -> bool:
    """Return whether the current folder, or one above it, has a project with a module."""
    return project_here() is not None


@contextmanager
def loading(module: str) -> Generator[None]:
    """Raise ModuleNotLoaded, in two lines, for an error of a user's module. Errors of settings pass unchanged.

    A missing module raises InvalidDefinition. From now on this process ignores Dagster's warnings about beta and
    preview features, because users of feed_assets can do nothing about them.
    """
    import dagster as dg

    for category in (dg.BetaWarning, dg.PreviewWarning):
        warnings.filterwarnings("ignore", category=category)
    try:
        yield
    except (Exception, SystemExit) as error:
        cause = _cause(error)
        if isinstance(cause, (InvalidSetting, SecretUnavailable)):
            raise cause from None
        if isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}."):
            raise InvalidDefinition(
                f"there is no module {module}: {cause}. Expected one that Python finds in {Path.cwd()} or installed: "
                "correct -m MODULE, or go to the project's folder."
            ) from None
        trace = f"`dagster definitions validate -m {module}` shows the stack trace"
        raise ModuleNotLoaded(f"{_description(cause, error)}\nmodule {module} does not load: {trace}.") from error


def _cause(error: BaseException) -> BaseException:
    """Return the error of a chain that users should see.

    This is the first error of ours. If there is none, it is the first error that Dagster did not raise, or else the
    last error.
    """
    chain = [error]
    while parent := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(parent)
    own_errors = [each for each in chain if isinstance(each, FeedAssetsError)]
    user_errors = [each for each in chain if not type(each).__module__.startswith("dagster")]
    return [*own_errors, *user_errors, chain[-1]][0]


def _description(cause: BaseException, error: BaseException) -> str:
    """Return a mistake and its place in one line. For a YAML file, Dagster's message has the place."""
    if isinstance(cause, FeedAssetsError):
        return str(cause)
    if twice := _TWICE.search(str(cause)):
        return _declared_twice(twice["modules"].split(", ")) or twice[0]
    place = raised_at(cause) or str(error).partition("\n")[0].rstrip(":")
    if isinstance(cause, ValidationError):
        return "; ".join(_mistake(each, place) for each in cause.errors(include_url=False))
    if isinstance(cause, ZoneInfoNotFoundError):
        return f"{place}: {_unknown_zone(cause)}"
    if date := _NO_DATE.fullmatch(str(cause)):
        value, form = date["value"], date["form"]
        example = datetime(2026, 1, 31, tzinfo=UTC).strftime(form)
        return f"{place}: the date is {value!r}: expected the form {form}, such as {example!r}. Correct it."
    if value := _NO_TEXT.search(str(cause)):
        return f"{place}: a value is {value['value']} ({value['kind']}): expected a text. Write {value['value']!r}."
    text = " ".join((cause.msg if isinstance(cause, SyntaxError) else str(cause)).split())
    return f"{place}: {type(cause).__name__}: {text}"


def _declared_twice(modules: Sequence[str]) -> str | None:
    """Return the error for an asset that is declared in two loaded modules, with the places of both declarations."""
    import dagster as dg

    from feed_assets.orchestration.declare.agreement import agreed

    values: list[Any] = [value for name in modules for value in vars(sys.modules[name]).values()]
    try:
        agreed(dg.Definitions(assets=[each for each in values if isinstance(each, dg.AssetSpec | dg.AssetsDefinition)]))
    except InvalidDefinition as error:
        return str(error)
    return None


def _unknown_zone(error: ZoneInfoNotFoundError) -> str:
    name = str(error.args[0]).rpartition(" ")[2]
    near = get_close_matches(name, available_timezones(), 1)
    return f"there is no time zone {name}: expected {near[0] if near else 'a name such as Europe/Berlin'}. Correct it."


def _mistake(error: ErrorDetails, place: str) -> str:
    """Return what is wrong with a value, and where. For most YAML, Dagster appends file and line to the key."""
    where = ".".join(map(str, error["loc"]))
    key, _, line = where.rpartition(" at ")
    return f"{as_seen_from_here(line) if key else place}: {key or where}: {error['msg'].removeprefix('Value error, ')}"

"""Check of command lines, calls and names that stand in backticks in the docs."""

import ast
import inspect
import re
from collections.abc import Iterator

import dagster as dg
import typer.main

import feed_assets
from feed_assets import testing
from feed_assets.cli import app
from feed_assets.core import errors
from feed_assets.runs import checks

COMMAND = typer.main.get_command(app)
NAMES = {"": feed_assets, "feed_assets": feed_assets, "checks": checks, "dg": dg}
"""The module of a call, by what stands before its last dot."""


def unknown_options(line: str) -> set[str]:
    """Return the options of a command line, without `feed-assets`, that its command does not have."""
    command, words = COMMAND, line.split()
    while words and (below := getattr(command, "commands", {}).get(words[0])):
        command, words = below, words[1:]
    options = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
    return {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} - options - {"--help"}


def unknown_arguments(code: str) -> set[str]:
    """Return the arguments in calls of public names that these do not have. `…` stands for any other arguments."""
    try:
        calls = [
            each for each in ast.walk(ast.parse(code.replace("…", "...").lstrip("@"))) if isinstance(each, ast.Call)
        ]
    except SyntaxError:
        return set()
    return {argument for call in calls for argument in _unknown(call)}


def _unknown(call: ast.Call) -> Iterator[str]:
    place, _, name = ast.unparse(call.func).rpartition(".")
    if place not in NAMES or not (place or name in feed_assets.__all__):
        return
    function = getattr(NAMES[place], name, None)
    if function is None:
        yield f"{place}.{name}"
    elif callable(function):
        parameters = inspect.signature(function).parameters
        yield from (f"{name}({each.arg})" for each in call.keywords if each.arg and each.arg not in parameters)


def unknown_classes(text: str) -> set[str]:
    """Return the names like `NoValidUpdate` that are neither ours nor Dagster's."""
    names = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", text))
    return {name for name in names if not any(hasattr(place, name) for place in (feed_assets, testing, errors, dg))}

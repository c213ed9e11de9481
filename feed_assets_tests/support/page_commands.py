"""Command lines of a page of the docs: run in this process, or only parsed."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import typer.main
from click import Command, Context
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import Settings, settings

PACKAGES = {"shop", "cafe", "bakery", "clicks", "conftest", "tests"}
"""Modules that a page's project has. They are loaded anew by each command, as a page may change them."""


_OPERATOR, _QUOTED = re.compile(r"[|;<>&\n`]"), re.compile(r"'[^']*'|\"[^\"$`]*\"")
"""Operators of a shell, and quoted texts, which have none."""


def forget_modules() -> None:
    """Make the next import load the project's files again."""
    tests = {path.stem for path in Path("tests").glob("test_*.py")}
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES | tests]:
        del sys.modules[name]


def lines_of(block: str) -> list[str]:
    """Return the commands of a shell block: continued lines are joined, comments and blank lines left out.

    A line that begins a loop or a function of the shell is one command with all lines up to its end.
    """
    text = re.sub(r"\\\n\s*", "", block)
    loops = re.sub(r"^(for|while) .*?^done$", lambda loop: loop[0].replace("\n", "\0"), text, flags=re.M | re.S)
    lines = (line.replace("\0", "\n") for line in loops.splitlines())
    return [line for line in lines if line.strip() and not line.startswith("#")]


def run(command: str) -> tuple[int, str]:
    """Run a command like a shell, but `feed-assets`, `python` and `pytest` in this process, whose imports are warm.

    Return its exit code and its output.
    """
    forget_modules()
    settings.cache_clear()
    open_ledger.cache_clear()  # a command may have removed its file
    os.environ["PWD"] = str(Path.cwd())
    if assigned := re.fullmatch(r"(\w+)=\$\((.*)\)", command):
        os.environ[assigned[1]] = run_by_shell(assigned[2])[1].strip()
        return 0, ""
    if _OPERATOR.search(_QUOTED.sub("", command)):
        return run_by_shell(command)
    command = re.sub(r"\$\(([^()]*)\)", lambda inner: shlex.quote(run_by_shell(inner[1])[1].strip()), command)
    program, *words = shlex.split(os.path.expandvars(command), comments=True)
    call = PROGRAMS.get(program)
    return call(words) if call else run_by_shell(command)


def export(words: list[str]) -> tuple[int, str]:
    """Set variables of this process."""
    for word in words:
        os.environ.__setitem__(*word.split("=", 1))
    return 0, ""


def change_folder(words: list[str]) -> tuple[int, str]:
    """Change the current folder."""
    os.chdir(*words)
    return 0, ""


def run_feed_assets(words: list[str]) -> tuple[int, str]:
    """Run our command line. An error is written as `main` writes it."""
    result = CliRunner().invoke(app, words)
    error = "" if isinstance(result.exception, SystemExit | None) else f"feed-assets: {result.exception}\n"
    return result.exit_code, result.output + error


def run_pytest(words: list[str]) -> tuple[int, str]:
    """Run pytest in pytest; the inner one loads none of the outer plugins."""
    options = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "hypothesispytest")]
    return printed(lambda: pytest.main([*words, *options]))


def run_python(words: list[str]) -> tuple[int, str]:
    """Run a file, or the code after `-c`, as a program with its arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        if words[0] == "-c":
            return printed(lambda: exec(words[1], {"__name__": "__main__"}))  # noqa: S102 - a page's own code
        return printed(lambda: runpy.run_path(words[0], run_name="__main__"))


PROGRAMS: dict[str, Callable[[list[str]], tuple[int, str]]] = {
    "cd": change_folder,
    "export": export,
    "feed-assets": run_feed_assets,
    "pytest": run_pytest,
    "python": run_python,
}
"""What runs in this process; all else is bash's."""


def run_by_shell(command: str) -> tuple[int, str]:
    """Run a command in a process of bash."""
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def printed(call: Callable[[], object]) -> tuple[int, str]:
    """Call a function. Return its exit code, if it is a number, and its output."""
    output = StringIO()
    with redirect_stdout(output):
        code = call()
    return int(code) if isinstance(code, int) else 0, output.getvalue()


def check_is_accepted(command: str, environment: pytest.MonkeyPatch) -> None:
    """Raise an error of click unless each `feed-assets` in a command line exists with these options and arguments.

    A setting that is exported has to be one that `Settings` accepts.
    """
    for part in re.split(r"\||&&|;|\$\(", command):
        words = shlex.split(re.sub(r"\d?>+\s?\S+", "", part), comments=True)
        if words[:1] == ["export"]:
            check_is_setting(words[1:], environment)
        starts = [number for number, word in enumerate(words) if word.rpartition("/")[2] == "feed-assets"]
        for start in starts[:1]:
            parse(typer.main.get_command(app), words[start + 1 :])


def check_is_setting(words: list[str], environment: pytest.MonkeyPatch) -> None:
    """Raise InvalidSetting if a setting does not accept the exported value."""
    for word in words:
        environment.setenv(*word.split("=", 1))
    settings.cache_clear()
    Settings()


def parse(command: Command, words: list[str]) -> None:
    """Parse the words after a command's name as click would. Raise a UsageError if it would refuse them."""
    context = Context(command, info_name=command.name)
    options, rest, _ = command.make_parser(context).parse_args([*words])
    if getattr(command, "commands", None) and rest and rest[0] in command.commands:
        return parse(command.commands[rest[0]], rest[1:])
    context.args = []
    lacking = [p.name for p in command.params if p.required and options.get(p.name or "") in (None, (), [])]
    assert not lacking, f"{' '.join(words)}: lacks {lacking}"
    assert not rest, f"{' '.join(words)}: {rest} belong to nothing"
    return None

"""The tutorial as its reader does it: its files are written, its commands run in order, their output compared."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.settings import settings
from feed_assets_tests.support.page_commands import run_pytest

TEXT = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
BY_THE_READER = {"title=install", "title=pytest", "title=browser"}
"""Blocks that only the reader runs: they install what is installed here, or start the web UI (tested elsewhere)."""

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide the reader's new folder, with no home but the one in it."""
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    new = tmp_path / "ice"
    new.mkdir()
    monkeypatch.chdir(new)
    settings.cache_clear()
    yield new
    for name in [name for name in sys.modules if name.split(".")[0] in {"shop", "conftest", "test_sold"}]:
        del sys.modules[name]


def run(command: str) -> tuple[int, str]:
    """Run a line like a shell, but `feed-assets` and `pytest` in this process, whose Spark is warm."""
    program, *words = shlex.split(command)
    if program == "feed-assets":
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.stdout
    if program == "pytest":
        return run_pytest(words)
    if program == "cd":
        os.chdir(*words)
        return 0, ""
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S602
    return done.returncode, done.stdout


def is_said(line: str, found: str) -> bool:
    """Return True if an output line matches the tutorial, where `…` stands for the rest of it."""
    return found.startswith(line[:-1]) if line.endswith("…") else found == line


def test_the_tutorial_does_what_it_says(folder: Path) -> None:
    said: list[str] = []
    for language, note, text in BLOCKS:
        if language == "sh" and note not in BY_THE_READER:
            for command in text.splitlines():
                code, output = run(command)
                assert code == (3 if note == "exit=3" else 0), f"{command}: {output}"
                said += output.rstrip().splitlines()
        elif language == "text":
            for line in text.splitlines():
                assert any(is_said(line.rstrip(), each.rstrip()) for each in said), f"{line!r} is not in {said}"
            said.clear()
        elif note.startswith("title=") and note not in BY_THE_READER:
            path = Path(note.removeprefix("title="))
            if path.exists():  # by `init`
                assert path.read_text(encoding="utf-8") == text
            path.write_text(text, encoding="utf-8")


def test_every_block_is_run_written_or_compared() -> None:
    assert {language for language, _, _ in BLOCKS} == {"sh", "text", "python"}
    assert all(note.startswith("title=") for language, note, _ in BLOCKS if language == "python")
    assert {note for language, note, _ in BLOCKS if language == "sh"} == {"", "exit=3", *BY_THE_READER}

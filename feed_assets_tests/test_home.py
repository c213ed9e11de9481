"""Home folder: the one in the environment, else one beside the project's file, from any folder of the project."""

import os
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.home import home, say_who_reads
from feed_assets_tests.support.each_case import each_case

PROJECT = '[tool.dg.project]\nroot_module = "shop"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, below one with a project."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    below = tmp_path / "shop" / "tests"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return below


@pytest.fixture
def belongs_to_another(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function that gives a file or folder to another user, as far as `lstat` shows."""
    lstat, others = Path.lstat, set[Path]()
    monkeypatch.setattr(Path, "lstat", lambda path: SimpleNamespace(st_uid=4711) if path in others else lstat(path))
    return others.add


def test_below_a_project_the_home_is_that_of_the_project_unless_another_user_put_it_there(
    folder: Path, belongs_to_another: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
):
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    assert home() == folder.parent / ".feed_assets"
    belongs_to_another(folder.parent / "pyproject.toml")
    assert home() == folder / ".feed_assets"
    assert "pyproject.toml is skipped: it belongs to the user 4711, and not to you" in capsys.readouterr().err


def test_a_file_that_names_no_module_is_no_project(folder: Path):
    (folder.parent / "pyproject.toml").write_text("[tool.ruff]\n")
    assert home() == folder / ".feed_assets"


def test_the_home_of_the_environment_takes_precedence_unless_it_is_another_users(
    folder: Path, monkeypatch: pytest.MonkeyPatch, belongs_to_another: Callable[[Path], None]
):
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    assert home() == folder
    belongs_to_another(folder)
    with pytest.raises(
        InvalidSetting, match=r"belongs to the user \d+: expected this user .* its dagster.yaml is code"
    ):
        home()


@pytest.mark.parametrize("text", [b"[tool", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(folder: Path, text: bytes):
    (folder.parent / "pyproject.toml").write_bytes(text)
    with pytest.raises(InvalidSetting, match=r"pyproject.toml is not TOML: .* Correct it, or pass -m\."):
        home()


@each_case(("mode", "is_said"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_token_printed_to_a_readable_file_causes_a_warning(mode, is_said):
    with TemporaryFile() as file, redirect_stderr(StringIO()) as said:
        os.fchmod(file.fileno(), mode)
        say_who_reads(file.fileno())
        assert ("chmod 600" in said.getvalue()) == is_said


def test_a_pipe_is_no_file_that_others_read(capsys: pytest.CaptureFixture[str]):
    for end in os.pipe():
        say_who_reads(end)
        os.close(end)
    assert capsys.readouterr().err == ""

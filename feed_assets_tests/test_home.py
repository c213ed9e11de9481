"""Where everything is kept: in the folder of the environment, else beside the project's file, from wherever in it."""

from pathlib import Path

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.home import home

PROJECT = '[tool.dg.project]\nroot_module = "shop"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below one with a project, which is the current one."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    below = tmp_path / "shop" / "tests"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return below


def test_below_a_project_it_is_that_of_the_project(folder: Path):
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    assert home() == folder.parent / ".feed_assets"


def test_a_file_that_names_no_module_is_no_project(folder: Path):
    (folder.parent / "pyproject.toml").write_text("[tool.ruff]\n")
    assert home() == folder / ".feed_assets"


def test_what_the_environment_says_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder.parent / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    assert home() == folder


@pytest.mark.parametrize("text", [b"[tool", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(folder: Path, text: bytes):
    (folder.parent / "pyproject.toml").write_bytes(text)
    with pytest.raises(InvalidSetting, match=r"pyproject.toml is no TOML: .* Mend it, or give -m\."):
        home()

"""Fixtures: each test has a home of its own and closes its Dagster instances."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import with_automation
from feed_assets.settings import settings
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.versioned_shop import Shop

Project = Callable[[Mapping[str, str]], dg.Definitions]


@pytest.fixture(autouse=True)
def world(home: Path) -> Iterator[Path]:
    """Return a fresh home, and close the instances of the test's harnesses at the end."""
    yield home
    sum_projects.opened.close()


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that changes settings: `setting(max_requests=2)`."""

    def change(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"FEED_ASSETS_{name.upper()}", str(value))
        settings.cache_clear()

    return change


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Return a function that writes files below `defs/` of a fresh project and loads it."""
    name = f"acme_{abs(hash(request.node.nodeid))}"
    root = tmp_path / "project"
    monkeypatch.syspath_prepend(str(root))

    def load(files: Mapping[str, str]) -> dg.Definitions:
        (root / name / "defs").mkdir(parents=True)
        (root / name / "__init__.py").touch()
        (root / "pyproject.toml").write_text(
            f'[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "{name}"\n'
            f'code_location_name = "{name}"\n'
        )
        for path, text in files.items():
            (root / name / "defs" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / name / "defs" / path).write_text(text)
        return with_automation(dg.load_from_defs_folder(path_within_project=root / name))

    yield load
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture
def shop(tmp_path):
    """Return a team that publishes events about its rows."""
    return Shop(tmp_path)


@pytest.fixture
def told():
    """Return a list in which a test's function notes the request of each run."""
    return []


@pytest.fixture
def patient(setting: Callable[..., None]) -> None:
    """Let a run have 99 attempts."""
    setting(max_attempts=99)


@pytest.fixture
def fresh(tmp_path, empty_ledger, monkeypatch):
    """Return a function that makes a folder with a home of its own for each history."""

    def make(seed):
        home = tmp_path / str(seed) / "home"
        (home / "blackboard").mkdir(parents=True)
        shutil.copyfile(empty_ledger, home / "ledger.db")
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        settings.cache_clear()
        return home.parent

    return make

"""Fixtures: each test has a home of its own and closes its Dagster instances."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from feed_assets.settings import settings
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.versioned_shop import Shop
from feed_assets_tests.support.yaml_projects import Project, new_project


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
    with new_project(tmp_path / "project", name, monkeypatch) as load:
        yield load


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

"""A world that is built once and copied into the home of each test."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support import sum_projects


def keep(folder: Path, build: Callable[[], object]) -> Path:
    """Build a world in a folder that is its home, and return the folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
            patch.delenv(name)
        patch.setenv("DAGSTER_HOME", str(folder))
        settings.cache_clear()
        build()
        sum_projects.opened.close()
        _close_ledger()
    settings.cache_clear()
    return folder


def restore(kept: Path, home: Path) -> None:
    """Put a kept world into a fresh home. Its files are hard links: these keep their etags, copies do not."""
    shutil.copytree(kept / "blackboard", home / "blackboard", copy_function=os.link, dirs_exist_ok=True)
    shutil.copyfile(kept / "ledger.db", home / "ledger.db")


def lose(home: Path) -> None:
    """Delete the ledger's file, as if its disk had gone."""
    _close_ledger()
    for file in home.glob("ledger.db*"):
        file.unlink()


def _close_ledger() -> None:
    open_ledger(settings().ledger).engine.dispose()
    open_ledger.cache_clear()

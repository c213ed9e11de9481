"""A ledger in a fresh file."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.ledger.database import Ledger, open_ledger


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's file after its migrations, which take a quarter of a second."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    open_ledger(f"sqlite:///{path}").engine.dispose()
    return path


@pytest.fixture
def ledger(tmp_path: Path, empty_ledger: Path) -> Iterator[Ledger]:
    """A fresh SQLite ledger on disk, as the embedded one is."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.engine.dispose()

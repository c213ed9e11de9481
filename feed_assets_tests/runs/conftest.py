"""A lake in a fresh folder, with the session of all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.runs.workbench import Workbench
from feed_assets_tests.runs.lakes import NOW, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's file after its migrations, which take a quarter of a second."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    open_ledger(f"sqlite:///{path}").engine.dispose()
    return path


@pytest.fixture
def ledger(tmp_path: Path, empty_ledger: Path) -> Iterator[Ledger]:
    """A fresh ledger on disk."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.engine.dispose()


@pytest.fixture
def lake(spark: "SparkSession", ledger: Ledger, local_board: Blackboard) -> Lake:
    """A lake on local disk."""
    return Lake(Workbench(local_board, ledger, lambda: spark, lambda: NOW))

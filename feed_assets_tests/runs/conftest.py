"""A lake in a fresh folder, with the session of all tests."""

from typing import TYPE_CHECKING

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import Ledger
from feed_assets.runs.services import Services
from feed_assets_tests.support.build_lake import NOW, Lake, with_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(spark: "SparkSession", ledger: Ledger, local_board: Blackboard) -> Lake:
    """Return a lake on local disk."""
    return Lake(Services(local_board, ledger, with_spark(spark), lambda: NOW))

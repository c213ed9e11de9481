"""Spark of a process that lost its compute target: the next run starts another, and blames no other target."""

from contextlib import contextmanager
from unittest.mock import MagicMock

import pytest
import sqlalchemy as sa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from feed_assets.core.errors import SparkUnavailable
from feed_assets.core.targets import Standalone
from feed_assets.ledger.tables import probe
from feed_assets.orchestration.execute import run_target
from feed_assets.runs.services import utc_now
from feed_assets.runs.target_watch import TargetWatch
from feed_assets.spark.guarded import refuse_an_ended_one

TARGET = Standalone(kind="standalone", master="spark://127.0.0.1:9", url="http://127.0.0.1:9")


@pytest.fixture
def ended(monkeypatch):
    """Return the context of this process, whose session has ended in the JVM."""
    context = MagicMock(_jsc=None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # Else this stops the session of other tests.
    return context


@contextmanager
def session():
    refuse_an_ended_one()
    yield


def test_a_process_that_cannot_start_another_spark_blames_no_target(ledger, ended):
    watch = TargetWatch(ledger, "etl-a", TARGET, "allocation", utc_now)
    with pytest.raises(SparkUnavailable, match="start the command again"), watch(session()):
        pass
    with ledger.read() as connection:
        assert connection.execute(sa.select(probe)).all() == []


def test_a_context_that_was_stopped_in_the_jvm_is_stopped_here_too(ended):
    run_target._stop_spark()
    ended.stop.assert_called_once_with()
    ended.stop.side_effect = Py4JError("the JVM has ended")
    run_target._stop_spark()

"""The watch on a run's compute target: what ends a run as lost, what is its own failure, and what blames nobody."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Event
from unittest.mock import MagicMock

import pytest
import sqlalchemy as sa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from feed_assets.core.attempts import ABANDONED, FAILED, end_of, is_outage
from feed_assets.core.errors import SparkDied, SparkUnavailable, StartRefused, TargetLost
from feed_assets.core.targets import Local, Standalone
from feed_assets.ledger import allocations, target_probes
from feed_assets.ledger.tables import allocation, probe
from feed_assets.orchestration.execute import run_target
from feed_assets.runs import target_watch
from feed_assets.runs.services import utc_now
from feed_assets.runs.target_watch import TargetWatch
from feed_assets.spark.guarded import refuse_an_ended_one
from feed_assets.targets import probes
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.target_doubles import http_double, master, worker

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DOWN = (503, b"")
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
    watch = TargetWatch(ledger, "etl-a", TARGET, "allocation", utc_now, dataset="t/sums/v1.0")
    with pytest.raises(SparkUnavailable, match="start the command again"), watch(session()):
        pass
    with ledger.read() as connection:
        assert connection.execute(sa.select(probe)).all() == []


def test_a_context_that_was_stopped_in_the_jvm_is_stopped_here_too(ended):
    run_target._stop_spark()
    ended.stop.assert_called_once_with()
    ended.stop.side_effect = Py4JError("the JVM has ended")
    run_target._stop_spark()


# A cluster that answers, or does not


@pytest.fixture
def cluster():
    with http_double(**{"/json/": master(worker(8, 2))}) as double:
        yield double


@pytest.fixture
def watch_on(ledger, cluster):
    """Return a function that makes the watch of a run. Each look at its clock is a quarter of a minute later."""
    target = Standalone(kind="standalone", master="spark://h:7077", url=cluster.url)
    seconds = count(step=15)

    def watch(dataset="t/sums/v1.0", target=target):
        values = {"id": dataset, "target": "etl-a", "cores": 1, "memory": 1, "resources": "{}", "history": False}
        values |= {"output": dataset, "since": NOW, "at": NOW, "reason": "", "targets": "[]"}
        with ledger.write() as connection:
            allocations.end(connection, [dataset])
            connection.execute(sa.insert(allocation).values(values))
        return TargetWatch(
            ledger, "etl-a", target, dataset, lambda: NOW + timedelta(seconds=next(seconds)), dataset=dataset
        )

    return watch


class RunningSpark:
    """A session with some executors, whose end is noticed."""

    def __init__(self, executors=0):
        self.stopped = Event()
        java = MagicMock(stop=self.stopped.set)
        java.getExecutorMemoryStatus.return_value.size.return_value = 1 + executors
        self.sparkContext = MagicMock()
        self.sparkContext._jsc.sc.return_value = java


@contextmanager
def started(spark):
    yield spark


@contextmanager
def refused(says="java.lang.IllegalArgumentException: spark.task.cpus must be <= 1"):
    error = SparkUnavailable(f"Spark does not start: {says}")
    error.refusal = says
    raise error
    yield


def closed(ledger, cluster):
    """Return why the target gets no run, by an answer of this moment."""
    target = Standalone(kind="standalone", master="spark://h:7077", url=cluster.url)
    with ledger.read() as connection:
        lost = connection.execute(sa.select(probe.c.lost)).scalar()
    return probes.ask_again(ledger, "etl-a", target, lost or NOW).offline


def test_a_spark_that_the_watch_has_stopped_was_lost_although_the_cluster_is_back(
    ledger, cluster, watch_on, monkeypatch
):
    monkeypatch.setattr(target_watch, "LOOK_SECONDS", 0.01)
    watch, spark = watch_on(), RunningSpark()
    with pytest.raises(TargetLost, match="503"), watch(started(spark)):
        _restart(cluster, spark.stopped, SparkDied("Spark ended while this run used it."))
    assert closed(ledger, cluster) == target_probes.LOST
    monkeypatch.setattr(SparkContext, "_active_spark_context", MagicMock(_jsc=None))
    with pytest.raises(TargetLost, match="503"), watch(session()):  # The next partition of the run: no outage.
        pass


def test_a_spark_that_died_while_its_master_was_restarted_was_lost(cluster, watch_on, monkeypatch):
    monkeypatch.setattr(target_watch, "LOOK_SECONDS", 0.01)
    looked = Event()
    silent = target_watch._has_executors
    monkeypatch.setattr(target_watch, "_has_executors", lambda spark: looked.set() or silent(spark))
    for raised, ends in ((SparkDied("Spark ended"), TargetLost), (ValueError("of the function"), ValueError)):
        looked.clear()
        with pytest.raises(ends), watch_on()(started(RunningSpark(executors=1))):
            _restart(cluster, looked, raised)


def test_a_run_without_executors_ends_although_its_target_answers(ledger, cluster, watch_on, monkeypatch):
    monkeypatch.setattr(target_watch, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(target_watch, "ALONE_LOOKS", 5)
    for dataset in ("t/a/v1.0", "t/a/v1.0", "t/b/v1.0"):
        assert closed(ledger, cluster) is None, "one dataset that gets no executor closes no target"
        watch, spark = watch_on(dataset), RunningSpark()
        with pytest.raises((StartRefused, TargetLost)) as ended, watch(started(spark)):
            _end_when(spark.stopped)
        assert "no executor in " in str(ended.value)
        with pytest.raises(type(ended.value), match="no executor in "):  # The next partition of the run.
            watch(started(RunningSpark())).__enter__()
        assert end_of(ended.value) == (FAILED if dataset == "t/a/v1.0" else ABANDONED)
        assert ("executors that reach the driver at" in str(ended.value)) == (dataset == "t/a/v1.0")
    assert closed(ledger, cluster) == target_probes.FAULTY


def test_a_run_that_has_lost_its_executors_and_gets_no_other_gives_up_its_target(
    ledger, cluster, watch_on, monkeypatch
):
    monkeypatch.setattr(target_watch, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(target_watch, "ALONE_LOOKS", 5)
    looks, spark = count(), RunningSpark()
    monkeypatch.setattr(target_watch, "_has_executors", lambda _: next(looks) < 1)
    with pytest.raises(TargetLost, match=r"lost its executors, and got no other for "), watch_on()(started(spark)):
        _end_when(spark.stopped)
    assert closed(ledger, cluster) == target_probes.LOST
    looks, looked_often = count(), Event()
    monkeypatch.setattr(target_watch, "_has_executors", lambda _: next(looks) < 20 or looked_often.set())
    spark = RunningSpark(executors=1)
    with watch_on()(started(spark)):
        assert looked_often.wait(30)
        assert not spark.stopped.is_set()


def _end_when(stopped):
    assert stopped.wait(30)
    raise SparkDied("Spark ended while this run used it.")


def _restart(cluster, noticed, error):
    """Let the cluster be silent until the watch has noticed this. Then raise the error by which the run ends."""
    cluster.answers["/json/"] = DOWN
    assert noticed.wait(30)
    cluster.answers["/json/"] = master(worker(8, 8))
    raise error


def test_a_start_that_spark_refuses_is_an_attempt_and_only_several_datasets_close_the_target(ledger, cluster, watch_on):
    for _ in range(2):
        with pytest.raises(
            StartRefused, match=r"etl-a, which answers: .*spark\.task\.cpus .*FEED_ASSETS_TARGETS"
        ) as info:
            watch_on("t/a/v1.0")(refused()).__enter__()
        assert (end_of(info.value), is_outage(StartRefused.__name__)) == (FAILED, False)
        assert closed(ledger, cluster) is None
    with watch_on("t/b/v1.0")(started(RunningSpark())):
        pass
    with pytest.raises(StartRefused):
        watch_on("t/c/v1.0")(refused()).__enter__()
    assert closed(ledger, cluster) is None
    with pytest.raises(TargetLost, match=r"two datasets.*spark\.task\.cpus") as lost:
        watch_on("t/d/v1.0")(refused()).__enter__()
    assert (end_of(lost.value), closed(ledger, cluster)) == (ABANDONED, target_probes.FAULTY)
    with watch_on("t/b/v1.0")(started(RunningSpark())):  # It was granted before.
        pass
    assert closed(ledger, cluster) is None


@each_case(
    ("kind", "answer", "error", "ends"),
    [
        ("standalone", DOWN, "refused", TargetLost),
        ("standalone", None, "no java", SparkUnavailable),
        ("local", None, "refused", StartRefused),
        ("local", None, "no java", SparkUnavailable),
    ],
)
def test_only_what_spark_refuses_blames_the_run_and_only_silence_the_target(
    cluster, watch_on, kind, answer, error, ends
):
    cluster.answers["/json/"] = answer or master(worker(8, 8))
    target = Standalone(kind="standalone", master="spark://h:7077", url=cluster.url)
    target = Local(kind="local", cores=2, memory="2g") if kind == "local" else target
    opened = refused() if error == "refused" else without_java()
    with pytest.raises(ends) as info:
        watch_on(target=target)(opened).__enter__()
    assert type(info.value) is ends


@contextmanager
def without_java():
    raise SparkUnavailable("found no Java: expected Java 17.")
    yield

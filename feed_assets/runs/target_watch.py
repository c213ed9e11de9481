"""A watch on the compute target of a run. If the target has died, the watch ends Spark and names the cause.

Without the watch, a run on a dead cluster would wait for its executors for ever.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import SparkDied, SparkUnavailable, StartRefused, TargetLost
from feed_assets.core.message_words import sentence
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import ComputeTarget, Connect, Local
from feed_assets.ledger import allocations, resource_queue, target_probes
from feed_assets.ledger.database import Ledger
from feed_assets.targets import probes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LOOK_SECONDS = resource_queue.LOOK_AGAIN.total_seconds()
"""Seconds between two checks of the target."""

OFFLINE_LOOKS = 2
"""Number of consecutive checks without an answer after which a target without executors counts as dead."""

ALONE_LOOKS = 30
"""Number of consecutive checks without an executor after which a run ends, although its target answers.

A restarted master may have forgotten the run, the target may have no room, or executors do not reach the driver.
"""

_CONFIGURATION = (
    "Expected a configuration that Spark accepts there. Correct the target's `conf` in FEED_ASSETS_TARGETS, "
    "FEED_ASSETS_SPARK_CONF, the run's Spark profile, or the dataset's resources. The run's stderr has all that Spark "
    'said: "All masters are unresponsive" may mean another spark.authenticate.secret.'
)


@dataclass
class _WatchState:
    """Findings of a run's watch: the reason why the target is lost, and the reason why it last gave no answer."""

    lost: str | None = None
    silent: str | None = None
    unstarted: tuple[str, str] | None = None
    """Why no executor has started, and what was expected."""


@dataclass(frozen=True)
class TargetWatch:
    """The watch on one run's target, for all of its partitions. `allocation` is the id of the run's resources."""

    ledger: Ledger
    name: str
    target: ComputeTarget
    allocation: str
    now: Callable[[], datetime]
    dataset: str = field(kw_only=True)
    _state: _WatchState = field(default_factory=_WatchState, init=False)

    @contextmanager
    def __call__(self, opened: "AbstractContextManager[SparkSession]") -> "Generator[SparkSession]":
        """Yield the session.

        Raise TargetLost if the target is offline, or if Spark does not start on it for other datasets either. If the
        target answers, but Spark or its executors do not start, raise StartRefused. Raise SparkUnavailable if this
        process cannot start another Spark, which is not the target's fault.
        """
        from feed_assets.spark.guarded import refuse_an_ended_one  # PySpark takes a second to load

        if self._state.lost:  # Another partition of the run, or the watch, has found the target lost.
            raise self._as_lost(self._state.lost)
        if unstarted := self._unstarted():
            raise unstarted
        refuse_an_ended_one()
        is_up = False
        try:
            with opened as spark:
                is_up = True
                self.is_up()
                with self._watching(spark):
                    yield spark
        except OF_ITS_OWN as error:
            if unstarted := self._unstarted():
                raise unstarted from error
            if cause := self._silence(error):
                raise self.lost(cause) from error
            if not is_up and isinstance(error, SparkUnavailable) and error.refusal:
                raise self._refused(error.refusal, _CONFIGURATION) from error
            raise
        else:
            target_probes.note_work(self.ledger, self.name)

    def is_up(self) -> None:
        """Record that the run's Spark session is up, so that later answers of the target count its executors."""
        allocations.session_is_up(self.ledger, self.allocation, self.now())

    def lost(self, why: str) -> TargetLost:
        """Record the target as lost, so that no other run uses it for a while. Return the error for this run."""
        self._state.lost = why
        target_probes.lose(self.ledger, self.name, self.now())
        return self._as_lost(why)

    def _silence(self, error: BaseException) -> str | None:
        """Return the reason if the target is lost, otherwise None.

        If the target did not answer when Spark ended, it is lost for this run even if it answers again now: it may have
        restarted, and then the run has no resources there.
        """
        if isinstance(self.target, Local):
            return None
        if before := self._state.lost or (self._state.silent if isinstance(error, SparkDied) else None):
            return before
        if isinstance(self.target, Connect) and type(error) is SparkUnavailable and not error.refusal:
            return "Spark could not reach it"
        probe = probes.ask_again(self.ledger, self.name, self.target, self.now())
        return probe.offline if _is_silent(probe) else None

    def _unstarted(self) -> StartRefused | TargetLost | None:
        return self._refused(*self._state.unstarted) if self._state.unstarted else None

    def _refused(self, why: str, expected: str) -> StartRefused | TargetLost:
        """Return the error for a run whose Spark does not start: TargetLost if the target is to blame, or StartRefused.

        It is to blame if Spark could not start for another dataset either, and no dataset has worked there since.
        """
        if target_probes.note_refusal(self.ledger, self.name, self.dataset, self.now()):
            self._state.lost = f"{target_probes.FAULTY}: {sentence(why)[:-1]}"
            return self._as_lost(self._state.lost)
        return StartRefused(
            f"Spark does not start on the compute target {self.name}, which answers: {sentence(why)} {expected}"
        )

    def _as_lost(self, why: str) -> TargetLost:
        return TargetLost(
            f"the compute target {self.name} was lost ({why}). The partition is tried on another target, or here once "
            "this one is back. Look at the processes and logs of the target."
        )

    @contextmanager
    def _watching(self, spark: "SparkSession") -> Generator[None]:
        if isinstance(self.target, Local | Connect):  # The client of Connect detects a server that has ended.
            yield
            return
        over = Event()
        thread = Thread(target=self._watch, args=(spark, over), name=f"watch on {self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _watch(self, spark: "SparkSession", over: Event) -> None:
        """Stop Spark if the run has had no executor for some minutes.

        If the target does not answer either, stop Spark after OFFLINE_LOOKS checks.
        """
        silent = alone = 0
        has_begun = False
        while not over.wait(LOOK_SECONDS):
            with suppress(Exception):  # An unreachable ledger must not end the watch.
                is_silent, is_alone = self._is_silent_now(), not _has_executors(spark)
                silent, alone = silent + 1 if is_silent and is_alone else 0, alone + 1 if is_alone else 0
                has_begun = has_begun or not is_alone
            if (silent < OFFLINE_LOOKS and alone < ALONE_LOOKS) or over.is_set():
                continue
            if silent >= OFFLINE_LOOKS:
                self._state.lost = self._state.silent
            elif has_begun:
                self._state.lost = f"the run has lost its executors, and got no other for {_alone()}"
            else:
                self._state.unstarted = f"no executor in {_alone()}", _reachable(spark)
            _log.warning("the compute target %s is given up: Spark is stopped", self.name)
            _java(spark).stop()
            return

    def _is_silent_now(self) -> bool:
        """Return whether the target gives no answer, and remember why."""
        probe = probes.answers(self.ledger, {self.name: self.target}, self.now()).get(self.name)
        if probe is None or not _is_silent(probe):
            return False
        self._state.silent = probe.offline
        return True


def _is_silent(probe: Probe) -> bool:
    """Return whether a target gives no answer. A target that another run reported lost is not silent if it answers."""
    return probe.offline not in {None, target_probes.LOST, target_probes.FAULTY}


def _alone() -> str:
    return f"{ALONE_LOOKS * LOOK_SECONDS / 60:.0f} minutes"


def _reachable(spark: "SparkSession") -> str:
    driver = spark.sparkContext.getConf().get("spark.driver.host")
    return (
        "Expected room there, all that the run's Spark configuration asks for, and executors that reach the driver at "
        f"{driver}. Look at the target's page and the executors' logs. If they do not reach it, set spark.driver.host."
    )


def _has_executors(spark: "SparkSession") -> bool:
    return _java(spark).getExecutorMemoryStatus().size() > 1  # One of them is the driver.


def _java(spark: "SparkSession") -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc()

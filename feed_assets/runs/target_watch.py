"""A watch on the compute target of a run: it ends Spark if the target has died, and names this as the run's end.

Without the watch, a run on a dead cluster would wait for its executors for ever.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from feed_assets.core.allotment import Probe
from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import SparkDied, SparkUnavailable, TargetLost
from feed_assets.core.targets import ComputeTarget, Connect, Local
from feed_assets.ledger import allocations, target_probes
from feed_assets.ledger.database import Ledger
from feed_assets.targets import probes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LOOK_SECONDS = allocations.LOOK_AGAIN.total_seconds()
"""Seconds between two looks at the target."""

OFFLINE_LOOKS = 2
"""Number of looks in a row without an answer after which a target without executors counts as dead."""


@dataclass(frozen=True)
class TargetWatch:
    """The watch on one run's target. `allocation` is the id of the run's resources."""

    ledger: Ledger
    name: str
    target: ComputeTarget
    allocation: str
    now: Callable[[], datetime]

    @contextmanager
    def __call__(self, opened: "AbstractContextManager[SparkSession]") -> "Generator[SparkSession]":
        """Yield the session. Raise TargetLost for any error if the target is offline, or could not start Spark.

        Raise SparkUnavailable if this process cannot start another Spark, which is not the target's fault.
        """
        from feed_assets.spark.guarded import refuse_an_ended_one  # PySpark takes a second to load

        refuse_an_ended_one()
        is_up = False
        try:
            with opened as spark:
                is_up = True
                self.is_up()
                with self._watching(spark):
                    yield spark
        except OF_ITS_OWN as error:
            if lost := self._lost(error, is_up=is_up):
                raise lost from error
            raise

    def _lost(self, error: BaseException, *, is_up: bool) -> TargetLost | None:
        """Return the error of a lost target, and keep other runs from it for a while. Return None if it is alive."""
        if isinstance(self.target, Local):
            return None
        probe = probes.ask_again(self.ledger, self.name, self.target, self.now())
        has_not_started = isinstance(error, SparkUnavailable) and not isinstance(error, SparkDied) and not is_up
        if not _is_silent(probe) and not has_not_started:
            return None
        detail = f": {str(error).rstrip('.')}" if has_not_started else ""
        return self.lost(probe.offline if _is_silent(probe) else "it could not start Spark", detail)

    def is_up(self) -> None:
        """Record that the run has its executors, so that later answers of the target count them."""
        allocations.session_is_up(self.ledger, self.allocation, self.now())

    def lost(self, why: str | None, detail: str = "") -> TargetLost:
        """Keep other runs from the target for a while, and return the error of the run."""
        target_probes.lose(self.ledger, self.name, self.now())
        return TargetLost(
            f"the compute target {self.name} was lost ({why}){detail}. The partition is tried on another "
            "target, or here once this one is back. See what has become of it."
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
        """Stop Spark once the target is silent and the run has no executor left. A master alone may be restarted."""
        silent = 0
        while not over.wait(LOOK_SECONDS):
            with suppress(Exception):  # An unreachable ledger must not end the watch.
                silent = silent + 1 if self._is_dead(spark) else 0
            if silent >= OFFLINE_LOOKS and not over.is_set():
                _log.warning("the compute target %s is dead: Spark is stopped", self.name)
                _java(spark).stop()
                return

    def _is_dead(self, spark: "SparkSession") -> bool:
        probe = probes.answers(self.ledger, {self.name: self.target}, self.now()).get(self.name)
        return probe is not None and _is_silent(probe) and not _has_executors(spark)


def _is_silent(probe: Probe) -> bool:
    """Return whether a target gives no answer. One that another run has lost, but that answers, is not silent."""
    return probe.offline is not None and probe.offline != target_probes.LOST


def _has_executors(spark: "SparkSession") -> bool:
    return _java(spark).getExecutorMemoryStatus().size() > 1  # One of them is the driver.


def _java(spark: "SparkSession") -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc()

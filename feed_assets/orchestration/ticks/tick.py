"""One tick of a sensor: named steps one after the other, with one time budget and one result for Dagster.

If one dataset, source, feed or sink fails, its step notes a problem and continues with the others. An alert opens for
the problem. If a whole step raises an error, the next steps are still taken, but no run is requested. Then the tick
fails, and the UI shows the error.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from threading import BoundedSemaphore, Event, Lock, Thread
from time import monotonic, sleep

import dagster as dg

from feed_assets.core.errors import LedgerUnavailable, SourceUnavailable, in_short
from feed_assets.core.feeds import Partition
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import NAMED, WAITING, Verdict
from feed_assets.ledger import alerts, log
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.reported_reasons import forget
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings

FAILING = "failing"
"""The kind of alerts for failures of a sensor's last tick: `failing:<sensor>:<subject>`."""

PROBLEM = "problem_of"
"""Attribute of a log record with the subject of a tick's problem. `feed-assets run` prints the subject."""

REPORTS = 500
"""Greatest number of reports to Dagster per tick."""

REPORT_SECONDS = 0.02
"""Seconds that one report takes: half in the sensor, and half in Dagster after the sensor has returned."""

FEWEST_REPORTS = 10
"""Number of reports that a tick makes even if its time is over.

So a sensor whose ticks are always late makes progress.
"""

LISTEN_SECONDS = 4.0
"""Seconds for which a tick without results listens for changes, counted from the tick's start.

Dagster's daemon ticks every five seconds.
"""

LOOKS_PER_SECOND = 10
"""Number of times per second that a listening tick checks the log for changes. A check is one indexed query."""

REST_SECONDS = 0.5
"""Least seconds between two rounds of a tick, so that changes in quick succession are handled together."""

LISTENERS = BoundedSemaphore(2)
"""Limit on the ticks that listen at the same time in one process.

Each of these ticks occupies a thread of the code server, which may have only six threads.
"""

OutOfTime = Callable[[], bool]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Budget:
    """The time of one tick, starting now: `seconds` for all its steps and for Dagster's work on the result."""

    seconds: float
    started: float = field(default_factory=monotonic)

    def out_of_time(self, share: float) -> OutOfTime:
        """Return a function that returns whether a share of the time, counted from the start, is over."""
        return lambda: monotonic() > self.started + share * self.seconds

    @property
    def reports(self) -> int:
        """Return how many reports Dagster can store in the remaining time."""
        seconds = self.started + self.seconds - monotonic()
        return min(REPORTS, max(FEWEST_REPORTS, int(seconds / REPORT_SECONDS)))


@dataclass(frozen=True)
class Listening:
    """State shared by a listening tick and its threads. The tick finds in the log what the threads record.

    A thread holds `recording` while it has more to record. The tick waits for this lock, to decide all changes
    together.
    """

    ends: float
    recording: Lock = field(default_factory=Lock)
    over: Event = field(default_factory=Event)

    def seconds_left(self) -> float:
        """Return the remaining seconds of listening. Return 0 once listening has ended."""
        return 0 if self.over.is_set() else max(self.ends - monotonic(), 0)

    def is_over(self) -> bool:
        """Return whether listening has ended."""
        return not self.seconds_left()

    def wait_for_all(self) -> None:
        """Wait until no thread is recording, or the time is over."""
        if self.recording.acquire(timeout=self.seconds_left()):
            self.recording.release()


@dataclass
class Tick:
    """State shared by the steps of one tick, and their results for later steps and for Dagster."""

    context: dg.SensorEvaluationContext
    graph: Graph
    ledger: Ledger
    now: datetime
    budget: Budget
    source: str | None
    """The event source of the sensor. None if the sensor belongs to no event source."""
    decided: list[tuple[DueOutput, Verdict]] = field(default_factory=list[tuple[DueOutput, Verdict]])
    busy: Collection[Partition] = ()
    """Outputs that were in progress before the decision."""
    requests: Sequence[dg.RunRequest] = ()
    reports: Sequence[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = ()
    reported_waits: list[DueOutput] = field(default_factory=list[DueOutput])
    """Waiting outputs among the reports. If the tick fails, they count as unreported."""
    partitions: Sequence[dg.AddDynamicPartitionsRequest] = ()
    """Partitions that Dagster must add after the tick."""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """Failures by subject."""
    position: str = ""
    """The log position of this tick. Once Dagster has stored the tick's reports, it has all reports up to here."""
    is_complete: bool = True
    """True if no step has left work for the next tick."""
    raised: Exception | None = None
    """The error of the first step that failed as a whole."""
    last_logged: int = 0
    """The number of the last log change before this round."""
    beside: list[Callable[[Listening], None]] = field(default_factory=list[Callable[[Listening], None]])
    """Functions that run while the tick listens, each in its own thread."""
    unreadable: str = ""
    """The reason why no part of the event source could be read. '' means that some part could be read."""

    @property
    def may_listen(self) -> bool:
        """Return whether this tick may wait for log changes.

        Waiting would delay the tick's results, so the tick must have none. Waiting must not delay other sensors either,
        so the daemon must evaluate each sensor in its own thread. A tick that the daemon does not evaluate, such as a
        tick of a test, never waits.
        """
        has_something = self.has_effect or self.raised or self.unreadable
        is_by_daemon = self.context.last_sensor_start_time is not None
        has_threads = bool(self.context.instance.get_sensor_settings().get("use_threads"))
        return self.is_complete and not has_something and is_by_daemon and has_threads

    @property
    def has_effect(self) -> bool:
        """Return whether Dagster would lose results if the tick failed."""
        return bool(self.requests or self.reports or self.partitions)

    @property
    def message(self) -> str:
        """Return the message of a tick that requests nothing."""
        waiting = [verdict for _, verdict in self.decided if verdict.state in WAITING]
        if not waiting:
            return "There is nothing new to run. `feed-assets explain` shows what waits, and why."
        first = shortened([f"{each.output} {each.state.value}: {each.reason}" for each in waiting], NAMED)
        return f"{len(waiting)} of {len(self.decided)} outputs decided now are waiting: {first}"

    @cached_property
    def services(self) -> Services:
        """Return the services, opened on first use.

        So a tick that needs no blackboard, such as a tick for alerts, does not open the blackboard.
        """
        return Services.of(settings(), elsewhere=self.graph.elsewhere)

    @property
    def cursor(self) -> str:
        """Return the sensor's cursor: the log position, and the number of ticks so far that left work.

        A greater number than in the last cursor shows that this tick leaves work.
        """
        _, _, unfinished = (self.context.cursor or "").partition("/")
        return f"{self.position}/{int(unfinished or 0) + (not self.is_complete)}"


@dataclass(frozen=True)
class Step:
    """A part of a tick: its function, and the share of the tick's time after which the step must end."""

    name: str
    ends: float
    take: Callable[[Tick, OutOfTime], None]
    hears: bool = False
    """True if the step handles log changes. A listening tick takes it again after each change."""


def evaluate(context: dg.SensorEvaluationContext, steps: Sequence[Step], source: str | None) -> dg.SensorResult:
    """Take these steps. Return their requests and reports. Raise a step's error after the last step.

    Dagster drops requests, reports and cursor of a tick that fails. So if an event source cannot be read at all, raise
    SourceUnavailable only in a tick that has no results to lose. A tick with results succeeds, and a later tick fails.
    The tick uses Dagster's current time, so that Dagster and the decisions see the same partitions.
    """
    graph, ledger = graph_of(context), open_ledger(settings().ledger)
    tick = _look(
        Tick(context, graph, ledger, now=utc_now(), budget=Budget(settings().tick_seconds), source=source), steps
    )
    tick = _listened(tick, [each for each in steps if each.hears])
    if tick.raised:
        forget(ledger, tick.reported_waits)
        raise tick.raised
    if tick.unreadable and tick.is_complete and not tick.has_effect:
        raise SourceUnavailable(f"the event source {source}: {tick.unreadable}")
    return dg.SensorResult(
        run_requests=[*tick.requests],
        skip_reason=None if tick.requests else tick.message,
        asset_events=[*tick.reports],
        dynamic_partitions_requests=[*tick.partitions],
        cursor=tick.cursor,
    )


def location_of(context: dg.SensorEvaluationContext) -> str:
    """Return the name of the code location that the daemon ticks. Return '' for a tick in process, such as a test's."""
    return context.code_location_origin.location_name if context.code_location_origin else ""


def graph_of(context: dg.SensorEvaluationContext) -> Graph:
    """Return the graph of a sensor's code location."""
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError(
            f"{context.sensor_name} needs definitions: build its context with them."
        )
    return Graph(context.repository_def.asset_graph)


def _look(tick: Tick, steps: Sequence[Step]) -> Tick:
    """Run the steps of a tick with one current time, which Dagster also uses. Report the problems of the steps."""
    with dg.partition_loading_context(dynamic_partitions_store=tick.context.instance) as loading:
        with tick.ledger.read() as connection:
            tick = replace(tick, now=loading.effective_dt, last_logged=log.last(connection))
        for step in steps:
            _take(step, tick)
        _tell_problems(tick)
    return tick


def _listened(tick: Tick, hearing: Sequence[Step]) -> Tick:
    """Listen for log changes, if the tick may, and take the steps in `hearing` after each change.

    Return the resulting tick.
    """
    if not hearing or not tick.may_listen or not LISTENERS.acquire(blocking=False):
        return tick
    listening = Listening(tick.budget.started + LISTEN_SECONDS)
    try:
        for each in tick.beside:
            Thread(target=each, args=(listening,), name="beside a tick", daemon=True).start()
        while tick.may_listen and _has_heard(tick, listening):
            tick = _look(replace(tick, decided=[]), hearing)
        return tick
    finally:
        listening.over.set()
        LISTENERS.release()


def _has_heard(tick: Tick, listening: Listening) -> bool:
    """Wait for a new log change, which any process may record.

    Return whether a change was recorded before the wait ended.
    """
    try:
        sleep(REST_SECONDS)
        while listening.seconds_left():
            with tick.ledger.read() as connection:
                if log.has_after(connection, tick.last_logged):
                    listening.wait_for_all()
                    return True
            sleep(1 / LOOKS_PER_SECOND)
    except LedgerUnavailable as error:  # this tick has no results to lose, and the next one reports the error
        _logger.warning("the sensor %s has stopped listening: %s", tick.context.sensor_name, error)
    return False


def _take(step: Step, tick: Tick) -> None:
    try:
        step.take(tick, tick.budget.out_of_time(step.ends))
    except Exception as error:
        _logger.exception("the step '%s' of the sensor %s failed", step.name, tick.context.sensor_name)
        tick.problems[f"step {step.name}"] = in_short(error)
        tick.raised = tick.raised or error


def _tell_problems(tick: Tick) -> None:
    """Log the problems of a tick, and update its alerts.

    Each tick tries everything, so the alert of a problem resolves if the problem did not occur again.
    """
    for whom, problem in tick.problems.items():
        tick.context.log.warning(f"{whom}: {problem}", extra={PROBLEM: whom})
    own_alerts = OwnAlerts(tick.graph, tick.ledger, tick.now)
    alerts.keep(tick.ledger, f"{FAILING}:{tick.context.sensor_name}", tick.problems, tick.now, own_alerts.has)

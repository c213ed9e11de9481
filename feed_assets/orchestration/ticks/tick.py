"""One tick of a sensor: named steps one after the other, on one budget of time, with one result for Dagster.

A failure of one dataset, source, feed or sink is a problem that its step notes, and an alert; the others continue. A
step that raises has failed as a whole: the steps after it are taken all the same, except the requests, and then the
tick fails, which the UI shows.
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
from feed_assets.orchestration.decide.alert_owner import Ours
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings

FAILING = "failing"
"""The kind of alerts for failures of a sensor's last tick: `failing:<sensor>:<what>`."""

PROBLEM = "problem_of"
"""Attribute of a tick's log record with the subject of its problem: a driver of the tick may print it itself."""

REPORTS = 500
"""Maximum number of reports to Dagster in one tick."""

REPORT_SECONDS = 0.02
"""Seconds that a report takes: half of it here, half of it in Dagster after the sensor has returned."""

FEWEST_REPORTS = 10
"""Reports that a tick makes even if its time is over: a tick that is always late must make progress."""

LISTEN_SECONDS = 4.0
"""Seconds from its start for which a tick with nothing to report listens: Dagster's daemon ticks every five."""

LOOKS_PER_SECOND = 10
"""Frequency with which a listening tick checks the log for a change: one statement, by the log's own index."""

REST_SECONDS = 0.5
"""Minimum seconds between two checks of a tick: changes that are recorded one after the other are handled together."""

LISTENERS = BoundedSemaphore(2)
"""Ticks that listen at a time in one process: each keeps a thread of its code server, which may have six."""

OutOfTime = Callable[[], bool]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Budget:
    """The time of one tick, from now on: `seconds` for all its steps and for what Dagster then does with the result."""

    seconds: float
    started: float = field(default_factory=monotonic)

    def out_of_time(self, share: float) -> OutOfTime:
        """Return a function that tests whether this share of the time is over."""
        return lambda: monotonic() > self.started + share * self.seconds

    @property
    def reports(self) -> int:
        """Return how many reports Dagster can store in the time that is left."""
        seconds = self.started + self.seconds - monotonic()
        return min(REPORTS, max(FEWEST_REPORTS, int(seconds / REPORT_SECONDS)))


@dataclass(frozen=True)
class Listening:
    """State that a listening tick shares with the threads beside it: what they record, the tick finds in the log.

    A thread that holds `recording` has more to record: the tick decides about all of it together.
    """

    ends: float
    recording: Lock = field(default_factory=Lock)
    over: Event = field(default_factory=Event)

    def seconds_left(self) -> float:
        """Return the seconds for which it still listens; 0 once it has ended."""
        return 0 if self.over.is_set() else max(self.ends - monotonic(), 0)

    def is_over(self) -> bool:
        """Return whether it listens no longer."""
        return not self.seconds_left()

    def wait_for_all(self) -> None:
        """Wait until nobody records, or the time is over."""
        if self.recording.acquire(timeout=self.seconds_left()):
            self.recording.release()


@dataclass
class Tick:
    """State that the steps of one tick share, and their results for later steps and for Dagster."""

    context: dg.SensorEvaluationContext
    graph: Graph
    ledger: Ledger
    now: datetime
    budget: Budget
    source: str | None
    """The event source of the sensor. None means all datasets and tables that no source's sensor covers."""
    decided: list[tuple[DueOutput, Verdict]] = field(default_factory=list[tuple[DueOutput, Verdict]])
    busy: Collection[Partition] = ()
    """Outputs that were in progress when it was decided."""
    requests: Sequence[dg.RunRequest] = ()
    reports: Sequence[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = ()
    reported_waits: list[DueOutput] = field(default_factory=list[DueOutput])
    """Waiting outputs among the reports; they count as unreported if the tick fails."""
    partitions: Sequence[dg.AddDynamicPartitionsRequest] = ()
    """Partitions that Dagster is to add once the tick is over."""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """Failures by their subjects."""
    position: str = ""
    """The position up to which Dagster has everything once it has stored this tick's reports."""
    is_complete: bool = True
    """True if no step has left something to the next tick."""
    raised: Exception | None = None
    """The error of the first step that failed as a whole."""
    last_logged: int = 0
    """The number of the last change before this check of the log."""
    beside: list[Callable[[Listening], None]] = field(default_factory=list[Callable[[Listening], None]])
    """Functions that run while the tick listens, each in a thread of its own."""
    unreadable: str = ""
    """The reason why nothing of the event source could be read; empty if something could."""

    @property
    def may_listen(self) -> bool:
        """Return whether there is nothing to report now, and the daemon has a thread for each sensor, so none waits.

        A driver other than the daemon evaluates a sensor again as soon as there is something.
        """
        has_something = self.has_effect or self.raised or self.unreadable
        is_by_daemon = self.context.last_sensor_start_time is not None
        has_threads = bool(self.context.instance.get_sensor_settings().get("use_threads"))
        return self.is_complete and not has_something and is_by_daemon and has_threads

    @property
    def has_effect(self) -> bool:
        """Return whether there is something that Dagster would drop if the tick failed."""
        return bool(self.requests or self.reports or self.partitions)

    @property
    def message(self) -> str:
        """Return the message of a tick that requests nothing."""
        waiting = [verdict for _, verdict in self.decided if verdict.state in WAITING]
        if not waiting:
            return "Nothing new is to be run. `feed-assets explain` says what waits, and why."
        first = shortened([f"{each.output} {each.state.value}: {each.reason}" for each in waiting], NAMED)
        return f"{len(waiting)} of {len(self.decided)} that were decided about now wait: {first}"

    @cached_property
    def services(self) -> Services:
        """Return the services, opened by the first step that needs the blackboard: alerts do without."""
        return Services.of(settings(), elsewhere=self.graph.elsewhere)

    @property
    def cursor(self) -> str:
        """Return the position, and the number of ticks that left work: a change of it shows the driver that one did."""
        _, _, unfinished = (self.context.cursor or "").partition("/")
        return f"{self.position}/{int(unfinished or 0) + (not self.is_complete)}"


@dataclass(frozen=True)
class Step:
    """A part of a tick: what it does, and the share of the tick's time by which it ends."""

    name: str
    ends: float
    take: Callable[[Tick, OutOfTime], None]
    hears: bool = False
    """True if it handles changes of the log, and so is taken again when there is one."""


def evaluate(context: dg.SensorEvaluationContext, steps: Sequence[Step], source: str | None) -> dg.SensorResult:
    """Take these steps, and return their requests and reports. Raise a step's error after the last one.

    Dagster drops requests, reports and cursor of a tick that fails. So an event source of which nothing can be read
    fails the tick (SourceUnavailable) only if it has none of these to lose: otherwise a later one. The moment is
    Dagster's own, so that partitions and decisions are of the same one.
    """
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError(
            f"{context.sensor_name} needs definitions: build its context with them."
        )
    graph, ledger = Graph(context.repository_def.asset_graph), open_ledger(settings().ledger)
    tick = _look(Tick(context, graph, ledger, utc_now(), Budget(settings().tick_seconds), source), steps)
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


def _look(tick: Tick, steps: Sequence[Step]) -> Tick:
    """Take these steps at one moment, which is Dagster's own, too, and report their problems."""
    with dg.partition_loading_context(dynamic_partitions_store=tick.context.instance) as loading:
        with tick.ledger.read() as connection:
            tick = replace(tick, now=loading.effective_dt, last_logged=log.last(connection))
        for step in steps:
            _take(step, tick)
        _tell_problems(tick)
    return tick


def _listened(tick: Tick, hearing: Sequence[Step]) -> Tick:
    """Return the tick after listening, if it may and there is room: it takes these steps at each change of the log."""
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
    """Wait for a change of the log since the last check; return whether there is one before the next tick is near.

    The change itself is the signal, whichever process records it: no other one is needed.
    """
    try:
        sleep(REST_SECONDS)
        while listening.seconds_left():
            with tick.ledger.read() as connection:
                if log.has_after(connection, tick.last_logged):
                    listening.wait_for_all()
                    return True
            sleep(1 / LOOKS_PER_SECOND)
    except LedgerUnavailable as error:  # The tick has nothing to lose, and the next one reports the error.
        _logger.warning("the sensor %s listens no longer: %s", tick.context.sensor_name, error)
    return False


def _take(step: Step, tick: Tick) -> None:
    try:
        step.take(tick, tick.budget.out_of_time(step.ends))
    except Exception as error:
        _logger.exception("the step '%s' of the sensor %s failed", step.name, tick.context.sensor_name)
        tick.problems[f"step {step.name}"] = in_short(error)
        tick.raised = tick.raised or error


def _tell_problems(tick: Tick) -> None:
    """Log the problems of a tick, and keep their alerts. It tries everything of its sensor, so former ones are over."""
    for whom, problem in tick.problems.items():
        tick.context.log.warning(f"{whom}: {problem}", extra={PROBLEM: whom})
    own_alerts = Ours(tick.graph, tick.ledger, tick.now)
    alerts.keep(tick.ledger, f"{FAILING}:{tick.context.sensor_name}", tick.problems, tick.now, own_alerts.has)

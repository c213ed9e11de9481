"""One tick of a sensor: named steps one after the other, on one budget of time, with one result for Dagster.

What fails for one dataset, source, feed or sink is a problem that its step notes, and an alert; the others go on. A
step that raises has failed as a whole: the steps after it are taken all the same, but for the requests, and then the
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
from feed_assets.core.readiness import NAMED, WAITING, Verdict
from feed_assets.core.words import some
from feed_assets.ledger import alerts, log
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.due import Listed
from feed_assets.ledger.told import forget
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.ours import Ours
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings

FAILING = "failing"
"""The kind of alerts that say what a sensor's last tick could not do: `failing:<sensor>:<what>`."""

PROBLEM = "problem_of"
"""Under which name a record of a tick's log has whom its problem concerns: who drives the tick may print it itself."""

REPORTS = 500
"""Reports to Dagster that one tick makes at most."""

REPORT_SECONDS = 0.02
"""What a report costs: half of it here, half of it Dagster after the sensor has returned."""

FEWEST_REPORTS = 10
"""Reports that a tick makes even if its time is over: a tick that is always late must come to an end."""

LISTEN_SECONDS = 4.0
"""Seconds from its start for which a tick with nothing to tell listens: Dagster's daemon comes by every five."""

LOOKS_PER_SECOND = 10
"""How often a tick that listens looks whether the log has a change: one statement, by the log's own index."""

REST_SECONDS = 0.5
"""Seconds from one look of a tick to the next at least: what is recorded one after the other is looked at together."""

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
        """What tells whether this share of the time is over."""
        return lambda: monotonic() > self.started + share * self.seconds

    @property
    def reports(self) -> int:
        """How many reports Dagster can store in the time that is left."""
        left = self.started + self.seconds - monotonic()
        return min(REPORTS, max(FEWEST_REPORTS, int(left / REPORT_SECONDS)))


@dataclass(frozen=True)
class Listening:
    """What a tick that listens shares with the threads beside it, which record what they hear: the log tells the tick.

    Who holds `recording` has more to record: the tick decides about all of it together.
    """

    ends: float
    recording: Lock = field(default_factory=Lock)
    over: Event = field(default_factory=Event)

    def left(self) -> float:
        """The seconds for which it still listens; 0 once it has ended."""
        return 0 if self.over.is_set() else max(self.ends - monotonic(), 0)

    def is_over(self) -> bool:
        """Whether it listens no longer."""
        return not self.left()

    def wait_for_all(self) -> None:
        """Wait until nobody records, or the time is over."""
        if self.recording.acquire(timeout=self.left()):
            self.recording.release()


@dataclass
class Tick:
    """What the steps of one tick share, and what they leave to those after them and to Dagster."""

    context: dg.SensorEvaluationContext
    graph: Graph
    ledger: Ledger
    now: datetime
    budget: Budget
    source: str | None
    """The event source that the sensor looks after; None: it looks after all that no source's sensor does."""
    decided: list[tuple[Listed, Verdict]] = field(default_factory=list[tuple[Listed, Verdict]])
    busy: Collection[Partition] = ()
    """What was in progress when it was decided."""
    requests: Sequence[dg.RunRequest] = ()
    reports: Sequence[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = ()
    told: list[Listed] = field(default_factory=list[Listed])
    """What waits and is among the reports: not told after all if the tick fails."""
    partitions: Sequence[dg.AddDynamicPartitionsRequest] = ()
    """What Dagster is to have as partitions once the tick is over."""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """What could not be done, by whom it concerns."""
    position: str = ""
    """Up to where Dagster knows everything once it has stored this tick's reports."""
    is_complete: bool = True
    """Whether no step has left something to the next tick."""
    raised: Exception | None = None
    """What the first step that failed as a whole has raised."""
    heard: int = 0
    """The number of the last change before this look at the log."""
    beside: list[Callable[[Listening], None]] = field(default_factory=list[Callable[[Listening], None]])
    """What goes on while the tick listens, each in a thread of its own."""
    unreadable: str = ""
    """Why nothing of the event source could be read; empty if something could."""

    @property
    def may_listen(self) -> bool:
        """Whether nothing is to be told to Dagster now, and the daemon has a thread for each sensor: none waits for it.

        Who drives a sensor without the daemon comes by as soon as there is something.
        """
        has_something = self.has_effect or self.raised or self.unreadable
        is_by_daemon = self.context.last_sensor_start_time is not None
        has_threads = bool(self.context.instance.get_sensor_settings().get("use_threads"))
        return self.is_complete and not has_something and is_by_daemon and has_threads

    @property
    def has_effect(self) -> bool:
        """Whether there is something that Dagster would not hear of if the tick failed."""
        return bool(self.requests or self.reports or self.partitions)

    @property
    def message(self) -> str:
        """What a tick that requests nothing says of itself."""
        waiting = [verdict for _, verdict in self.decided if verdict.state in WAITING]
        if not waiting:
            return "Nothing new is to be run. `feed-assets explain` says what waits, and why."
        first = some([f"{each.output} {each.state.value}: {each.reason}" for each in waiting], NAMED)
        return f"{len(waiting)} of {len(self.decided)} that were decided about now wait: {first}"

    @cached_property
    def services(self) -> Services:
        """The services, opened by the first step that needs the blackboard: alerts do without."""
        return Services.of(settings(), elsewhere=self.graph.elsewhere)

    @property
    def cursor(self) -> str:
        """The position, and how many ticks have left something to do: whoever drives the sensor sees that one has."""
        _, _, unfinished = (self.context.cursor or "").partition("/")
        return f"{self.position}/{int(unfinished or 0) + (not self.is_complete)}"


@dataclass(frozen=True)
class Step:
    """A part of a tick: what it does, and the share of the tick's time by which it ends."""

    name: str
    ends: float
    take: Callable[[Tick, OutOfTime], None]
    hears: bool = False
    """Whether it is about changes of the log, and so is taken again when there is one."""


def evaluate(context: dg.SensorEvaluationContext, steps: Sequence[Step], source: str | None) -> dg.SensorResult:
    """Take these steps; what they request and report. Raises what a step has raised, after the last one.

    Dagster drops requests, reports and cursor of a tick that fails. So an event source of which nothing can be read
    fails the tick (SourceUnavailable) only if it has none of these to lose: else a later one. The moment is Dagster's
    own: what is a partition and what is decided are of the same one.
    """
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError(
            f"{context.sensor_name} needs definitions: build its context with them."
        )
    graph, ledger = Graph(context.repository_def.asset_graph), open_ledger(settings().ledger)
    tick = _look(Tick(context, graph, ledger, utc_now(), Budget(settings().tick_seconds), source), steps)
    tick = _listened(tick, [each for each in steps if each.hears])
    if tick.raised:
        forget(ledger, tick.told)
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
    """Take these steps at one moment, which is Dagster's own, too, and tell what they could not do."""
    with dg.partition_loading_context(dynamic_partitions_store=tick.context.instance) as loading:
        with tick.ledger.read() as connection:
            tick = replace(tick, now=loading.effective_dt, heard=log.last(connection))
        for step in steps:
            _take(step, tick)
        _tell_problems(tick)
    return tick


def _listened(tick: Tick, hearing: Sequence[Step]) -> Tick:
    """The tick once it has listened, if it may and there is room: it takes these steps whenever it has heard."""
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
    """Wait for a change of the log since the tick looked last: whether there is one before the next tick is near.

    The change itself is what wakes a tick, whoever records it in whichever process: nobody has to call.
    """
    try:
        sleep(REST_SECONDS)
        while listening.left():
            with tick.ledger.read() as connection:
                if log.has_after(connection, tick.heard):
                    listening.wait_for_all()
                    return True
            sleep(1 / LOOKS_PER_SECOND)
    except LedgerUnavailable as error:  # The tick has nothing to lose, and what to say of it the next one says.
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
    """Each tick tries everything that it looks after, so its problems are all there are: those of before are over."""
    for whom, problem in tick.problems.items():
        tick.context.log.warning(f"{whom}: {problem}", extra={PROBLEM: whom})
    ours = Ours(tick.graph, tick.ledger, tick.now)
    alerts.keep(tick.ledger, f"{FAILING}:{tick.context.sensor_name}", tick.problems, tick.now, ours.has)

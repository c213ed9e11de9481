"""A run of many partitions.

The run builds each partition separately, several of them at the same time, and reports each partition when its build
ends (ADR 59). If a partition is refused or fails, the run continues with the others and fails at its end. Events are
logged and not yielded, because a yielded result would count for all partitions of the run.
"""

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from threading import Event
from traceback import format_exception
from typing import Any

import dagster as dg
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt

from feed_assets.core.attempts import OF_ITS_OWN, is_outage
from feed_assets.core.errors import AlreadyRunning, TargetLost
from feed_assets.core.message_words import first_line
from feed_assets.orchestration.execute.build_events import Result, log_result
from feed_assets.orchestration.execute.provenance import MadeOf, provenance
from feed_assets.runs.phases import Outcome, Published, Refused, Unchanged

NOT_BUILT = "not built"
"""Metadata name for the partitions that a run did not build, by Dagster's key, with the reasons."""

_IS_OUTPUT_ALONE = "__source_asset_observation__"
"""Metadata name that keeps Dagster from making a materialization of an output. Dagster does not export it."""

Build = Callable[[str], Outcome]
BuildOrWait = Callable[[str, bool], Outcome]
"""A function that builds the partition with a Dagster key.

If another run is building the partition, the flag decides: wait for that run (True), or raise AlreadyRunning (False).
"""
Results = Callable[[Outcome], Iterator[Result]]
Standing = Callable[[str], Iterator[Result]]
End = Outcome | BaseException


@dataclass(frozen=True)
class Many:
    """The partitions of a run, with functions that build one, report its outcome, and report an unchanged update."""

    context: dg.AssetExecutionContext
    build: BuildOrWait
    results: Results
    standing: Standing
    in_order: bool = False
    """True if one partition may be an input of another. Then partitions keep their order.

    Otherwise a partition that another run is building comes last.
    """
    tells_unchanged: bool = False
    """True if `results` also report unchanged partitions."""
    made_of: dict[str, MadeOf] = field(default_factory=dict[str, MadeOf])
    ended: dict[str, End] = field(default_factory=dict[str, End])

    def run(self, at_a_time: int, interrupted: Event) -> Iterator[Any]:
        """Build every partition of the run.

        If some are not built, raise a dg.Failure that names them, or the error that stopped the run: an outage, or the
        loss of its compute target.
        """
        try:
            self._build(at_a_time, interrupted)
            _raise_what_failed(self.ended)
        except BaseException:
            self._tell_what_stands()
            raise
        reported = (Published, Unchanged) if self.tells_unchanged else Published
        if any(isinstance(end, reported) for end in self.ended.values()):
            yield from _outputs(self.context)

    def _build(self, at_a_time: int, interrupted: Event) -> None:
        """Build first the partitions that no other run is building, so that runs share the work.

        Then build the partitions that other runs were building, and wait for each of these runs.
        """
        busy = deque[str]()
        for waiting, waits in ((deque(self.context.partition_keys), self.in_order), (busy, True)):
            with closing(ends_of_each(partial(self._begin, waits), waiting, at_a_time, interrupted)) as ends:
                for key, end in ends:
                    if isinstance(end, AlreadyRunning) and not waits:
                        self.context.log.info(f"{key} comes last: {end}")
                        busy.append(key)
                    else:
                        self._note(key, end, waiting, busy)

    def _note(self, key: str, end: End, *queues: deque[str]) -> None:
        self.ended[key] = end
        if not isinstance(end, BaseException):
            with to_its_end():
                self._tell(key, self.results(end))
            return
        self.context.log.error(f"{key}: {''.join(format_exception(end))}")
        if _stops_the_run(end):
            end.add_note(f"Not begun: {', '.join(dict.fromkeys(chain(*queues))) or 'none'}.")
            for waiting in queues:
                waiting.clear()  # the remaining partitions would fail, too

    def _begin(self, waits: bool, key: str) -> Outcome:
        self.made_of[key] = provenance(self.context)
        return self.build(key, waits)

    def _tell(self, key: str, results: Iterator[Result]) -> None:
        for result in results:
            log_result(self.context, key, result, self.made_of[key])

    def _tell_what_stands(self) -> None:
        """Report the unchanged partitions of a failed run to Dagster again. Otherwise Dagster shows them as failed."""
        if self.tells_unchanged:
            return
        for key in (key for key, end in self.ended.items() if isinstance(end, Unchanged)):
            self._tell(key, self.standing(key))


@contextmanager
def to_its_end() -> Generator[None]:
    """Delay interrupts until the block ends, so that a published update is reported together with all its checks."""
    with capture_interrupts():
        yield
        has_come = check_captured_interrupt()
    if has_come:
        signal.raise_signal(signal.SIGINT)


def _outputs(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.Output[None]]:
    """Yield outputs without materializations, for downstream steps that wait for them.

    Otherwise Dagster would turn each output into a materialization of every partition, with the same version for all
    partitions. This would also hide newer reports of other runs.
    """
    alone = {_IS_OUTPUT_ALONE: True}
    yield from (dg.MaterializeResult(asset_key=key, metadata=alone) for key in sorted(context.selected_asset_keys))
    checks = [spec for spec in context.assets_def.check_specs if spec.key in context.selected_asset_check_keys]
    yield from (dg.Output(None, output_name=spec.get_python_identifier()) for spec in checks)


def ends_of_each(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """Yield the outcome or error of each partition when it ends.

    If the caller empties `waiting`, no other partition starts.
    """
    if at_a_time > 1:
        yield from _in_threads(build, waiting, at_a_time, interrupted)
    while waiting:  # in the main thread, an interrupt ends the build immediately
        key = waiting.popleft()
        yield key, _end_of(build, key)


def _in_threads(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """Build `at_a_time` partitions at once. Yield the same values as `ends_of_each`.

    An interrupt stops all threads at their next step, and this function waits for them. The partitions that the threads
    have published by then are yielded, too.
    """
    running: dict[Future[End], str] = {}
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    key = waiting.popleft()
                    running[pool.submit(_end_of, build, key)] = key
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(done), done.result()
        except BaseException as error:
            interrupted.set()
            if not isinstance(error, GeneratorExit):
                yield from ((running[done], done.result()) for done in as_completed(running) if not done.exception())
            raise


def _end_of(build: Build, key: str) -> End:
    try:
        return build(key)
    except OF_ITS_OWN as error:
        return error


def _raise_what_failed(ended: Mapping[str, End]) -> None:
    errors = {key: end for key, end in ended.items() if isinstance(end, BaseException)}
    stops = {key: error for key, error in errors.items() if _stops_the_run(error)}
    failed = {str(key): f"{type(error).__name__}: {error}" for key, error in errors.items() if key not in stops}
    failed |= {str(key): end.reason for key, end in ended.items() if isinstance(end, Refused)}
    for stop in stops.values():
        if failed:
            stop.add_note(f"Not built for other reasons:\n{_lines(failed)}")
        raise stop
    if failed:
        raise _failure(failed, len(ended))


def _stops_the_run(error: BaseException) -> bool:
    """Return whether the run's other partitions would fail, too: its target is lost, or a service has an outage."""
    return isinstance(error, TargetLost) or is_outage(type(error).__name__)


def _failure(failed: Mapping[str, str], count: int) -> dg.Failure:
    return dg.Failure(
        f"Not built: {len(failed)} of {count}. Correct the cause, then materialize the partitions named here again: "
        f"those that are built stay as they are.\n{_lines(failed)}",
        metadata={NOT_BUILT: dg.MetadataValue.json(dict(failed))},
    )


def _lines(failed: Mapping[str, str]) -> str:
    return "\n".join(f"{key}: {first_line(why)}" for key, why in sorted(failed.items()))

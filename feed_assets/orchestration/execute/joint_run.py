"""A run of many partitions: each is built for itself, some at a time, and reported to Dagster as it ends (ADR 59).

A refused or failed one does not affect others: the run continues, and fails at its end. Events are logged and not
yielded, as a result that a run yields is of all its partitions at once.
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
from feed_assets.core.errors import AlreadyRunning
from feed_assets.core.message_words import first_line
from feed_assets.orchestration.execute.build_events import Result, log_result
from feed_assets.orchestration.execute.provenance import MadeOf, provenance
from feed_assets.runs.phases import Outcome, Published, Refused, Unchanged

NOT_BUILT = "not built"
"""Metadata name under which a run's failure lists what it did not build, by Dagster's key, and why."""

_IS_OUTPUT_ALONE = "__source_asset_observation__"
"""Metadata name by which Dagster makes no materializations of an output. Dagster does not export it."""

Build = Callable[[str], Outcome]
BuildOrWait = Callable[[str, bool], Outcome]
"""Build of one partition, by Dagster's key. The flag says whether to wait for another run or raise AlreadyRunning."""
Results = Callable[[Outcome], Iterator[Result]]
Standing = Callable[[str], Iterator[Result]]
End = Outcome | BaseException


@dataclass(frozen=True)
class Many:
    """The partitions of a run: how one is built, and how its outcome, or an unchanged update, is reported."""

    context: dg.AssetExecutionContext
    build: BuildOrWait
    results: Results
    standing: Standing
    in_order: bool = False
    """True if one partition may be another's input: then none is built before one that is waited for."""
    tells_unchanged: bool = False
    """True if `results` also report partitions that were left unchanged."""
    made_of: dict[str, MadeOf] = field(default_factory=dict[str, MadeOf])
    ended: dict[str, End] = field(default_factory=dict[str, End])

    def run(self, at_a_time: int, interrupted: Event) -> Iterator[Any]:
        """Build every partition. Raise an outage, or dg.Failure, which names those that were not built."""
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
        """Build what no other run builds, so that two runs share the work; then wait for the others' partitions."""
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
        if _is_outage(end):
            end.add_note(f"Not begun: {', '.join(dict.fromkeys(chain(*queues))) or 'none'}.")
            for waiting in queues:
                waiting.clear()  # The next partitions would fail with it, too.

    def _begin(self, waits: bool, key: str) -> Outcome:
        self.made_of[key] = provenance(self.context)
        return self.build(key, waits)

    def _tell(self, key: str, results: Iterator[Result]) -> None:
        for result in results:
            log_result(self.context, key, result, self.made_of[key])

    def _tell_what_stands(self) -> None:
        """Report unchanged partitions again; otherwise Dagster shows them as failed."""
        if self.tells_unchanged:
            return
        for key in (key for key, end in self.ended.items() if isinstance(end, Unchanged)):
            self._tell(key, self.standing(key))


@contextmanager
def to_its_end() -> Generator[None]:
    """Delay interrupts until the block ends, so that what is published is reported with all its checks."""
    with capture_interrupts():
        yield
        has_come = check_captured_interrupt()
    if has_come:
        signal.raise_signal(signal.SIGINT)


def _outputs(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.Output[None]]:
    """Yield only what the steps below wait for: Dagster would make each a materialization of every partition.

    It would have one version for all, and be newer than what another run has reported since.
    """
    alone = {_IS_OUTPUT_ALONE: True}
    yield from (dg.MaterializeResult(asset_key=key, metadata=alone) for key in sorted(context.selected_asset_keys))
    checks = [spec for spec in context.assets_def.check_specs if spec.key in context.selected_asset_check_keys]
    yield from (dg.Output(None, output_name=spec.get_python_identifier()) for spec in checks)


def ends_of_each(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """Yield how each partition ended, as it ends. No other one is begun once the caller empties `waiting`."""
    if at_a_time > 1:
        yield from _in_threads(build, waiting, at_a_time, interrupted)
    while waiting:  # In this thread an interrupt ends what is being built, and not only at its next step.
        key = waiting.popleft()
        yield key, _end_of(build, key)


def _in_threads(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """Yield the same for `at_a_time` partitions at once. An interrupt is passed on to all threads, and waits for them.

    If a partition is published by then, it is reported to Dagster, too.
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
    outages = {key: error for key, error in errors.items() if _is_outage(error)}
    failed = {str(key): f"{type(error).__name__}: {error}" for key, error in errors.items() if key not in outages}
    failed |= {str(key): end.reason for key, end in ended.items() if isinstance(end, Refused)}
    for outage in outages.values():
        if failed:
            outage.add_note(f"Not built either, each for a reason of its own:\n{_lines(failed)}")
        raise outage
    if failed:
        raise _failure(failed, len(ended))


def _is_outage(error: BaseException) -> bool:
    return is_outage(type(error).__name__)


def _failure(failed: Mapping[str, str], count: int) -> dg.Failure:
    return dg.Failure(
        f"Not built: {len(failed)} of {count}. Mend the cause, then materialize again what is named here: what is "
        f"built already is left as it is.\n{_lines(failed)}",
        metadata={NOT_BUILT: dg.MetadataValue.json(dict(failed))},
    )


def _lines(failed: Mapping[str, str]) -> str:
    return "\n".join(f"{key}: {first_line(why)}" for key, why in sorted(failed.items()))

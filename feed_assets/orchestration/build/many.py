"""A run of many partitions: each for itself, some of them at a time, and Dagster hears of each as it ends (ADR 59).

One that is refused or fails takes no neighbour along: the run goes on, and fails at its end. Events are logged and not
yielded, as a result that a run yields is of all its partitions at once.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from threading import Event
from traceback import format_exception
from typing import Any

import dagster as dg

from feed_assets.core.attempts import OF_ITS_OWN, is_outage
from feed_assets.core.words import first_line
from feed_assets.orchestration.build.reports import Result, log_result
from feed_assets.runs.phases import Outcome, Published, Refused

NOT_BUILT = "not built"
"""Under which name the failure of a run tells in its metadata what it did not build, by Dagster's key, and why."""

Build = Callable[[str], Outcome]
Results = Callable[[Outcome], Iterator[Result]]
End = Outcome | BaseException


def build_each(
    context: dg.AssetExecutionContext, build: Build, results: Results, at_a_time: int, interrupted: Event
) -> Iterator[dg.MaterializeResult[Any]]:
    """Build every partition of a run. Raises dg.Failure, which names those that were not built, or an outage."""
    waiting, ended = deque(context.partition_keys), dict[str, End]()
    with closing(ends_of_each(build, waiting, at_a_time, interrupted)) as ends:
        for key, end in ends:
            ended[key] = end
            _tell(context, key, end, results)
            if isinstance(end, BaseException) and _is_outage(end):
                end.add_note(f"Not begun: {', '.join(waiting) or 'none'}.")
                waiting.clear()  # The next one would end with it, too.
    _raise_what_failed(ended)
    if all(isinstance(end, Published) for end in ended.values()) and _is_read_in_this_run(context):
        yield from _outputs(context)
        for key, end in ended.items():
            _tell(context, key, end, results)


def _is_read_in_this_run(context: dg.AssetExecutionContext) -> bool:
    """Whether a run goes on with what is made of these assets."""
    layer, own = context.job_def.asset_layer, context.selected_asset_keys
    below = {child for key in own for child in layer.asset_graph.get(key).child_keys}
    return bool((below - own) & layer.selected_asset_keys)


def _outputs(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
    """What the steps below wait for. Dagster makes of each a materialization of every partition, with one version.

    So each partition is told of once more after it: the newest counts.
    """
    yield from (dg.MaterializeResult(asset_key=key) for key in sorted(context.selected_asset_keys))


def ends_of_each(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """How each partition ended, as it ends; whoever empties `waiting` has no other one begun."""
    if at_a_time > 1:
        yield from _in_threads(build, waiting, at_a_time, interrupted)
    while waiting:  # In this thread an interrupt ends what is being built, and not only at its next step.
        key = waiting.popleft()
        yield key, _end_of(build, key)


def _in_threads(build: Build, waiting: deque[str], at_a_time: int, interrupted: Event) -> Generator[tuple[str, End]]:
    """The same for so many at a time. An interrupt of this thread is told to the others, and waits for their ends."""
    running: dict[Future[End], str] = {}
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    key = waiting.popleft()
                    running[pool.submit(_end_of, build, key)] = key
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(done), done.result()
        except BaseException:
            interrupted.set()
            raise


def _end_of(build: Build, key: str) -> End:
    try:
        return build(key)
    except OF_ITS_OWN as error:
        return error


def _tell(context: dg.AssetExecutionContext, key: str, end: End, results: Results) -> None:
    if isinstance(end, BaseException):
        context.log.error(f"{key}: {''.join(format_exception(end))}")
    else:
        for result in results(end):
            log_result(context, key, result)


def _raise_what_failed(ended: Mapping[str, End]) -> None:
    errors = {key: end for key, end in ended.items() if isinstance(end, BaseException)}
    for outage in filter(_is_outage, errors.values()):
        raise outage
    failed = {str(key): f"{type(error).__name__}: {error}" for key, error in errors.items()}
    failed |= {str(key): end.reason for key, end in ended.items() if isinstance(end, Refused)}
    if failed:
        raise _failure(failed, len(ended))


def _is_outage(error: BaseException) -> bool:
    return is_outage(type(error).__name__)


def _failure(failed: Mapping[str, str], count: int) -> dg.Failure:
    lines = [f"{key}: {first_line(why)}" for key, why in sorted(failed.items())]
    return dg.Failure(
        f"{len(failed)} of {count} partitions were not built. Mend the cause, then materialize them again: what is "
        "built already is left as it is.\n" + "\n".join(lines),
        metadata={NOT_BUILT: dg.MetadataValue.json(dict(failed))},
    )

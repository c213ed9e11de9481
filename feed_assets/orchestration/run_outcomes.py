"""Outcomes, by partition, of runs that this process executed. Errors that Dagster wraps around others are removed."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import dagster as dg

from feed_assets.core.attempts import is_outage
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.run_blocks import PARTITION, RANGE_START
from feed_assets.orchestration.execute.joint_run import NOT_BUILT
from feed_assets.settings import settings

_MODULE = re.compile(r"^(?:[a-zA-Z_]\w*\.)+(?=\w+(?::|$))")


@dataclass(frozen=True)
class Ended:
    """The end of a run for one partition.

    If a run of several partitions ended before it began the first one, this object stands for all of them.
    """

    assets: tuple[str, ...]
    partition: str | None
    succeeded: bool
    error: str | None
    rows: int | None = None
    """Number of rows that the run wrote. None if it published nothing, for example because nothing has changed."""
    rejects: int | None = None
    """Number of records that the run rejected. None for a dataset without rejects."""
    seconds: float | None = None
    """The duration of the build. None if it did not start."""

    @property
    def is_by_outage(self) -> bool:
        """Return whether an outage of a service ended the run, and not a problem of the partition."""
        return is_outage((self.error or "").partition(":")[0])


def ends_of(result: dg.ExecuteInProcessResult) -> list[Ended]:
    """Return how a run ended for each partition that it began, and for each partition that it reports as not built."""
    run = result.dagster_run
    if RANGE_START in run.tags and (each := [*_ends_of_each(result)]):
        return each
    numbers = _numbers(result.run_id)
    return [
        Ended(names(run.asset_selection or ()), run.tags.get(PARTITION), result.success, why_failed(result), *numbers)
    ]


Numbers = tuple[int | None, int | None, float | None]
"""The rows, rejects and seconds of a build. None means unknown."""


def _numbers(run_id: str) -> Numbers:
    """Return the rows, rejects and seconds of all builds in a Dagster run, added up."""
    with open_ledger(settings().ledger).read() as connection:
        begun = runs.of_dagster(connection, run_id)
        written = runs.records(connection, begun)
    rows, rejects, seconds = zip(*(numbers_of(run, written) for run in begun), strict=True) if begun else ((), (), ())
    return _sum(rows), _sum(rejects), sum(filter(None, seconds)) if begun else None


def numbers_of(run: runs.Run, written: Mapping[tuple[str, str], int | None]) -> Numbers:
    """Return the rows, rejects and seconds of one build.

    `written` has the counts of written records by run and feed. A build without an update has no rows.
    """
    own_counts = {feed: count for (build, feed), count in written.items() if build == run.id and run.is_well}
    rows = own_counts.pop(str(run.output.feed), None)
    return rows, _sum(own_counts.values()), (run.ended - run.started).total_seconds() if run.ended else None


def _sum(counts: Iterable[int | None]) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


def _ends_of_each(result: dg.ExecuteInProcessResult) -> Iterator[Ended]:
    """Yield how each partition of a joint run ended.

    The ledger has the partitions that began, and the failed steps name the others.
    """
    graph, selected = Graph(result.job_def.asset_layer.asset_graph), result.dagster_run.asset_selection or set()
    with open_ledger(settings().ledger).read() as connection:
        begun = runs.of_dagster(connection, result.run_id)
        written = runs.records(connection, begun)
    for run in begun:
        node, numbers = graph.node(run.output.feed), numbers_of(run, written)
        yield Ended(names(selected & {*node.outputs}), node.key_of(run.output), run.is_well, run.reason, *numbers)
    by_step = {node.key.to_python_identifier(): node for node in graph.datasets()}
    failed = [event for event in result.all_events if event.is_step_failure and event.step_key in by_step]
    begun_outputs = {run.output for run in begun}
    for event in failed:
        node, reasons = by_step[event.step_key or ""], _not_built(event)
        lost = {key: why for key, why in reasons.items() if node.partition(key) not in begun_outputs}
        yield from (Ended(names(selected & {*node.outputs}), key, False, why) for key, why in lost.items())


def _not_built(failure: dg.DagsterEvent) -> dict[str, str]:
    details = failure.step_failure_data.user_failure_data
    reasons = details.metadata.get(NOT_BUILT) if details else None
    return cast("dict[str, str]", reasons.value) if reasons else {}


def why_failed(result: dg.ExecuteInProcessResult) -> str | None:
    """Return the error that ended a run, without Dagster's wrapping errors. Return None if there was no error."""
    error = _error(result)
    # Dagster puts the module's path before the error's name, except for Python's own errors.
    return _MODULE.sub("", error.message.strip()) if error else None


def outage(result: dg.ExecuteInProcessResult) -> str | None:
    """Return the error text if an outage of a service, such as Spark, ended a run. Otherwise return None.

    During an outage every other run would fail, too.
    """
    error = _error(result)
    if not error or not is_outage(error.cls_name):
        return None
    # The first line ends with what to do. The next lines name partitions that were not started.
    return error.message.strip().splitlines()[0].partition(": ")[2]


def _error(result: dg.ExecuteInProcessResult) -> Any:
    """Return the error of a run's first failed step, without Dagster's wrapping errors.

    Return None if no step failed.
    """
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    error = errors[0] if errors else None
    while error and error.cause and (error.cls_name or "").startswith("Dagster"):
        error = error.cause
    return error


def trace_of(result: dg.ExecuteInProcessResult) -> str:
    """Return the stack trace of a run's first failed step. Return '' if no step failed."""
    error = _error(result)
    return error.to_string() if error else ""


def names(keys: Iterable[dg.AssetKey]) -> tuple[str, ...]:
    """Return the sorted names of assets as users write them."""
    return tuple(sorted(key.to_user_string() for key in keys))

"""Ends of the runs of this process, partition by partition, without Dagster's words around them."""

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
    """The end of a run for a partition; for all of them if a run of many ended before the first one."""

    assets: tuple[str, ...]
    partition: str | None
    succeeded: bool
    error: str | None
    rows: int | None = None
    """Rows that it wrote; None if it wrote none, as where nothing has changed."""
    rejects: int | None = None
    """Records that it turned away; None for a dataset that turns none away."""
    seconds: float | None = None
    """Its duration; None if it was not begun."""

    @property
    def is_by_outage(self) -> bool:
        """Return whether a service was out, which is no fault of the partition's."""
        return is_outage((self.error or "").partition(":")[0])


def ends_of(result: dg.ExecuteInProcessResult) -> list[Ended]:
    """Return how a run ended with each partition that it began, or that it reports as not begun."""
    run = result.dagster_run
    if RANGE_START in run.tags and (each := [*_ends_of_each(result)]):
        return each
    numbers = _numbers(result.run_id)
    return [
        Ended(names(run.asset_selection or ()), run.tags.get(PARTITION), result.success, why_failed(result), *numbers)
    ]


Numbers = tuple[int | None, int | None, float | None]
"""The rows, rejects and seconds of a build, as far as it has them."""


def _numbers(run_id: str) -> Numbers:
    """Return the numbers of all builds of a run of Dagster together."""
    with open_ledger(settings().ledger).read() as connection:
        begun = runs.of_dagster(connection, run_id)
        written = runs.records(connection, begun)
    rows, rejects, seconds = zip(*(numbers_of(run, written) for run in begun), strict=True) if begun else ((), (), ())
    return _sum(rows), _sum(rejects), sum(filter(None, seconds)) if begun else None


def numbers_of(run: runs.Run, written: Mapping[tuple[str, str], int | None]) -> Numbers:
    """Return the numbers of one build, by what builds have written; what was not published has no rows."""
    own_counts = {feed: count for (build, feed), count in written.items() if build == run.id and run.is_well}
    rows = own_counts.pop(str(run.output.feed), None)
    return rows, _sum(own_counts.values()), (run.ended - run.started).total_seconds() if run.ended else None


def _sum(counts: Iterable[int | None]) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


def _ends_of_each(result: dg.ExecuteInProcessResult) -> Iterator[Ended]:
    """Yield the ends of partitions: of begun ones from the ledger, of others from the failures of the run's steps."""
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
    """Return what stopped a run, without Dagster's words around it; None if nothing did."""
    error = _error(result)
    # The path of its module stands before the name of an error that is not Python's own, or ours.
    return _MODULE.sub("", error.message.strip()) if error else None


def outage(result: dg.ExecuteInProcessResult) -> str | None:
    """Return the outage of a service that stopped a run and would stop every other one; None if there was none."""
    error = _error(result)
    if not error or not is_outage(error.cls_name):
        return None
    # The whole first line, which ends with what to do; below it is what a run of many did not begin.
    return error.message.strip().splitlines()[0].partition(": ")[2]


def _error(result: dg.ExecuteInProcessResult) -> Any:
    """Return the error of a run's first step that failed, without Dagster's errors around it; None if none did."""
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    error = errors[0] if errors else None
    while error and error.cause and (error.cls_name or "").startswith("Dagster"):
        error = error.cause
    return error


def trace_of(result: dg.ExecuteInProcessResult) -> str:
    """Return the stack trace of a run's first step that failed; empty if none did."""
    error = _error(result)
    return error.to_string() if error else ""


def names(keys: Iterable[dg.AssetKey]) -> tuple[str, ...]:
    """Return the names of assets, as people know them."""
    return tuple(sorted(key.to_user_string() for key in keys))

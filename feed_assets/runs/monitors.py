"""Quality reports of a companion about the windows or the partitions that it read.

A companion is a dataset that checks the rows of other datasets.
"""

from collections.abc import Sequence
from contextlib import suppress

from feed_assets.core.errors import PartitionClosed, UpdateChanged
from feed_assets.core.feeds import Partition
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import quality
from feed_assets.ledger.states import window_queries
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.phases import Pinned
from feed_assets.runs.pinning import BuildRequest, pin_inputs
from feed_assets.runs.services import Services


def report(
    services: Services, order: BuildRequest, pinned: Pinned, results: Sequence[CheckResult], run_id: str
) -> None:
    """Report the outcome of each check. After a kill the next run reports all outcomes again, which does no harm.

    Raise UpdateChanged if the data have changed since they were read, because the outcomes do not apply to the new
    rows.
    """
    if pin_inputs(order, services).pins != pinned.pins:
        raise UpdateChanged(f"{order.output}: its input has changed while it was measured. Start the run again.")
    for address in _windows(pinned):
        for each in results:
            outcome, check, now = each.state, each.check.name, services.now()
            with suppress(PartitionClosed):  # A closed window keeps its state.
                window_queries.report_quality(
                    services.ledger, address, check, state=outcome.state, reason=outcome.reason, by=run_id, now=now
                )
    if not pinned.spans:
        _report_partitions(services, order, pinned, results, run_id)


def judged(order: BuildRequest, pinned: Pinned) -> list[Partition]:
    """Return the partitions that a run's checks judge.

    The checks of a companion, which checks another team's rows, judge the partitions or windows that it has read. The
    checks of any other run judge its output.
    """
    if not order.recipe.is_companion:
        return [order.output]
    return [at.partition for at in _windows(pinned)] or [at for some in order.inputs.values() for at in some]


def _windows(pinned: Pinned) -> list[WindowAddress]:
    """Return the windows of state tables that were read."""
    spans = [span for span in pinned.spans.values() if span]
    return [WindowAddress(each.dataset, each.sub_partition, at.grain, at.key) for each in spans for at in each.windows]


def _report_partitions(
    services: Services, order: BuildRequest, pinned: Pinned, results: Sequence[CheckResult], run_id: str
) -> None:
    with services.ledger.change() as connection:
        for partition in judged(order, pinned):
            for each in results:
                outcome, now = each.state, services.now()
                quality.report(
                    connection,
                    partition,
                    each.check.name,
                    state=outcome.state,
                    reason=outcome.reason,
                    by=run_id,
                    now=now,
                )

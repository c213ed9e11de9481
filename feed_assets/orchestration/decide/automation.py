"""Late re-runs as an automation condition (formerly called "auto-materialize policy").

Staleness is a state, not an event. The condition reads the partitions that are stale now from the ledger, so it cannot
miss a change.
"""

import dagster as dg
from dagster import AutomationContext, AutomationResult


class LateRerun(dg.AutomationCondition[dg.AssetKey]):
    """A condition that is true for built partitions whose late data are worth a re-run."""

    @property
    def name(self) -> str:
        """Return the name that the UI shows."""
        return "late data is worth a re-run"

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        """Read the verdicts that the sensor has stored, and claim the partitions to request.

        The condition stores only which partitions were claimed. If a requested run never starts, or ends without a
        result, the partition is requested again after a while. The same holds for a partition's first run.
        """
        from feed_assets.orchestration.decide.stale_partitions import to_request  # Declaring needs no ledger.

        view = context.asset_graph_view
        keys = to_request(view, context.key)
        if not keys:
            subset = context.get_empty_subset()
        elif context.partitions_def is None:
            subset = view.get_full_subset(key=context.key)
        else:
            subset = view.get_subset_from_partition_keys(context.key, context.partitions_def, {*filter(None, keys)})
        return AutomationResult(context, context.candidate_subset.compute_intersection(subset))


def late_rerun() -> dg.AutomationCondition[dg.AssetKey]:
    """Return the condition that every feed asset gets: late data are worth a re-run, and nothing builds the partition.

    The condition queries Dagster only for runs and backfills of stale assets. It does not use Dagster's state "in
    progress". In a run of many partitions, every partition has this state until the whole run ends.
    """
    return LateRerun() & ~dg.AutomationCondition.backfill_in_progress()

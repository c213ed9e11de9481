"""The jobs `prune` and `prune_ledger`, which remove expired data if `apply` is set."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed
from feed_assets.core.retention import Retention
from feed_assets.orchestration.declare.declarations import Declaration, EventTable, StateTable
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.runs.services import Services


class Prune(dg.Config):
    """Run configuration of the jobs `prune` and `prune_ledger`."""

    apply: bool = Field(False, description="Remove expired data. Otherwise only log what would be removed.")


def prune_jobs(declarations: Sequence[Declaration]) -> list[dg.JobDefinition]:
    """Return the job `prune` for the feeds with a retention. Return [] if no feed has one."""
    retention_by_feed = {
        each.feed: each.retention for each in declarations if not isinstance(each, EventTable | StateTable)
    }
    policies = {feed: policy for feed, policy in sorted(retention_by_feed.items()) if policy}
    return [_job(policies)] if policies else []


def prune_ledger_job() -> dg.JobDefinition:
    """Return the job `prune_ledger`, by which a person prunes the ledger at once, or tries it as a dry run.

    Without the job, the sensor `orphans` prunes the ledger once a day.
    """

    @dg.op(name="prune_old_rows")
    def prune_old_rows(context: dg.OpExecutionContext, config: Prune) -> None:
        """Remove old rows of the ledger that nobody needs."""
        from feed_assets.ledger.old_rows import lines_of, prune_log  # Declaring needs no ledger.
        from feed_assets.runs.services import Services

        days, report_days = settings().log_days, settings().state_report_days
        services = Services.of(settings())
        pruned = prune_log(services.ledger, services.now(), days, report_days, apply=config.apply)
        for line in lines_of(pruned):
            context.log.info(line)

    graph = dg.GraphDefinition("prune_ledger", node_defs=[prune_old_rows])
    described = "Remove old changes, events, rejects and reports of the ledger. A dry run unless `apply` is set."
    return dg.JobDefinition(graph_def=graph, description=described)


def _job(policies: Mapping[Feed, Retention]) -> dg.JobDefinition:
    @dg.op(name="prune_feeds")
    def prune_feeds(context: dg.OpExecutionContext, config: Prune) -> None:
        """Prune each feed. If a feed cannot be pruned, continue with the others."""
        from feed_assets.runs.services import Services

        services = Services.of(settings())
        failed = [
            feed for feed, policy in policies.items() if not _prune(context, services, feed, policy, config.apply)
        ]
        if failed:
            raise dg.Failure(f"{len(failed)} feeds could not be pruned; the log has the reasons.", allow_retries=False)

    graph = dg.GraphDefinition("prune", node_defs=[prune_feeds])
    described = "Remove old updates by the declared retentions. A dry run unless `apply` is set."
    return dg.JobDefinition(graph_def=graph, description=described)


def _prune(context: dg.OpExecutionContext, services: "Services", feed: Feed, policy: Retention, apply: bool) -> bool:
    from feed_assets.runs.prune import prune_feed

    gone = 0
    try:
        for pruned in prune_feed(services, feed, policy, apply=apply):
            gone += len(pruned.gone)
            for line in pruned.lines:
                context.log.info(line)
    except FeedAssetsError as error:
        context.log.warning(f"{feed} is not pruned: {error}")
        return False
    context.log.info(
        f"{feed}: {gone} updates {'pruned' if apply else 'would be pruned: nothing is removed without apply'}"
    )
    return True

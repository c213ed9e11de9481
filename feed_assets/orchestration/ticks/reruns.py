"""Reports about re-runs. They show the owners of an input what the input's late data have changed downstream."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.rerun_report import Effect
from feed_assets.ledger import replaced_updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.replaced_updates import RerunReport
from feed_assets.ledger.rerun_effects import effect
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import Dataset

UPDATES_PER_TICK = 100
"""Greatest number of updates that a tick reports. The next ticks report the others."""

TOLD = 10
"""Greatest number of updates that one report shows. If there are more, the report has the number of the rest."""


def report_reruns(graph: Graph, ledger: Ledger, now: datetime) -> None:
    """Store one report for each dataset that was rebuilt from changed inputs.

    A re-run from equal inputs is not reported. The transaction that stores the reports also removes the notes about
    these re-runs. So after a kill, the next tick repeats either the whole step or nothing of it.
    """
    with ledger.read() as connection:
        noted = [each for each in replaced_updates.unreported(connection) if each.partition.feed in graph.by_feed]
        reported = sorted(noted[:UPDATES_PER_TICK])
        effects = [
            effect(connection, each.partition, each.update) for each in reported if _is_told(graph, each.partition)
        ]
    late = [each for each in effects if each and each.inputs]
    reports = [_report(graph, feed, [*mine]) for feed, mine in groupby(late, lambda each: each.partition.feed)]
    if reported:
        replaced_updates.report(ledger, reported, reports, now)


def _is_told(graph: Graph, partition: Partition) -> bool:
    """Return whether re-runs of a partition are reported. Re-runs of datasets are reported, but not of rejects."""
    return isinstance(graph.by_feed[partition.feed].declaration, Dataset)


def _report(graph: Graph, dataset: Feed, effects: Sequence[Effect]) -> RerunReport:
    owners = {owner for each in effects for read in each.inputs for owner in _owners(graph, read.feed)}
    lines = [str(each) for each in effects[:TOLD]]
    if omitted := len(effects) - len(lines):
        lines.append(f"and {omitted} more: see `feed-assets late report {dataset} PARTITION`")
    newest = max(effects, key=lambda each: (each.after.id, each.partition))
    return RerunReport(dataset, f"{newest.partition.key} {newest.after.id}", "\n".join(lines), tuple(sorted(owners)))


def _owners(graph: Graph, feed: Feed) -> tuple[str, ...]:
    return graph.by_feed[feed].owners if feed in graph.by_feed else ()

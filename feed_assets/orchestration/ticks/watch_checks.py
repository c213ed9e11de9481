"""The checks whose results the sensor `watch` reports: declarations for Dagster."""

from collections.abc import Sequence

import dagster as dg

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.markdown import without_links
from feed_assets.orchestration.declare.declarations import (
    CAUGHT_UP,
    LOADED,
    NO_DEAD_LETTERS,
    ON_TIME,
    PROPAGATION,
    STALE,
    Dataset,
    EventTable,
    Foreign,
    Rejects,
    StateTable,
    declaration_of,
)
from feed_assets.settings import settings

_SAID = {
    CAUGHT_UP: "The table's messages are consumed as fast as they arrive.",
    LOADED: "The table is loaded completely.",
    NO_DEAD_LETTERS: "All messages of the topic are records, or its dead letters have been handled.",
    ON_TIME: "The partitions or events arrive when they are expected.",
    PROPAGATION: "No update is stuck on its way to the dataset.",
    STALE: "The built partitions are up to date.",
}


def watch_checks(specs: Sequence[dg.AssetSpec]) -> list[dg.AssetChecksDefinition]:
    """Return the unpartitioned checks of tables and datasets. The sensor `watch` reports their results."""
    declared = [(spec.key, declaration) for spec in specs if (declaration := declaration_of(spec))]
    keys, declarations = {each.feed: key for key, each in declared}, [each for _, each in declared]
    expected = [each for each in declarations if not isinstance(each, Rejects | StateTable) and _is_expected(each)]
    datasets = [each for each in declarations if isinstance(each, Dataset)]
    named = [(each.feed, ON_TIME) for each in expected]
    tables = [each for each in declarations if isinstance(each, EventTable)]
    named += [(each.feed, CAUGHT_UP) for each in tables if each.lag]
    named += [(each.feed, NO_DEAD_LETTERS) for each in tables if each.topic]
    named += [(each.feed, LOADED) for each in tables if each.loaded]
    named += [(each.feed, PROPAGATION) for each in datasets if each.by_events]
    named += [(each.feed, STALE) for each in datasets]
    return [_check(keys[feed], feed, name) for feed, name in named]


def _is_expected(declared: Dataset | Foreign | EventTable) -> bool:
    """Return whether a declaration says when data are expected."""
    has_deadline = isinstance(declared, Dataset) and declared.wait is not None and declared.wait.deadline is not None
    return declared.cadence is not None or has_deadline


def _check(key: dg.AssetKey, feed: Feed, name: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key, name=name, description=_SAID[name])
    def check() -> dg.AssetCheckResult:
        from feed_assets.ledger import quality  # Declaring needs no ledger.
        from feed_assets.ledger.database import open_ledger

        with open_ledger(settings().ledger).read() as connection:
            state = quality.check_states(connection, [Partition(feed, "")]).get((Partition(feed, ""), name))
        reason = state.reason if state else "The sensor 'watch' has reported no result yet."
        return dg.AssetCheckResult(
            passed=state is None or state.state == quality.PASSED,
            severity=dg.AssetCheckSeverity.WARN,
            description=without_links(reason) if reason else None,
        )

    return check

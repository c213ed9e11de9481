"""Event tables, mappings and reports of which one fails."""

import dagster as dg

from feed_assets import ByEvents, event_table, feed_asset
from feed_assets.core.feeds import Feed
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.sum_projects import DAY, harness

NOWHERE = "sqlite:////nowhere/at/all.db"


def plain(*assets):
    """Return a harness whose maker needs no Spark."""
    return harness(*assets, maker=PlainMaker())


def by_events(name, tables, pipelines):
    @feed_asset(f"gamma/{name}/v1.0", inputs=tables, by_events=ByEvents(pipelines=pipelines))
    def report(a, b):
        raise NotImplementedError

    return report


def tables_of(source):
    return {name: event_table(f"team/{name}", source=source, table_name=name) for name in "ab"}


def listed_partitions(feed):
    with open_ledger(settings().ledger).read() as connection:
        return {each.partition.key: (each.state, each.reason) for each in due.listed(connection, Feed.parse(feed))}


class Broken(dg.IdentityPartitionMapping):
    """A user's mapping that raises for one partition, upstream or downstream."""

    def get_upstream_mapped_partitions_result_for_partitions(self, downstream_partitions_subset, *args, **kwargs):
        self._refuse(downstream_partitions_subset)
        return super().get_upstream_mapped_partitions_result_for_partitions(
            downstream_partitions_subset, *args, **kwargs
        )

    def _refuse(self, subset):
        if DAY in (subset or ()).get_partition_keys():
            raise ZeroDivisionError("a mapping with an error")


class BrokenDown(Broken):
    def get_downstream_partitions_for_partitions(self, upstream_partitions_subset, *args, **kwargs):
        self._refuse(upstream_partitions_subset)
        return super().get_downstream_partitions_for_partitions(upstream_partitions_subset, *args, **kwargs)

"""A compacted copy of a feed whose small files are not ours to merge. Consumers read the copy."""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets.core.typed import typed
from feed_assets.orchestration.execute.assets import feed_asset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@typed
def compacted_copy(source: dg.AssetSpec, feed: str, *, sort_by: tuple[str, ...] = ()) -> dg.AssetsDefinition:
    """Declare a dataset with the rows of another team's feed in few large files.

    It has the partitions of the feed. Spark chooses the size of the files
    (`spark.sql.adaptive.advisoryPartitionSizeInBytes`). Records that do not parse are rejects of the copy.

    Args:
        source: The feed, as `foreign_feed` returns it.
        feed: Name and version of the copy, such as `shop/raw_compacted/v1.0`.
        sort_by: The columns by which the rows are sorted. By default they have no order.

    Returns:
        The assets of the copy and its rejects.

    Raises:
        InvalidName: The copy's name is invalid or has no version.
        InvalidDefinition: A value is of a wrong type, or the source is no feed.
    """

    def copied(rows: "DataFrame") -> "DataFrame":
        from feed_assets.spark.parse import column  # PySpark takes a second to load

        return rows.sort(*map(column, sort_by)) if sort_by else rows.hint("rebalance")

    declare = feed_asset(
        feed,
        inputs={"rows": source},
        partitions_def=source.partitions_def,
        description=f"The rows of {source.key.to_user_string()} in few large files.",
        code_version=f"compacted copy by {', '.join(sort_by) or 'no column'}",
    )
    return declare(copied)

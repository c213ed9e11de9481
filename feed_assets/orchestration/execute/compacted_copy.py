"""A compacted copy of a feed whose small files are not ours to merge. Consumers read the copy."""

from typing import TYPE_CHECKING

import dagster as dg

from feed_assets.core.compact import check_sort_by
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.late_policy import Late
from feed_assets.core.retention import Retention
from feed_assets.core.schemas import column_names
from feed_assets.core.typed import typed
from feed_assets.core.waits import Wait
from feed_assets.orchestration.declare.declarations import Dataset, Foreign
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.orchestration.execute.assets import feed_asset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@typed
def compacted_copy(
    source: dg.AssetSpec | dg.AssetsDefinition,
    feed: str,
    *,
    sort_by: tuple[str, ...] = (),
    wait: Wait | None = None,
    late: Late | None = None,
    retention: Retention | None = None,
) -> dg.AssetsDefinition:
    """Declare a dataset with the rows of another team's feed in few large files.

    It has the partitions of the feed. Spark chooses the size of the files
    (`spark.sql.adaptive.advisoryPartitionSizeInBytes`). Records that do not parse are rejects of the copy.

    Args:
        source: The feed, as `foreign_feed` returns it.
        feed: Name and version of the copy, such as `shop/raw_compacted/v1.0`.
        sort_by: The columns by which the rows are sorted. By default they have no order.
        wait: When a partition is first copied, for example some minutes after its end. Needs partitions of time.
        late: Rules that decide which late data are worth another copy; by default all late data are.
        retention: History of the copy that the job `prune` keeps; by default all of it.

    Returns:
        The assets of the copy and its rejects.

    Raises:
        InvalidName: The copy's name is invalid or has no version.
        InvalidDefinition: A value is of a wrong type, the source is no feed of others, or `sort_by` has a column that
            the source does not have.
    """
    read = Input(source)
    try:
        _check(read, sort_by)
    except InvalidDefinition as error:
        raise InvalidDefinition(f"compacted_copy({feed!r}): {error}") from None

    def copied(rows: "DataFrame") -> "DataFrame":
        from feed_assets.spark.parse import column  # PySpark takes a second to load

        return rows.sort(*map(column, sort_by)) if sort_by else rows.hint("rebalance")

    declare = feed_asset(
        feed,
        inputs={"rows": read},
        partitions_def=read.spec.partitions_def,
        description=f"The rows of {read.spec.key.to_user_string()} in few large files.",
        wait=wait,
        late=late,
        retention=retention,
        code_version=f"compacted copy by {', '.join(sort_by) or 'no column'}",
    )
    return declare(copied)


def _check(source: Input, sort_by: tuple[str, ...]) -> None:
    declared, name = source.declaration, source.spec.key.to_user_string()
    if isinstance(declared, Dataset):
        raise InvalidDefinition(
            f"source is {name}, which our runs write: expected a feed of foreign_feed. Write compact=Compact(…) at the "
            f"dataset {name} in place of a copy."
        )
    if not isinstance(declared, Foreign):
        raise InvalidDefinition(f"source is {name}, which has no files: expected a feed of foreign_feed. Name one.")
    check_sort_by(sort_by, column_names(declared.schema))

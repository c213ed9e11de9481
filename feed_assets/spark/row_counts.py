"""Comparison of the rows that Spark reads from each Parquet file with the count in the file's footer."""

from collections.abc import Mapping

from feed_assets.core.errors import UnreadableUpdate


def check_counts(announced: Mapping[str, int], counted: Mapping[str, int]) -> None:
    """Raise UnreadableUpdate for the first file from which Spark read fewer or more rows than its footer declares."""
    for key, rows in announced.items():
        if (read := counted.get(key, 0)) != rows:
            further = sum(counted.get(each, 0) != expected for each, expected in announced.items()) - 1
            raise UnreadableUpdate(
                f"{key} cannot be read whole: its footer declares {rows:,} rows, but Spark read {read:,}"
                f"{f' ({further} more files differ, too)' if further else ''}. "
                "Invalidate the update, and have it published again."
            )

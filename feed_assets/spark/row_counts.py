"""Rows that Spark reads of each Parquet file, compared with those that the file's footer announces."""

from collections.abc import Mapping

from feed_assets.core.errors import UnreadableUpdate


def check_counts(announced: Mapping[str, int], counted: Mapping[str, int]) -> None:
    """Raise UnreadableUpdate for the first file of which Spark read fewer rows than announced, or more."""
    for key, rows in announced.items():
        if (read := counted.get(key, 0)) != rows:
            further = sum(counted.get(each, 0) != expected for each, expected in announced.items()) - 1
            raise UnreadableUpdate(
                f"{key} cannot be read whole: its footer announces {rows:,} rows, and Spark read {read:,}"
                f"{f' ({further} more files are like it)' if further else ''}. "
                "Invalidate the update, and have it published again."
            )

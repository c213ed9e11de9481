"""Rows that Spark reads of each Parquet file, compared with those that the file's footer announces."""

from collections.abc import Mapping

from feed_assets.core.errors import UnreadableUpdate


def check_counts(announced: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raise UnreadableUpdate for the first file of which Spark read fewer rows than announced, or more."""
    for key, rows in announced.items():
        if (read := found.get(key, 0)) != rows:
            others = sum(found.get(each, 0) != expected for each, expected in announced.items()) - 1
            raise UnreadableUpdate(
                f"{key} cannot be read whole: its footer announces {rows:,} rows, and Spark read {read:,}"
                f"{f' ({others} more files are like it)' if others else ''}. "
                "Invalidate the update, and have it published again."
            )

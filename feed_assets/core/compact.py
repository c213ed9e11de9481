"""The policy for the compaction of a dataset: when small files are merged, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from feed_assets.core.argument_types import Positive
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.resources import SizeText, bytes_of
from feed_assets.core.typed import typed

_EXCESS = 2
"""Without `sort_by`, an update is compacted only if it has at least this many times the number of files it needs."""


@typed
@dataclass(frozen=True)
class Compact:
    """Policy for merging the small files of a partition, after "Data Dependency Driven Orchestration".

    The job `compact` publishes a new update with the same rows. As its data version is the same, no consumer runs.

    Args:
        sort_by: The columns by which the rows of the new update are sorted. By default they have no order.
        target: The approximate size of the new files, as a text in Spark's form: `256m` is 256 MB, `1g` is 1 GB.
        files: An update with fewer files stays as it is. For an appendable dataset, this is the least number of
            consecutive batches that are merged.
        when: `complete` waits until all windows of the partition are complete, for a dataset with `completeness`.
            `published` does not wait.

    Raises:
        InvalidDefinition: A value is of a wrong type, or not one of the possible ones.
    """

    sort_by: tuple[str, ...] = ()
    target: SizeText = "256m"
    files: Positive = 2
    when: Literal["complete", "published"] = "complete"

    def is_due(self, files: int, size: int) -> bool:
        """Return whether to compact an update with this number of files and bytes. It was never compacted before."""
        return files >= self.files and (bool(self.sort_by) or files >= _EXCESS * self.files_for(size))

    def files_for(self, size: int) -> int:
        """Return how many files an update of `size` bytes needs."""
        return max(1, -(-size // bytes_of(self.target)))


def check_sort_by(sort_by: Sequence[str], columns: Sequence[str]) -> None:
    """Raise InvalidDefinition for a column that the rows do not have. As in Spark, case does not count."""
    names = {name.lower() for name in columns}
    if unknown := [name for name in sort_by if name.lower() not in names]:
        raise InvalidDefinition(
            f"`sort_by` has {unknown[0]!r}: expected columns of the rows: {', '.join(columns)}. Correct it."
        )


UNSORTED = Compact()
"""The default policy, whose files have no order."""

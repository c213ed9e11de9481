"""Which tables each pipeline writes, as code locations publish it beside their events."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class PipelineTable:
    """A table that a pipeline writes: one correlation id reaches all of the pipeline's.

    `code_version` is that in the context of the table's events; '' of a feed that others write. `code_location` is
    who says so, by the first of its own feeds; '' of one that makes nothing.
    """

    pipeline: str
    table_name: str
    code_version: str
    code_location: str


def together(there: Iterable[PipelineTable], ours: Collection[PipelineTable]) -> tuple[PipelineTable, ...]:
    """What is to be there: ours, and what other code locations say; sorted.

    Only one code location writes a version of a feed. So whoever named one of ours before was this one, under another
    name perhaps, and nothing of what it said then is left.
    """
    there, own = [*there], {row.table_name for row in ours if row.code_version}
    before = {row.code_location for row in ours} | {
        row.code_location for row in there if row.code_version and row.table_name in own
    }
    return tuple(sorted({*ours, *(row for row in there if row.code_location not in before)}))

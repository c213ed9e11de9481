"""Lists of the tables that each pipeline writes. Code locations publish them beside their events."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class PipelineTable:
    """A table that a pipeline writes. One correlation id reaches all tables of the pipeline.

    `code_version` is the version in the context of the table's events; '' for a foreign feed. `code_location` is the
    name of the first feed that the publishing code location writes; '' if it writes none.
    """

    pipeline: str
    table_name: str
    code_version: str
    code_location: str


def together(existing: Iterable[PipelineTable], own_tables: Collection[PipelineTable]) -> tuple[PipelineTable, ...]:
    """Return the tables to publish, sorted: our own, and those of other code locations.

    Only one code location writes a version of a feed. If another location has published one of our tables, that
    location is this one under an earlier name. All tables published under such a name are replaced by our own.
    """
    existing, own = [*existing], {row.table_name for row in own_tables if row.code_version}
    before = {row.code_location for row in own_tables} | {
        row.code_location for row in existing if row.code_version and row.table_name in own
    }
    return tuple(sorted({*own_tables, *(row for row in existing if row.code_location not in before)}))

"""Which tables each pipeline writes, from a table that others own."""

import sqlalchemy as sa

from feed_assets.sources.databases import columns_of, reading


def read_lineage(url: str, table: str, pipeline: str, table_name: str) -> dict[str, frozenset[str]]:
    """By pipeline the names of its tables: one row for each. Raises SourceUnavailable.

    Source: "Data Orchestration via Events" (2024), "More complex systems".
    """
    query = sa.select(sa.column(pipeline, sa.String), sa.column(table_name, sa.String)).select_from(sa.table(table))
    with reading(url) as connection:
        columns_of(connection, table, None, (pipeline, table_name))
        rows = connection.execute(query).all()
    found: dict[str, set[str]] = {}
    for name, each in rows:
        found.setdefault(name, set()).add(each)
    return {name: frozenset(tables) for name, tables in found.items()}

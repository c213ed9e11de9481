"""Which tables each pipeline writes, from a table that others own."""

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from feed_assets.core.errors import SourceUnavailable


def read_lineage(url: str, table: str, pipeline: str, table_name: str) -> dict[str, frozenset[str]]:
    """By pipeline the names of its tables: one row for each. Raises SourceUnavailable.

    Source: "Data Orchestration via Events" (2024), "More complex systems".
    """
    query = sa.select(sa.column(pipeline, sa.String), sa.column(table_name, sa.String)).select_from(sa.table(table))
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            rows = connection.execute(query).tuples().all()
    except SQLAlchemyError as error:
        raise SourceUnavailable(
            f"the lineage table {table} cannot be read: {str(error).splitlines()[0]}. Expected a table with "
            f"the columns {pipeline} and {table_name}."
        ) from error
    finally:
        engine.dispose()
    found: dict[str, set[str]] = {}
    for name, each in rows:
        found.setdefault(name, set()).add(each)
    return {name: frozenset(tables) for name, tables in found.items()}

"""Tables of keys to join with.

All keys are in one parameter, so a statement is compiled only once for any number of keys.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Partition

PARTITION = ("feed", "partition")


def partitions(connection: sa.Connection, partitions: Iterable[Partition]) -> sa.CTE:
    """Return a table of partitions, with the columns feed and partition."""
    return rows(connection, PARTITION, keys(partitions))


def keys(partitions: Iterable[Partition]) -> Iterator[tuple[str, str]]:
    """Yield the feed and key of each partition, as rows for a key table."""
    return ((str(each.feed), each.key) for each in partitions)


def updates(connection: sa.Connection, values: Iterable[tuple[Partition, str]], name: str = "id") -> sa.CTE:
    """Return a table with the columns feed, partition and `name`, such as an update's id."""
    return rows(connection, ("feed", "partition", name), ((str(at.feed), at.key, value) for at, value in values))


def rows(
    connection: sa.Connection,
    names: tuple[str, ...],
    values: Iterable[Sequence[str | int | None]],
    called: str = "wanted",
) -> sa.CTE:
    """Return a table of rows with these text columns.

    If a statement has two such tables, they need different names (`called`).
    """
    return table(connection.dialect.name, names, called, **row_parameter(values, called))


def table(dialect: str, names: tuple[str, ...], called: str = "wanted", **parameter: str) -> sa.CTE:
    """Return a table with these text columns.

    If the statement is cached, each execution passes the rows as a parameter (see `row_parameter`).
    """
    return _select(dialect, names, called).bindparams(**parameter).cte(called)


def row_parameter(values: Iterable[Sequence[str | int | None]], called: str = "wanted") -> dict[str, str]:
    """Return the statement's parameter with the rows, by its name."""
    return {called: json.dumps([[*row] for row in values])}


_TABLES = {
    "sqlite": "json_each(:{called}) AS given",
    "postgresql": "jsonb_array_elements(CAST(:{called} AS jsonb)) AS given",
}
_CELLS = {"sqlite": "json_extract(given.value, '$[{at}]') AS {name}", "postgresql": "given.value->>{at} AS {name}"}


@cache
def _select(dialect: str, names: tuple[str, ...], called: str) -> sa.TextualSelect:
    cells = ", ".join(_CELLS[dialect].format(at=at, name=f'"{name}"') for at, name in enumerate(names))
    text = sa.text(f"SELECT {cells} FROM {_TABLES[dialect].format(called=called)}")  # noqa: S608 (names are ours)
    return text.columns(*(sa.column(name, sa.String) for name in names))


@cache
def all_of(dialect: str, source: sa.Table, names: tuple[str, ...] = PARTITION) -> sa.Select[Any]:
    """Select the rows of `source` whose key is among the given keys.

    Each execution of the statement passes the keys, as `row_parameter` returns them.
    """
    key_table = table(dialect, names)
    return sa.select(source).join(key_table, same_keys(source, key_table))


def matching(
    connection: sa.Connection,
    source: sa.Table,
    values: Iterable[Sequence[str | int | None]],
    names: tuple[str, ...] = PARTITION,
) -> sa.CursorResult[Any]:
    """Return the rows of `source` whose key columns `names` have one of the given values."""
    return connection.execute(all_of(connection.dialect.name, source, names), row_parameter(values))


def same_keys(table: sa.FromClause, key_table: sa.CTE) -> sa.ColumnElement[bool]:
    """Return the join condition of a table with a key table: equality of all columns with the same name."""
    return sa.and_(sa.true(), *(table.c[name] == key_table.c[name] for name in key_table.c.keys()))  # noqa: SIM118

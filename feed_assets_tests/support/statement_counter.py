"""Statements that a database executes."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def counted_statements(engine: sa.Engine) -> Iterator[list[str]]:
    """Record the statements that a database executes; one executed with many rows counts once."""
    statements: list[str] = []

    def note(_connection, _cursor, statement, *_more) -> None:
        statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)

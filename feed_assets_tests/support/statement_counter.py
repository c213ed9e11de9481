"""What a database is asked."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def counted_statements(engine: sa.Engine) -> Iterator[list[str]]:
    """The statements that a database is asked; one that is executed with many rows is one."""
    statements: list[str] = []

    def note(_connection, _cursor, statement, *_more) -> None:
        statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)

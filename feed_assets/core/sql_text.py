"""Quoting of names and texts in standard SQL, for DuckDB, PostgreSQL and Redshift."""


def quoted(name: str) -> str:
    """Return any name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a SQL string literal, with quotes escaped."""
    return "'" + text.replace("'", "''") + "'"

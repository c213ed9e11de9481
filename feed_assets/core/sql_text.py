"""Quoting of names and texts in standard SQL, for DuckDB, PostgreSQL and Redshift."""


def quoted(name: str) -> str:
    """Return any name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a SQL string literal, with quotes escaped."""
    return "'" + text.replace("'", "''") + "'"


def storable(text: str) -> str:
    """Return a text with `?` for each NUL and lone surrogate, which no database can store."""
    return text.encode(errors="replace").decode().replace("\0", "?")

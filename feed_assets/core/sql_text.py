"""Names and texts as standard SQL has them: DuckDB, PostgreSQL and Redshift."""


def quoted(name: str) -> str:
    """Return a name as an identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"

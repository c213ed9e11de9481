"""Names of columns that are fields of records: the field `city` of the record `home` is the column `home__city`."""

SEPARATOR = "__"

MOST_LEVELS = 10
"""The most levels of records whose fields become columns. A record may be in itself, so its levels have no end."""


def column_of(record: str, field: str) -> str:
    """Return the name of a field's column. `record` is the name that the record would have as a column."""
    return f"{record}{SEPARATOR}{field}" if record else field


def records_of(column: str) -> list[str]:
    """Return the records that a column may be a field of, by their names as columns: `a` and `a__b` for `a__b__c`."""
    ends = range(1, len(column) - len(SEPARATOR))
    return [column[:end] for end in ends if column.startswith(SEPARATOR, end)]

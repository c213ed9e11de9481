"""Schemas of feeds in Spark's DDL, parsed without Spark, which would take seconds to start.

Columns have names, types, `NOT NULL` and `COMMENT` (ADR 25). A test compares the results with Spark's own parser.
"""

import re
from collections import deque
from collections.abc import Iterator
from difflib import get_close_matches

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.message_words import sentence

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.)*'|\S)", re.ASCII)
_NUMBER = re.compile(r"\d+(?:e\d+)?(?:bd|[lsydf])?", re.IGNORECASE)
_INTEGERS = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")
_NUMBERS = (*_INTEGERS, "float", "real", "double", "decimal", "dec", "numeric")
SCALARS = ("string", "boolean", *_NUMBERS, "date", "timestamp", "timestamp_ltz", "timestamp_ntz")
"""Types of values that text can hold exactly."""

_NESTED = {"array": 1, "map": 2}
TYPES = (*SCALARS, "binary", "variant", "void", *_NESTED, "struct")
_ELSEWHERE = {
    **dict.fromkeys(("str", "text"), "string"),
    "float64": "double",
    "int64": "bigint",
    "bool": "boolean",
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
}
"""Names of types in Python, pandas and SQL, with their names in Spark."""
TAKEN = {"_raw", "_file", "_reasons", "_corrupt", "_metadata"}
"""Names of the columns that feed_assets or Spark adds when it reads files. A schema cannot have them."""

_Tokens = deque[str]


def quoted(column: str) -> str:
    """Return a column's name quoted for SQL. Without quotes a dot would be a step into a struct."""
    return "`" + column.replace("`", "``") + "`"


def check_schema(feed: Feed, schema: str, form: str) -> None:
    """Raise InvalidDefinition for a schema that Spark cannot parse, or that this format does not support."""
    try:
        _check_columns(_columns(schema), form)
    except ValueError as error:
        raise InvalidDefinition(f"{feed}: schema {schema!r}: {sentence(str(error))}") from None


def check_event_time(feed: Feed, schema: str, event_time: str | None) -> None:
    """Raise InvalidDefinition if a feed has an event time that is not a timestamp column of its schema."""
    moments = [name for name, kind in _columns(schema) if kind in ("timestamp", "timestamp_ltz")]
    if event_time is not None and event_time not in moments:
        expected = ", ".join(moments) or "the schema has none"
        raise InvalidDefinition(f"{feed}: event_time {event_time!r}: expected a column of type timestamp: {expected}.")


def column_types(schema: str) -> list[tuple[str, str]]:
    """Return the names and types of a schema's columns, in order. Raise ValueError if Spark cannot parse it."""
    return [(name, text) for name, _, text in _fields(deque(_TOKEN.findall(schema.strip())), "")]


def column_names(schema: str) -> list[str]:
    """Return the names of a schema's columns, in order. Raise ValueError if Spark cannot parse it."""
    return [name for name, _ in _columns(schema)]


def _check_columns(columns: list[tuple[str, str]], form: str) -> None:
    names = [name.lower() for name, _ in columns]  # Spark compares names without case.
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} occurs twice, expected each column once")
    if reserved := sorted(TAKEN.intersection(names)):
        raise ValueError(f"columns {reserved} have names of columns that reading adds: rename them")
    if odd := [name for name, _ in columns if form == "json" and ('"' in name or "\\" in name)]:
        raise ValueError(f"columns {odd} cannot be found in JSON: rename them without quotes and backslashes")
    for name, kind in columns:
        if form != "parquet" and kind not in SCALARS:
            raise ValueError(
                f"column {name!r} is declared {kind}, which cannot be read from {form}: expected string, boolean, a "
                "number, date or timestamp. Declare one of these, or publish Parquet"
            )


def _columns(schema: str) -> list[tuple[str, str]]:
    """Return the name and kind of each column. Raise ValueError for no columns, or if Spark cannot parse the schema."""
    tokens = deque(_TOKEN.findall(schema.strip()))
    columns = [(name, kind) for name, kind, _ in _fields(tokens, "")]
    if not columns:
        raise ValueError("it has no columns, expected columns such as 'id string, at timestamp'")
    return columns


def _fields(tokens: _Tokens, end: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, kind (first word of the type) and whole type of each field, up to the token `end`.

    An `end` of '' is the end of the text.
    """
    if _next(tokens) == end:
        return
    while True:
        name = _name(tokens)
        _skip(tokens, ":")
        remaining = [*tokens]
        kind = _type(tokens, f"column {name!r}")
        yield name, kind, re.sub(r" ?([<>(),:]) ?", r"\1", " ".join(remaining[: len(remaining) - len(tokens)]))
        if _skip(tokens, "not"):
            _expect(tokens, "null")
        if _skip(tokens, "comment") and not _take(tokens).startswith("'"):
            raise ValueError(f"the comment of column {name!r} is not a text in quotes")
        if _next(tokens) == end:
            return
        _expect(tokens, ",")


def _name(tokens: _Tokens) -> str:
    name = _next(tokens)
    if name.startswith("`") and len(name) > 1:
        return _take(tokens)[1:-1].replace("``", "`")
    if not re.fullmatch(r"\w+", name, re.ASCII) or _NUMBER.fullmatch(name):
        raise ValueError(f"{name or 'its end'!r} where a column is expected, such as 'id string'")
    return _take(tokens)


def _type(tokens: _Tokens, label: str) -> str:
    kind = _next(tokens).lower()
    if kind in ("", ","):
        raise ValueError(f"{label} has no type, expected one, such as in 'id string, at timestamp'")
    if kind not in TYPES:
        near = [_ELSEWHERE[kind]] if kind in _ELSEWHERE else get_close_matches(kind, TYPES, 1)
        hint = f": is {near[0]} meant?" if near else f", expected one of {', '.join(TYPES)}"
        raise ValueError(f"{label} has the type {tokens[0] if tokens else ''!r}, which Spark does not have{hint}")
    _take(tokens)
    if kind in _NESTED or kind == "struct":
        _nested(tokens, kind, label)
    elif _skip(tokens, "("):
        _digits(tokens, kind, label)
    return kind


def _nested(tokens: _Tokens, kind: str, label: str) -> None:
    _expect(tokens, "<")
    if kind == "struct":
        _ = [*_fields(tokens, ">")]
    for number in range(_NESTED.get(kind, 0)):
        if number:
            _expect(tokens, ",")
        _type(tokens, label)
    _expect(tokens, ">")


def _digits(tokens: _Tokens, kind: str, label: str) -> None:
    """Consume the precision and scale of a decimal. Raise ValueError if they are wrong."""
    text = ""
    while tokens and _next(tokens) != ")":
        text += _take(tokens)
    _expect(tokens, ")")
    digits = re.fullmatch("([0-9]{1,2})(?:,([0-9]{1,2}))?", text)
    if kind not in ("decimal", "dec", "numeric") or not digits or not int(digits[2] or 0) <= int(digits[1]) <= 38:
        raise ValueError(f"{label}: {kind}({text}) is not a type, expected one such as decimal(10,2)")


def _next(tokens: _Tokens) -> str:
    return tokens[0] if tokens else ""


def _take(tokens: _Tokens) -> str:
    return tokens.popleft() if tokens else ""


def _skip(tokens: _Tokens, token: str) -> bool:
    """Consume the next token if it equals `token`. Return whether it does."""
    is_next = _next(tokens).lower() == token
    if is_next:
        _take(tokens)
    return is_next


def _expect(tokens: _Tokens, token: str) -> None:
    next_token = _next(tokens)
    if not _skip(tokens, token):
        raise ValueError(
            f"{next_token!r} where {token!r} is expected" if next_token else f"it ends where {token!r} is expected"
        )

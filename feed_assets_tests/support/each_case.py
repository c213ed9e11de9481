"""Tables of literal cases: many rows, one test."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

LONGEST_LABEL = 200
"""Longest text of a row in the report of a failure, in characters."""


def each_case(names: str | tuple[str, ...], rows: Iterable[Any], ids: Any = None) -> Callable:
    """Run a test once for all rows, and report each row that fails.

    The arguments are those of `pytest.mark.parametrize`. Use it for rows that need no fixture of their own: a table of
    refusals is one statement about the code. As separate tests its rows would hide how much is tested.

    Raises:
        ValueError: `rows` is empty, or a row has marks.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(rows)
    cases = [_values(row, columns) for row in rows]
    if not cases:
        raise ValueError("found a table without rows, of which no test could fail; expected at least one row")
    labels = [_own_id(row) or _label(number, cases[number], ids) for number, row in enumerate(rows)]

    def decorate(test: Callable) -> Callable:
        parameters = inspect.signature(test).parameters

        @wraps(test)
        def run_rows(subtests: pytest.Subtests, **fixtures: Any) -> None:
            if "subtests" in parameters:  # of a second table below this one
                fixtures["subtests"] = subtests
            for label, values in zip(labels, cases, strict=True):
                with subtests.test(msg=label):
                    test(**dict(zip(columns, values, strict=True)), **fixtures)

        run_rows.__signature__ = _signature(["subtests", *(name for name in parameters if name not in columns)])
        return run_rows

    return decorate


def _signature(names: Iterable[str]) -> inspect.Signature:
    """Return a signature that names the fixtures to request from pytest."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in dict.fromkeys(names)])


def _values(row: Any, columns: list[str]) -> tuple[Any, ...]:
    if hasattr(row, "marks"):  # made by `pytest.param`
        if row.marks:
            raise ValueError(f"found marks {row.marks} on a row, which is no test of its own; use pytest's parametrize")
        return tuple(row.values)
    return tuple(row) if len(columns) > 1 else (row,)


def _own_id(row: Any) -> str | None:
    return str(row.id) if hasattr(row, "marks") and row.id else None


def _label(number: int, values: tuple[Any, ...], ids: Any) -> str:
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    return str(ids[number]) if ids else repr(values)[:LONGEST_LABEL]

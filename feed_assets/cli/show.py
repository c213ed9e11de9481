"""Printing of a command's result, a model: as JSON for machines, in aligned columns for people."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import zip_longest
from typing import Annotated, Any, Self, TextIO, cast

import typer
from pydantic import BaseModel, ConfigDict, RootModel, WrapSerializer

from feed_assets.cli.terminal import echo
from feed_assets.core.rerun_report import number

Row = Mapping[str, Any]

NARROWEST = 30
"""The fewest characters of a wrapped column."""

_FOR_PEOPLE = {"for": "people"}
"""The context for dumping models that are printed in columns."""


def in_a_cell(formatter: Callable[[Any], object]) -> WrapSerializer:
    """Mark a field that people see in one cell, formatted by `formatter`."""
    return WrapSerializer(lambda value, dump, info: formatter(value) if info.context == _FOR_PEOPLE else dump(value))


Counted = in_a_cell(len)
"""Mark of a field that is printed as the number of its values."""
Seconds = in_a_cell(lambda value: f"{value:.3f} s")
"""Mark of a number of seconds, printed with its unit."""
Share = in_a_cell(lambda share: "" if share is None else f"{share:+.1%}")
"""Mark of a share, printed in per cent."""
Number = in_a_cell(number)
"""Mark of a number that may be an integer, a float or None."""
Below = in_a_cell(lambda text: (text,) if text else ())
"""Mark of a long text, printed in its own line."""
Sentence = in_a_cell(lambda view: str(view or ""))
"""Mark of a field that is printed in one cell as a text."""


Levels = in_a_cell(lambda levels: "/".join(f"{name}={value}" for name, value in levels.items()))
"""Mark of the levels of a sub-partition, printed as a path."""
Counts = in_a_cell(lambda counts: ", ".join(f"{count} {name}" for name, count in counts.items()))
"""Mark of numbers with the names of what they count."""
Words = Annotated[tuple[str, ...], in_a_cell(", ".join)]
"""Texts that are printed in one cell."""


_for_machines: ContextVar[TextIO | None] = ContextVar("_for_machines", default=None)


def _is_of_this_process() -> bool:
    """Return whether stdout is the process's own, not a replacement."""
    try:
        return sys.stdout.fileno() == 1
    except (OSError, ValueError):
        return False


@contextmanager
def json_alone() -> Generator[None]:
    """Let only `show` print on stdout. Other output, for example of a project's code or of Spark, goes to stderr."""
    if not _is_of_this_process():
        yield
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as machines:
        os.dup2(2, 1)
        token = _for_machines.set(machines)
        try:
            yield
        finally:
            _for_machines.reset(token)
            sys.stdout.flush()
            machines.flush()
            os.dup2(machines.fileno(), 1)


class View(BaseModel):
    """A command's view of one object, read from its attributes."""

    model_config = ConfigDict(
        from_attributes=True, validate_by_name=True, frozen=True, ser_json_inf_nan="constants", defer_build=True
    )

    @classmethod
    def each(cls, objects: Iterable[object]) -> tuple[Self, ...]:
        """Return a view of each object."""
        return tuple(map(cls.model_validate, objects))


class Values(RootModel[dict[str, Any]]):
    """Named values that need no view of their own."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the values by their names."""
        return cls(values)


def show(views: BaseModel | Sequence[BaseModel], as_json: bool, note: str = "") -> None:
    """Print views: as JSON, or in columns with a header, followed by nested values and the note."""
    many = views if isinstance(views, Sequence) else [views]
    if as_json:
        values = json.dumps([view.model_dump(mode="json") for view in many])
        parsed = json.loads(values, parse_constant=str)  # JSON has no NaN and no Infinity: they become texts.
        typer.echo(json.dumps(parsed if isinstance(views, Sequence) else parsed[0], indent=2), _for_machines.get())
        return
    for line in _table([view.model_dump(context=_FOR_PEOPLE) for view in many], terminal_width()):
        echo(line)
    if note or not many:
        echo(note or "nothing")


def terminal_width() -> int | None:
    """Return the terminal's width in columns. Return None for a file, in which each row stays one line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _table(rows: Sequence[Row], width: int | None) -> Iterator[str]:
    """Yield a header and a line for each row, without empty columns. A value too large for a cell follows its row.

    In a table wider than `width` the widest column is wrapped.
    """
    cells = [{name: _cell(value) for name, value in row.items() if not _is_below(value)} for row in rows]
    names = dict.fromkeys(name for line in cells for name, cell in line.items() if cell)
    order = [name for name in dict.fromkeys(name for line in cells for name in line) if name in names]
    lines = [order, *([line.get(name, "") for name in order] for line in cells)]
    widths = _fitting([max(map(len, column)) for column in zip(*lines, strict=True)], width)
    for line, row in zip(lines, ({}, *rows), strict=True):
        if order:
            yield from _wrapped(line, widths)
        for name, value in row.items():
            if value and _is_below(value):
                yield f"  {name}"
                yield from (f"    {below}" for below in _block(value, width and width - 4))


def _fitting(widths: list[int], width: int | None) -> list[int]:
    """Return the widths of columns. The widest column gets the space that the other columns leave."""
    if not widths or width is None:
        return widths
    other_width = sum(widths) - max(widths) + 2 * (len(widths) - 1)
    narrow = max(width - other_width, NARROWEST)
    widest = widths.index(max(widths))
    return [min(each, narrow) if at == widest else each for at, each in enumerate(widths)]


def _wrapped(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(line, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(map(str.ljust, parts, widths)).rstrip()


def _block(value: Any, width: int | None) -> Iterator[str]:
    """Yield the lines of a value that is printed below its row: a table of its names or rows, or one line per text."""
    if isinstance(value, dict):
        row = cast("Mapping[str, Any]", value)
        is_by_partition = all(isinstance(one, dict) for one in row.values())
        rows = [{"partition": key, **one} for key, one in row.items()] if is_by_partition else [row]
        return _table(rows, width)
    values = cast("Sequence[Any]", value)
    return _table(values, width) if isinstance(values[0], dict) else map(str, values)


def _is_below(value: object) -> bool:
    return isinstance(value, (dict, tuple))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)

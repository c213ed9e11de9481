"""Print what a command says, a model of `views`: as JSON for machines, in aligned columns for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

Row = Mapping[str, Any]

FOR_PEOPLE = {"for": "people"}
"""The context in which models are dumped that are printed in columns."""


def show(views: "BaseModel | Sequence[BaseModel]", as_json: bool, note: str = "") -> None:
    """Print views: as JSON; or in columns with a header, what they hold below, and then the note."""
    many = views if isinstance(views, Sequence) else [views]
    if as_json:
        values = [view.model_dump(mode="json") for view in many]
        typer.echo(json.dumps(values if isinstance(views, Sequence) else values[0], indent=2))
        return
    for line in _table([view.model_dump(context=FOR_PEOPLE) for view in many]):
        typer.echo(line)
    if note or not many:
        typer.echo(note or "nothing")


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """A header and a line for each row, without empty columns; below each line what is more than a cell."""
    lines = [{name: _cell(value) for name, value in row.items() if not _is_below(value)} for row in rows]
    names = [
        name for name in dict.fromkeys(name for line in lines for name in line) if any(line.get(name) for line in lines)
    ]
    widths = {name: max(len(name), *(len(line.get(name, "")) for line in lines)) for name in names}
    if names:
        yield _line(dict(zip(names, names, strict=True)), widths)
    for line, row in zip(lines, rows, strict=True):
        if names:
            yield _line(line, widths)
        for name, value in row.items():
            if value and _is_below(value):
                yield f"  {name}"
                yield from (f"    {below}" for below in _block(value))


def _line(cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    return "  ".join(cells.get(name, "").ljust(width) for name, width in widths.items()).rstrip()


def _block(value: Any) -> Iterator[str]:
    """A table of one row, of a row for each partition, or of all rows; or lines."""
    if isinstance(value, dict):
        row = cast("Mapping[str, Any]", value)
        is_by_partition = all(isinstance(one, dict) for one in row.values())
        return _table([{"partition": key, **one} for key, one in row.items()] if is_by_partition else [row])
    found = cast("Sequence[Any]", value)
    return _table(found) if isinstance(found[0], dict) else map(str, found)


def _is_below(value: object) -> bool:
    return isinstance(value, (dict, tuple))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)

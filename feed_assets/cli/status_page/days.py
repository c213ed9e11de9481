"""The grid of some days: a row for each dataset, and a column for each hour, or for each day if there are many."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from html import escape
from typing import TYPE_CHECKING

from feed_assets.cli.status_page.links import Links, filtered, name_of
from feed_assets.core.grid import LEGEND, Cell, Slots, cells

if TYPE_CHECKING:
    from feed_assets.orchestration.decide.status_grid import GridRow, Status

NAMED_FROM = 5
"""The fewest columns that a cell needs to show the key of its partition."""

NAMED_DAYS = 14
"""The most days for which each column has a name. With more days, every seventh column has a name."""

_DAY = timedelta(days=1)


def days_grid(status: "Status", links: Links) -> str:
    """Return the grid of the requested days."""
    if status.slots is None:
        return ""
    body = "".join(_line(row, status.slots, links) for row in status.rows)
    grid = f'<table class="grid"><thead>{_head(status.slots)}</thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Grid of all datasets">{grid}</div>'


def _line(row: "GridRow", slots: Slots, links: Links) -> str:
    name, line = name_of(row, links), "".join(_cells(row, slots, links))
    return f'<tr {filtered(row)}><th scope="row">{name}</th>{line}</tr>'


def _head(slots: Slots) -> str:
    """Return the header: days with their hours below, or only days if there are many."""
    if slots.step == _DAY:
        each = 1 if len(slots) <= NAMED_DAYS else 7
        spans = [(start, min(each, len(slots) - at)) for at, start in enumerate(slots.starts) if at % each == 0]
        return f"<tr><th>UTC</th>{''.join(_day(start, span, '%m-%d') for start, span in spans)}</tr>"
    days = [start for start in slots.starts if start.hour == 0]
    hours = "".join(f"<th{' class=day' * (start.hour == 0)}>{start:%H}</th>" for start in slots.starts)
    named = "".join(_day(day, len(slots) // len(days), "%a %Y-%m-%d") for day in days)
    return f"<tr><th>UTC</th>{named}</tr><tr><th></th>{hours}</tr>"


def _day(day: datetime, span: int, form: str) -> str:
    return f"<th class=day colspan={span}>{day:{form}}</th>"


def _cells(row: "GridRow", slots: Slots, links: Links) -> Iterator[str]:
    per_day = _DAY // slots.step
    begins_day = [" day" * (per_day > 1 and at % per_day == 0) for at in range(len(slots))]
    reached = 0
    for cell in cells(row.shown, slots):
        yield from (f'<td class="none{begins_day[at]}"></td>' for at in range(reached, cell.first))
        yield _cell(cell, links, begins_day[cell.first])
        reached = cell.first + cell.width
    yield '<td class="none"></td>' * (len(slots) - reached)


def _cell(cell: Cell, links: Links, extra_class: str) -> str:
    key = (
        f" {escape(cell.partitions[0].partition.key)}" if cell.width >= NAMED_FROM and len(cell.partitions) == 1 else ""
    )
    title, inner = links.cell(cell, f"{LEGEND[cell.state][0]}{key}")
    span = f" colspan={cell.width}" if cell.width > 1 else ""
    return f'<td class="cell {cell.state.name.lower()}{extra_class}"{span} {title}>{inner}</td>'

"""The status as one self-contained HTML page: no script, nothing from elsewhere, and every text of others escaped."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from feed_assets.cli.show import View
from feed_assets.cli.status_views import ElsewhereView, HoleView, StaleView, counts, waits
from feed_assets.core.feeds import Partition
from feed_assets.core.grid import LEGEND, Cell, CellState, cells

if TYPE_CHECKING:
    from feed_assets.cli.status_views import ReasonView
    from feed_assets.orchestration.decide.status import Row, Status

LINES_SHOWN = 300
"""Lines of one table of the page; `--json` has all."""

NAMED_FROM = 5
"""Columns from which on a cell has room for the key of its partition."""


def page(status: "Status", *, is_live: bool) -> str:
    """The page; `is_live`: it is served beside Dagster's own pages, to which it leads, and has links to other days."""
    template = Template(files("feed_assets.cli").joinpath("status.html").read_text(encoding="utf-8"))
    found = waits(status)
    return template.substitute(
        title="Status of all datasets",
        now=f"{status.now:%Y-%m-%d %H:%M:%S}",
        nav=_nav(status) if is_live else "",
        counts="".join(_count(state, count) for state, count in counts(status).items()) or "<li>nothing is shown</li>",
        legend="".join(f"<li>{_sign(state)}{escape(words)}</li>" for state, (_, words) in LEGEND.items()),
        notes="".join(f"<p>{escape(note)}</p>" for note in status.notes),
        grid="".join(_grid(status, _anchors(found), is_live=is_live)),
        tables="".join(_tables(status, found)),
    )


def _sign(state: CellState) -> str:
    return f'<span class="sign {state.name.lower()}">{LEGEND[state][0]}</span>'


def _count(state: str, count: int) -> str:
    return f"<li>{_sign(CellState(state))}{count:,} {escape(state)}</li>"


def _nav(status: "Status") -> str:
    """Links to the days before and after, and a field for any other one."""
    days = (status.slots.end - status.slots.start).days
    last = status.slots.end - timedelta(days=1)
    links = [("earlier", last - timedelta(days=days)), ("later", last + timedelta(days=days))]
    shown = " ".join(f'<a href="?{_query(status, day, days)}">{name}</a>' for name, day in links)
    field = f'<input type="date" name="day" aria-label="day" value="{last:%Y-%m-%d}"><button>show</button>'
    return f'<nav>{shown} <a href="?">all, now</a> <form>{field}</form></nav>'


def _query(status: "Status", day: datetime, days: int) -> str:
    asked = [("day", f"{day:%Y-%m-%d}"), ("days", days), *(("dataset", feed) for feed in status.asked)]
    return escape(urlencode(asked))


Anchors = Mapping[Partition, int]


def _anchors(found: Sequence["ReasonView"]) -> Anchors:
    """By partition the line below the grid that says why it is what it is."""
    return {at: number for number, each in enumerate(found[:LINES_SHOWN]) for at in each.all}


def _grid(status: "Status", anchors: Anchors, *, is_live: bool) -> Iterator[str]:
    yield f"<thead>{''.join(_header(status))}</thead><tbody>"
    for row in status.rows:
        marks = "".join(f'<td class="mark">{_moment(each)}</td>' for each in (row.marks.contiguous, row.marks.latest))
        name, line = _name(row, is_live=is_live), "".join(_cells(row, status, anchors))
        yield f'<tr><th scope="row">{name}</th>{line}{marks}</tr>'
    yield "</tbody>"


def _header(status: "Status") -> Iterator[str]:
    """Days, and below them their hours; of many days only these."""
    starts, is_hours = status.slots.starts, status.slots.step < timedelta(days=1)
    days = [each for each in starts if each.hour == 0]
    span = len(starts) // len(days)
    marks = "<th>without a hole</th><th>newest</th>"
    yield f"<tr><th>UTC</th>{''.join(_day(each, span) for each in days)}{marks}</tr>"
    if is_hours:
        hours = "".join(f"<th{' class=day' * (each.hour == 0)}>{each:%H}</th>" for each in starts)
        yield f"<tr><th></th>{hours}<th></th><th></th></tr>"


def _day(day: datetime, span: int) -> str:
    text = f"{day:%a %Y-%m-%d}" if span > 1 else f"{day:%m-%d}"
    return f"<th class=day colspan={span}>{text}</th>"


def _name(row: "Row", *, is_live: bool) -> str:
    name = escape(str(row.node.feed))
    if is_live:
        path = quote("/".join(row.node.key.path))
        name = f'<a href="/assets/{escape(path)}?view=partitions">{name}</a>'
    return f"{name} <small>{escape(row.of)}</small>" if row.of else name


def _cells(row: "Row", status: "Status", anchors: Anchors) -> Iterator[str]:
    reached, per_day = 0, timedelta(days=1) // status.slots.step
    for cell in cells(row.shown, status.slots):
        yield from (f'<td class="none{" day" * (at % per_day == 0)}"></td>' for at in range(reached, cell.first))
        yield _cell(cell, anchors, " day" * (cell.first % per_day == 0))
        reached = cell.first + cell.width
    yield '<td class="none"></td>' * (len(status.slots) - reached)


def _cell(cell: Cell, anchors: Anchors, more: str) -> str:
    state = cell.state
    worst = next(each for each in cell.shown if each.state is state)
    said = escape(_title(cell), quote=True)
    key = f" {escape(worst.partition.key)}" if cell.width >= NAMED_FROM and len(cell.shown) == 1 else ""
    text, number = f"{LEGEND[state][0]}{key}", anchors.get(worst.partition)
    inner = text if number is None else f"<a href=#r{number}>{text}</a>"
    span = f" colspan={cell.width}" if cell.width > 1 else ""
    return f'<td class="cell {state.name.lower()}{more}"{span} title="{said}">{inner}</td>'


def _title(cell: Cell) -> str:
    """What a cell says when it is pointed at: of several partitions how many are in the state that is shown."""
    those = [each for each in cell.shown if each.state is cell.state]
    first = those[0]
    name = first.partition.key or str(first.partition.feed)
    many = f"{len(those)} of {len(cell.shown)} {cell.state.value}: " if len(cell.shown) > 1 else ""
    return f"{many}{name}: {first.why or cell.state.value}" if many or first.why else f"{name}: {cell.state.value}"


def _tables(status: "Status", found: Sequence["ReasonView"]) -> Iterator[str]:
    """What is below the grid, each table with its title."""
    holes = [HoleView.of_row(row, hole) for row, hole in status.holes]
    yield _table("Why each is as it is", found, "r")
    yield _table("Gaps: not there, and something behind it is", holes)
    yield _table(f"Built, and out of date: {status.stale_in_all:,}", StaleView.each(status.stale))
    yield _table("On other days", [*map(ElsewhereView.of_group, status.elsewhere)])


def _table(title: str, views: Sequence[View], anchor: str = "") -> str:
    """A table of views; without any there is none."""
    if not views:
        return ""
    rows = [view.model_dump(mode="python") for view in views[:LINES_SHOWN]]
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(_row(row, f" id={anchor}{number}" if anchor else "") for number, row in enumerate(rows))
    left = len(views) - len(rows)
    more = f"<p>and {left:,} more: `feed-assets status --json` has all</p>" if left else ""
    table = f'<table class="lines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"<h2>{escape(title)}</h2>{table}{more}"


def _row(row: Mapping[str, Any], more: str) -> str:
    return f"<tr{more}>{''.join(_value(name, value) for name, value in row.items())}</tr>"


def _value(name: str, value: object) -> str:
    if isinstance(value, datetime):
        return f"<td>{_moment(value)}</td>"
    known = {each.value: each for each in CellState}
    if name == "state" and value in known:
        return f"<td>{_sign(known[str(value)])}{escape(str(value))}</td>"
    kind = " class=keys" if name == "partitions" else ""
    return f"<td{kind}>{escape('' if value is None else str(value))}</td>"


def _moment(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else ""

"""`feed-assets status`: which partitions of all datasets are complete, late, invalid, waiting or running, and why."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, dynamic_partitions, load_graph, open_services
from feed_assets.cli.show import View, show
from feed_assets.cli.status_views import MarkView, StaleView, StatusView
from feed_assets.cli.terminal import echo
from feed_assets.core.control_characters import printable
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.grid import LEGEND, CellState, cells, periods

if TYPE_CHECKING:
    from feed_assets.core.grid import Slots
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.decide.status_grid import GridRow, Status
    from feed_assets.runs.services import Services


class _Colour(NamedTuple):
    fg: str | None = None
    bg: str | None = None
    bold: bool = False
    dim: bool = False


COLOURS = {
    CellState.PERSON: _Colour("white", "red", bold=True),
    CellState.INVALID: _Colour("white", "bright_black"),
    CellState.ISSUE: _Colour("black", "white"),
    CellState.LATE: _Colour("black", "yellow"),
    CellState.WAITING: _Colour("blue"),
    CellState.MISSING: _Colour("red"),
    CellState.RUNNING: _Colour("cyan"),
    CellState.CLOSED: _Colour(dim=True),
    CellState.COMPLETE: _Colour("green"),
    CellState.LATER: _Colour(dim=True),
}
"""Colours of each sign on a terminal. The sign alone also identifies the state, without colours."""

DAYS_AT_MOST = 92

_Datasets = Annotated[
    list[str] | None, typer.Option("--dataset", metavar="DATASET", help="Only these datasets; by default all.")
]


def status(
    day: Annotated[
        str | None, typer.Option(metavar="DAY", help="The last day shown (UTC); by default the newest periods.")
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            min=1, max=DAYS_AT_MOST, help="Number of days; a column is an hour, or a day if there are more than 2."
        ),
    ] = None,
    dataset: _Datasets = None,
    module: Module = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="List all partitions that are built but out of date.")] = False,
    live: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Show the state of every dataset's newest partitions, or of the partitions of some days, and why they wait.

    Partitions that no tick has decided yet are decided first, as by `explain`, so that the status is current.
    """
    graph = load_graph(module)
    services = open_services(graph, makes=False)
    feeds = [Feed.parse(each) for each in dataset or ()]
    with dynamic_partitions(graph):
        if stale:
            _show_stale(graph, services, feeds, as_json)
        else:
            grid = _status(graph, services, feeds, _slots(day, days, services.now()))
            _show(grid, as_json, html, live=live)


def _show(grid: "Status", as_json: bool, html: Path | None, *, live: bool) -> None:
    from feed_assets.cli.status_page.page import page

    if html:
        html.write_text(page(grid, is_live=live), encoding="utf-8")
    if as_json:
        show(StatusView.of(grid), as_json)
    elif not html:
        _print(grid)


def _slots(day: str | None, days: int | None, now: datetime) -> "Slots | None":
    """Return the days that `--day` and `--days` request.

    Return None without these options: the newest periods are shown.
    """
    from feed_assets.core.grid import HOURS_UP_TO, Slots

    if day is None and days is None:
        return None
    try:
        last = date.fromisoformat(day) if day else now.astimezone(UTC).date()
    except ValueError:
        raise InvalidName(f"--day {day!r}: expected a day, such as 2026-01-01.") from None
    return Slots.of(last, days or HOURS_UP_TO)


def _status(graph: "Graph", services: "Services", feeds: Sequence[Feed], slots: "Slots | None") -> "Status":
    """Return the status as of now. First do what the next tick would do: read, record and decide."""
    from dataclasses import replace

    from feed_assets.cli.explain import caught_up
    from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
    from feed_assets.replication.place_overview import lag_notes

    nodes = nodes_shown(graph, feeds)
    notes = caught_up(graph, services, [node for node in nodes if node.role == "dataset"])
    with services.ledger.read() as connection:
        grid = status_of(graph, connection, nodes, slots=slots, now=services.now(), asked_for=feeds)
        notes += lag_notes(connection, [node.feed for node in nodes], services.now())
    return replace(grid, notes=(*grid.notes, *notes))


def _show_stale(graph: "Graph", services: "Services", feeds: Sequence[Feed], as_json: bool) -> None:
    from feed_assets.cli.explain import caught_up
    from feed_assets.ledger.status_facts import stale

    nodes = [graph.dataset_of(feed) for feed in feeds] or graph.datasets()
    notes = caught_up(graph, services, nodes)
    with services.ledger.read() as connection:
        rows, _ = stale(connection, [node.feed for node in nodes])
    show(StaleView.each(rows), as_json, "\n".join([*([] if rows else ["nothing is stale"]), *notes]))


def _print(grid: "Status") -> None:
    view = StatusView.of(grid)
    for line in _grid(grid):  # These lines have colours, which our `echo` would escape.
        typer.echo(line)
    echo("  ".join(f"{count:,} {state}" for state, count in view.counts.items()) or "nothing is shown")
    for title, rows in _tables(grid, view):
        if rows:
            echo(f"\n{title}")
            show(rows, as_json=False)
    for note in view.notes:
        echo(note)


def _tables(grid: "Status", view: StatusView) -> list[tuple[str, Sequence[View]]]:
    """Return the tables that are printed below the grid, each with its title."""
    out_of_date = f"Built, but out of date: {view.stale_in_all:,}"
    return [
        ("Why", view.waits),
        ("Watermarks", [each for each in MarkView.each(grid.rows) if each.latest]),
        ("Gaps", view.gaps),
        (out_of_date, view.stale),
        ("Due, but not shown", view.elsewhere),
    ]


def _grid(grid: "Status") -> Iterator[str]:
    """Yield a line for each row, below the header of the requested days, then the legend."""
    names = [printable(f"{row.node.feed} {row.of}".rstrip()) for row in grid.rows]
    width = max(map(len, names), default=0)
    lines = _lines(grid.rows, grid.slots) if grid.slots else _newest(grid.rows)
    if grid.slots:
        yield from (f"{'':{width}}  {line}".rstrip() for line in _header(grid.slots))
    for name, line in zip(names, lines, strict=True):
        yield f"{name:{width}}  {line}".rstrip()
    yield "  ".join(f"{_styled(state, sign)} {words.partition(':')[0]}" for state, (sign, words) in LEGEND.items())


def _newest(rows: "Sequence[GridRow]") -> Iterator[str]:
    """Yield the newest periods of each row, with the name of the last one."""
    strips = [periods(row.shown) for row in rows]
    width = max(map(len, strips), default=0)
    for strip in strips:
        signs = "".join(_styled(cell.state, LEGEND[cell.state][0]) for cell in strip)
        yield f"{signs}{' ' * (width - len(strip))}  {printable(strip[-1].name) if strip else ''}"


def _header(slots: "Slots") -> Iterator[str]:
    """Yield a line with the days. If the columns are hours, yield another line with every third hour."""
    if slots.step.days:
        yield "".join(f"{each:%d} " for each in slots.starts)
        return
    yield "".join(f"{each:%Y-%m-%d}".ljust(24) for each in slots.starts if each.hour == 0)
    yield "".join(f"{each:%H} " for each in slots.starts if each.hour % 3 == 0)


def _lines(rows: "Sequence[GridRow]", slots: "Slots") -> Iterator[str]:
    wide = 3 if slots.step.days else 1
    for row in rows:
        text, reached = "", 0
        for cell in cells(row.shown, slots):
            sign = (LEGEND[cell.state][0] * (wide - (wide > 1))).ljust(wide)
            text += " " * (cell.first - reached) * wide + _styled(cell.state, sign * cell.width)
            reached = cell.first + cell.width
        yield text.rstrip()


def _styled(state: CellState, text: str) -> str:
    colour = COLOURS[state]
    return typer.style(text, fg=colour.fg, bg=colour.bg, bold=colour.bold, dim=colour.dim)

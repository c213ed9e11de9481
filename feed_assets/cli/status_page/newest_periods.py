"""The newest periods of each dataset, side by side. Datasets that need a person come first."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from feed_assets.cli.status_page.links import Links, filtered, name_of, named
from feed_assets.cli.status_page.sections import moment
from feed_assets.core.grid import LEGEND, Cell, periods

if TYPE_CHECKING:
    from feed_assets.orchestration.decide.status_grid import GridRow, Status


def newest_periods(status: "Status", links: Links) -> str:
    """Return the table of the newest periods."""
    titles = ["dataset", "periods, the newest last", "newest period", "complete up to", *["Dagster"] * links.is_live]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(_line(row, links) for row in status.rows)
    return f'<table class="lines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _line(row: "GridRow", links: Links) -> str:
    strip = periods(row.shown)
    cells = "".join(_cells(strip, links))
    newest = f"{named(strip[-1].state)}<small>{strip[-1].name}</small>" if strip else ""
    dagster = f'<td><a href="{links.dagster(row.node)}">open</a></td>' if links.is_live else ""
    return (
        f'<tr {filtered(row)}><th class="name" scope="row">{name_of(row, links)}</th><td class="strip">{cells}</td>'
        f'<td class="short">{newest}</td><td class="short">{_marks(row)}</td>{dagster}</tr>'
    )


def _cells(strip: tuple[Cell, ...], links: Links) -> Iterator[str]:
    """Yield a row's cells as HTML. Cells of periods that are not adjacent are drawn with a gap between them."""
    for number, cell in enumerate(strip):
        is_apart = number > 0 and strip[number - 1].partitions[0].end != cell.partitions[0].start
        title, inner = links.cell(cell, LEGEND[cell.state][0])
        name = f"cell {cell.state.name.lower()}{' apart' * is_apart}"
        yield f'<span class="{name}" {title}>{inner}</span>'


def _marks(row: "GridRow") -> str:
    """Return as HTML the end of a row's latest data and, if data before it are missing, the start of the first hole."""
    to_hole, latest = row.marks.contiguous, row.marks.latest
    hole = f"<small>a hole at {moment(to_hole)}</small>" if to_hole and latest and to_hole < latest else ""
    return f"{moment(latest)}{hole}"

"""The status page, from top to bottom, for all datasets or for one with its partitions."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from feed_assets.cli.status_page.days import days_grid
from feed_assets.cli.status_page.frame import frame
from feed_assets.cli.status_page.links import Links, sign
from feed_assets.cli.status_page.newest_periods import newest_periods
from feed_assets.cli.status_page.partition_table import partition_lines, partitions_table, printed
from feed_assets.cli.status_page.sections import details, section, table
from feed_assets.cli.status_views import ElsewhereView, HoleView, StaleView, counts, waits
from feed_assets.core.grid import LEGEND, CellState

if TYPE_CHECKING:
    from feed_assets.cli.status_views import ReasonView
    from feed_assets.orchestration.decide.status_grid import Status

REASONS_AT_ONCE = 8
"""The most lines of failing or waiting partitions that are shown at first. More would push the datasets far down."""

LINES_SHOWN = 300
"""The most lines of one table. `feed-assets status --json` prints all."""


def page(status: "Status", *, is_live: bool) -> str:
    """Return the page.

    Args:
        status: The status to show. A single requested dataset has its own page, with its partitions.
        is_live: True if the page is served beside Dagster's own pages. Then it links to Dagster's pages, and to other
            days.
    """
    title = str(status.requested[0]) if len(status.requested) == 1 else "Status of all datasets"
    parts = _one(status, is_live=is_live) if len(status.requested) == 1 else _all(status, is_live=is_live)
    return frame(title=title, body="".join([*_top(status, title, is_live=is_live), *parts, *_legend()]))


def _top(status: "Status", title: str, *, is_live: bool) -> Iterator[str]:
    as_of = f'<span class="as-of">as of {status.now:%Y-%m-%d %H:%M:%S} UTC</span>'
    yield f"<header><h1>{escape(title)}</h1>{as_of}{_nav(status) if is_live else ''}</header>"
    yield _filter(status)
    yield from (f"<p>{escape(note)}</p>" for note in status.notes)


def _nav(status: "Status") -> str:
    """Return links to the other pages, and a field for a day."""
    links = ['<a href="/status">all datasets</a>'] if status.requested else []
    if len(status.requested) == 1 and status.rows:
        links.append(f'<a href="{Links(status).dagster(status.rows[0].node)}">in Dagster</a>')
    if status.slots:
        days = (status.slots.end - status.slots.start).days
        last = status.slots.end - timedelta(days=1)
        links += [_by_day(status, "earlier", last - timedelta(days=days), days)]
        links += [_by_day(status, "later", last + timedelta(days=days), days)]
        links += [f'<a href="?{escape(_query(status))}">newest periods</a>']
    day = f"{status.slots.end - timedelta(days=1):%Y-%m-%d}" if status.slots else f"{status.now:%Y-%m-%d}"
    hidden_fields = "".join(
        f'<input type="hidden" name="dataset" value="{escape(str(feed))}">' for feed in status.requested
    )
    field = f'<input type="date" name="day" aria-label="day" value="{day}"><button>show day</button>'
    return f"<nav>{' '.join(links)} <form>{hidden_fields}{field}</form></nav>"


def _by_day(status: "Status", name: str, day: object, days: int) -> str:
    return f'<a href="?{escape(_query(status, ("day", f"{day:%Y-%m-%d}"), ("days", str(days))))}">{name}</a>'


def _query(status: "Status", *pairs: tuple[str, str]) -> str:
    return urlencode([*pairs, *(("dataset", str(feed)) for feed in status.requested)])


def _filter(status: "Status") -> str:
    """Return the number of partitions in each state, and the filter's fields, which the page's script shows."""
    is_shown = [*CellState] if status.slots else [state for state in CellState if state is not CellState.LATER]
    by_state = "".join(_count(CellState(state), count) for state, count in counts(status).items() if state in is_shown)
    name = '<input type="search" name="name" placeholder="filter by name" aria-label="filter by name">'
    none = '<p class="no-match" hidden>Nothing matches the filter.</p>'
    return f'<form class="filter">{name}<ul class="counts">{by_state or "<li>nothing is shown</li>"}</ul></form>{none}'


def _count(state: CellState, count: int) -> str:
    box = f'<input type="checkbox" name="state" value="{state.name.lower()}">'
    return f"<li><label>{box}{sign(state)}{count:,} {escape(state.value)}</label></li>"


def _all(status: "Status", *, is_live: bool) -> Iterator[str]:
    """Yield the partitions that fail or wait, then the datasets, then gaps and outdated partitions."""
    links = Links(status, is_live=is_live)
    reasons = waits(status)
    yield _needs_a_look(reasons, links)
    if status.slots:
        yield section("By day", days_grid(status, links.to_lines(reasons[:LINES_SHOWN])))
    else:
        yield section("Newest periods of each dataset", newest_periods(status, links.to_lines(reasons[:LINES_SHOWN])))
    yield from _other_tables(status, links)


def _one(status: "Status", *, is_live: bool) -> Iterator[str]:
    """Yield one dataset: its newest periods or some days, and each partition with what it waits for."""
    every = partition_lines(status)
    links = Links(status, is_live=is_live).to_partitions(printed(every))
    if status.slots:
        yield section("By day", days_grid(status, links))
    else:
        yield section("Newest periods", newest_periods(status, links))
    yield section("Partitions, the newest first", partitions_table(every, links))
    yield from _other_tables(status, links)


def _needs_a_look(reasons: Sequence["ReasonView"], links: Links) -> str:
    if not reasons:
        return "<section><h2>Nothing fails or waits</h2></section>"
    first, further = reasons[:REASONS_AT_ONCE], reasons[REASONS_AT_ONCE:LINES_SHOWN]
    further_table = details(f"{len(further):,} more", table(further, links, "r", first=len(first))) if further else ""
    note = _remainder_note(len(reasons) - LINES_SHOWN)
    return section("What fails or waits, the worst first", table(first, links, "r") + further_table + note)


def _other_tables(status: "Status", links: Links) -> Iterator[str]:
    holes = [HoleView.of_row(row, hole) for row, hole in status.holes]
    stale = StaleView.each(status.stale)
    tables = [
        ("Gaps: missing, though later partitions exist", holes),
        (f"Built, but out of date: {status.stale_in_all:,}", stale),
        ("Due, but not shown above", [*map(ElsewhereView.of_group, status.elsewhere)]),
    ]
    for title, views in tables:
        if views:
            yield section(title, table(views[:LINES_SHOWN], links) + _remainder_note(len(views) - LINES_SHOWN))


def _remainder_note(count: int) -> str:
    return f"<p>and {count:,} more: `feed-assets status --json` has all</p>" if count > 0 else ""


def _legend() -> Iterator[str]:
    signs = "".join(f"<li>{sign(state)}{escape(words)}</li>" for state, (_, words) in LEGEND.items())
    yield f'<ul class="legend">{signs}</ul>'

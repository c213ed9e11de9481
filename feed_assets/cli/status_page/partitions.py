"""The partitions of one dataset, the newest first, each with its state and why it is so."""

from html import escape
from typing import TYPE_CHECKING

from feed_assets.cli.status_page.lines import moment
from feed_assets.cli.status_page.links import Links, named
from feed_assets.core.grid import CellState
from feed_assets.core.words import first_line

if TYPE_CHECKING:
    from feed_assets.core.grid import Shown
    from feed_assets.orchestration.decide.status import Row, Status

PARTITIONS_SHOWN = 500
"""Partitions of one dataset on its page; other days lead to others."""


def partitions_table(status: "Status", links: Links) -> str:
    """Return the table of the partitions that are shown of one dataset."""
    every = [(row, each) for row in status.rows for each in row.shown if each.state is not CellState.LATER]
    if not every:
        return "<p>None of its partitions is over yet.</p>"
    every.sort(key=lambda pair: (moment(pair[1].start), pair[1].partition.key), reverse=True)
    head = "".join(f"<th>{title}</th>" for title in ("state", "partition", "verdict", "waits since", "why"))
    body = "".join(_line(row, each, links) for row, each in every[:PARTITIONS_SHOWN])
    left = len(every) - PARTITIONS_SHOWN
    more = f"<p>and {left:,} older ones: choose a day above</p>" if left > 0 else ""
    return f'<table class="lines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _line(row: "Row", shown: "Shown", links: Links) -> str:
    name = f'data-name="{escape(shown.partition.key.lower(), quote=True)}" data-states="{shown.state.name.lower()}"'
    return (
        f'<tr id="{links.anchors[shown.partition]}" {name}><td class="short">{named(shown.state)}</td>'
        f'<th class="name" scope="row">{links.partition(row, shown.partition)}</th>'
        f"<td>{escape(shown.verdict or '')}</td>"
        f'<td class="short">{moment(shown.since)}</td><td>{escape(first_line(shown.why))}</td></tr>'
    )

"""The partitions of one dataset, the newest first, each with its state and the reason."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from feed_assets.cli.status_page.links import Links, named
from feed_assets.cli.status_page.sections import moment
from feed_assets.core.feeds import Partition
from feed_assets.core.grid import CellState
from feed_assets.core.message_words import first_line

if TYPE_CHECKING:
    from feed_assets.core.grid import Shown
    from feed_assets.orchestration.decide.status_grid import GridRow, Status

PARTITIONS_SHOWN = 500
"""The most partitions of one dataset on its page. Links lead to other days."""

Lines = Sequence[tuple["GridRow", "Shown"]]


def partition_lines(status: "Status") -> Lines:
    """Return the partitions of one dataset that are over or have data, the newest first."""
    every = [(row, each) for row in status.rows for each in row.shown if each.state is not CellState.LATER]
    return sorted(every, key=lambda pair: (moment(pair[1].start), pair[1].partition.key), reverse=True)


def printed(every: Lines) -> list[Partition]:
    """Return the partitions that have a line in the table."""
    return [entry.partition for _, entry in every[:PARTITIONS_SHOWN]]


def partitions_table(every: Lines, links: Links) -> str:
    """Return the table of partitions of one dataset."""
    if not every:
        return "<p>No partition of this dataset is over yet.</p>"
    head = "".join(f"<th>{title}</th>" for title in ("state", "partition", "verdict", "waits since", "why"))
    body = "".join(_line(row, each, links) for row, each in every[:PARTITIONS_SHOWN])
    remaining = len(every) - PARTITIONS_SHOWN
    advice = "choose a day above" if links.is_live else "`feed-assets status --json` has all"
    note = f"<p>and {remaining:,} older ones: {advice}</p>" if remaining > 0 else ""
    return f'<table class="lines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}'


def _line(row: "GridRow", entry: "Shown", links: Links) -> str:
    name = f'data-name="{escape(entry.partition.key.lower(), quote=True)}" data-states="{entry.state.name.lower()}"'
    return (
        f'<tr id="{links.anchors[entry.partition]}" {name}><td class="short">{named(entry.state)}</td>'
        f'<th class="name" scope="row">{links.partition(row, entry.partition)}</th>'
        f"<td>{escape(entry.verdict or '')}</td>"
        f'<td class="short">{moment(entry.since)}</td><td>{escape(first_line(entry.why))}</td></tr>'
    )

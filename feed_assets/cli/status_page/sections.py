"""Sections of the status page, and the tables of views in them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from feed_assets.cli.show import View
from feed_assets.cli.status_page.links import Links, named
from feed_assets.core.grid import CellState

_STATES = {each.value: each for each in CellState}
_SHORT = ("state", "since", "start", "end", "count")
"""Columns whose values are never wrapped."""
_NAMES = ("dataset", "partition", "partitions")
"""Columns of names, which may be long."""


def section(title: str, content: str) -> str:
    """Return a section with its title."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def details(title: str, content: str) -> str:
    """Return content that stays closed until somebody opens it."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def table(views: Sequence[View], links: Links, anchor: str = "", first: int = 0) -> str:
    """Return a table of views, whose lines have anchors numbered from `first`."""
    rows = [view.model_dump(mode="python") for view in views]
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(_row(row, links, anchor and f"{anchor}{number}") for number, row in enumerate(rows, first))
    return f'<table class="lines"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def moment(at: datetime | None) -> str:
    """Return a moment (UTC) as text."""
    return f"{at:%Y-%m-%d %H:%M}" if at else ""


def _row(row: Mapping[str, Any], links: Links, anchor: str) -> str:
    of = f' data-name="{escape(str(row["dataset"]).lower(), quote=True)}"'
    state = _STATES.get(str(row.get("state")))
    states = f' data-states="{state.name.lower() if state else ""}"'
    cells = "".join(_cell(name, value, links) for name, value in row.items())
    return f"<tr{f' id={anchor}' * bool(anchor)}{of}{states}>{cells}</tr>"


def _cell(name: str, value: object, links: Links) -> str:
    kind = " class=short" if name in _SHORT else " class=name" if name in _NAMES else ""
    if isinstance(value, datetime):
        text = moment(value)
    elif name == "dataset":
        text = links.dataset(str(value))
    elif name == "state" and value in _STATES:
        text = named(_STATES[str(value)])
    else:
        text = escape("" if value is None else str(value))
    return f"<td{kind}>{text}</td>"

"""A chart of the durations of a dataset's last updates: one bar per update, with a shade per code version."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

import dagster as dg

from feed_assets.core.durations import Duration, Trend, trend
from feed_assets.core.feeds import Feed
from feed_assets.core.markdown import as_text, table
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.update_durations import durations

LAST = 30
"""Greatest number of updates in a chart."""

_WIDTH, _HEIGHT, _BAR = 560, 120, 16
_SHADES = ("#4f43dd", "#9a93f0")


def durations_metadata(ledger: Ledger, inputs: Sequence[Feed], dataset: Feed) -> dict[str, dg.MetadataValue]:
    """Return Markdown with an SVG chart of the last updates' durations, for each input of a dataset by events."""
    chart_by_title: dict[str, dg.MetadataValue] = {}
    for first in inputs:
        with ledger.read() as connection:
            last = durations(connection, first, dataset, LAST)
        if last:
            chart_by_title[f"duration from {first}"] = dg.MetadataValue.md(f"{_chart(last)}\n\n{_table(trend(last))}")
    return chart_by_title


def _table(trends: Sequence[Trend]) -> str:
    rows = (
        [as_text(each.code_version or "-"), f"{each.count}", f"{each.median:.1f} s", f"{each.p95:.1f} s", _change(each)]
        for each in trends
    )
    return table(["code", "updates", "median", "p95", "change"], rows)


def _change(each: Trend) -> str:
    return "" if each.change is None else f"{each.change:+.0%}"


def _chart(last: Sequence[Duration]) -> str:
    longest = max(each.seconds for each in last) or 1
    versions = list(dict.fromkeys(each.code_version for each in last))
    bars = "".join(
        _bar(at, each, each.seconds / longest, _SHADES[versions.index(each.code_version) % len(_SHADES)])
        for at, each in enumerate(last)
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/><text x="4" y="12">{longest:.1f} s</text>'
        f"{bars}</svg>"
    )
    return f"![durations](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def _bar(at: int, each: Duration, share: float, shade: str) -> str:
    height = max(1, round(share * (_HEIGHT - 24)))
    title = escape(f"{each.correlation} {each.partition_key}: {each.seconds:.1f} s")
    start, top = 8 + at * (_BAR + 2), _HEIGHT - 4 - height
    return f'<rect x="{start}" y="{top}" width="{_BAR}" height="{height}" fill="{shade}"><title>{title}</title></rect>'

"""The chart of click-through rates that the UI shows with each day and campaign."""

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIDTH, ROW, LABEL = 560, 26, 150


def ctr_chart(effectiveness: "DataFrame") -> str:
    """Click-through rate by policy and position as bars: Markdown with an SVG image in it."""
    sums = effectiveness.groupBy("policy", "position").sum("clicks", "impressions").orderBy("policy", "position")
    rows = [row.asDict() for row in sums.collect()]
    bars = [
        (f"{row['policy']}, position {row['position']}", row["sum(clicks)"] / row["sum(impressions)"]) for row in rows
    ]
    svg = _svg(bars)
    return f"![click-through rate](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def _svg(bars: list[tuple[str, float]]) -> str:
    longest = max((rate for _, rate in bars), default=0) or 1
    rows = "".join(_bar(at, label, rate, rate / longest) for at, (label, rate) in enumerate(bars))
    height = ROW * len(bars) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>{rows}</svg>'
    )


def _bar(at: int, label: str, rate: float, share: float) -> str:
    top, width = ROW * at + 6, max(1, round(share * (WIDTH - LABEL - 70)))
    return (
        f'<text x="4" y="{top + 13}">{escape(label)}</text>'
        f'<rect x="{LABEL}" y="{top}" width="{width}" height="18" fill="#4f43dd"/>'
        f'<text x="{LABEL + width + 6}" y="{top + 13}">{rate:.2%}</text>'
    )

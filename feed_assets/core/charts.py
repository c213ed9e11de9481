"""Bars as an SVG image in Markdown, which the web UI shows."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from feed_assets.core.markdown import as_text

WIDTH, ROW, LABEL, TEXT = 560, 26, 200, 90
"""Pixels: width of the image, height of a bar with its gap, width of the labels, width of the text after a bar."""


@dataclass(frozen=True)
class Bar:
    """A labelled number in a chart.

    Args:
        label: The text before the bar.
        value: The length of the bar, 0 or more, in relation to the other bars.
        text: The text after the bar, such as the number.
        color: An SVG colour.
    """

    label: str
    value: float
    text: str
    color: str = "#4f43dd"


def bars(title: str, found: Sequence[Bar]) -> str:
    """Draw bars, for the `chart` of a dataset.

    Args:
        title: The text that replaces the image where it cannot be shown.
        found: The bars from top to bottom. The longest bar fills the width.

    Returns:
        Markdown with an SVG image in it.
    """
    longest = max((bar.value for bar in found), default=0) or 1
    rows = "".join(_row(at, bar, bar.value / longest) for at, bar in enumerate(found))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{ROW * len(found) + 8}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{rows}</svg>'
    )
    return f"![{as_text(title)}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def _row(at: int, bar: Bar, share: float) -> str:
    top, width = ROW * at + 6, max(1, round(share * (WIDTH - LABEL - TEXT)))
    return (
        f'<text x="4" y="{top + 13}">{escape(bar.label)}</text>'
        f'<rect x="{LABEL}" y="{top}" width="{width}" height="18" fill="{bar.color}"/>'
        f'<text x="{LABEL + width + 6}" y="{top + 13}">{escape(bar.text)}</text>'
    )

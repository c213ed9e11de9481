"""The chart of click-through rates that the UI shows with each day and campaign."""

from typing import TYPE_CHECKING

from feed_assets import Bar, bars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def ctr_chart(effectiveness: "DataFrame") -> str:
    """Return the click-through rate by policy and position as a bar chart: Markdown with an SVG image in it."""
    sums = effectiveness.groupBy("policy", "position").sum("clicks", "impressions").orderBy("policy", "position")
    return bars("click-through rate", [_bar(row.asDict()) for row in sums.collect()])


def _bar(row: dict[str, float]) -> Bar:
    rate = row["sum(clicks)"] / row["sum(impressions)"]
    return Bar(f"{row['policy']}, position {row['position']}", rate, f"{rate:.2%}")

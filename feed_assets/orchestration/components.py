"""YAML components: datasets that are declared without a line of Python."""

from typing import Literal

import dagster as dg
from pydantic import Field

from feed_assets.orchestration.inputs import foreign_feed


class ForeignFeed(dg.Model):
    """One foreign feed: `{feed: ads/shown/v1.0, schema: "impression_id string, item_id int"}`."""

    feed: str
    columns: str = Field(alias="schema")
    """Its name in YAML is `schema`, which pydantic has a method for."""
    appendable: bool = False


class ForeignFeedsComponent(dg.Component, dg.Model, dg.Resolvable):
    """Feeds by day that somebody else writes, as external assets."""

    start_date: str
    format: Literal["csv", "json", "parquet"] = "csv"
    feeds: list[ForeignFeed]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002
        """One external asset for each feed, with daily partitions from `start_date`."""
        days = dg.DailyPartitionsDefinition(self.start_date)
        return dg.Definitions(assets=[self._spec(each, days) for each in self.feeds])

    def _spec(self, each: ForeignFeed, days: dg.DailyPartitionsDefinition) -> dg.AssetSpec:
        return foreign_feed(
            each.feed, schema=each.columns, partitions_def=days, format=self.format, appendable=each.appendable
        )

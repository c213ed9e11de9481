"""A YAML component for a partner who pushes events or whose files are pulled. A new partner needs no Python."""

from datetime import date
from typing import Literal

import dagster as dg
from pydantic import Field

from feed_assets.core.completeness import Completeness
from feed_assets.core.file_checks import Format
from feed_assets.core.pulls import Pull
from feed_assets.orchestration.declare.input_specs import foreign_feed
from feed_assets.orchestration.declare.partitions import windows_from
from feed_assets.orchestration.execute.yaml_models import CsvModel, DeclaredComponent, placed


class PartnerComponent(DeclaredComponent, CsvModel):
    """A partner's data that our intake publishes in batches: the arguments of `foreign_feed(…, intake=…)`.

    Args:
        feed: Name and version, such as `partners/women/v1.0`.
        columns: The schema in Spark DDL. In YAML the key is `schema`.
        start: The first day of its partitions (UTC).
        intake: `push`, through the receiver, or the arguments of `Pull`, such as `{blackboard: women, pattern: …}`.
        every: `hour`, or `day`.
        format: `csv`, `json` or `parquet`. Pushed data must be `json`.
        event_time: The column with the time of an event. The time decides into which hour a pushed event is sorted.
        completeness: Rules for complete windows.
        description: A description for the UI.
        owners: Owners for the UI.
        delimiter: The delimiter of CSV. Other options of CSV are `quote`, `encoding`, `header` and `null_value`.
    """

    feed: str
    columns: str = Field(alias="schema")
    start: date
    intake: Literal["push"] | Pull
    every: Literal["hour", "day"] = "hour"
    format: Format = "json"
    event_time: str | None = None
    completeness: Completeness | None = None
    description: str | None = None
    owners: list[str] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset, with partitions by hour or day from `start`."""
        with placed(context):
            return dg.Definitions(assets=[self._spec])

    @property
    def _spec(self) -> dg.AssetSpec:
        return foreign_feed(
            self.feed,
            schema=self.columns,
            partitions_def=windows_from(self.start.isoformat(), self.every),
            format=self.format,
            description=self.description,
            owners=self.owners,
            completeness=self.completeness,
            event_time=self.event_time,
            intake=self.intake,
            **self.csv_options,
        )

"""YAML components that declare other teams' feeds and tables without Python."""

from collections.abc import Callable
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.sub_partitions import Regions
from feed_assets.orchestration.declare.event_tables import event_table
from feed_assets.orchestration.declare.input_specs import foreign_feed
from feed_assets.orchestration.declare.partitions import windows_from
from feed_assets.orchestration.declare.state_tables import state_table
from feed_assets.orchestration.execute.profiled import profiled
from feed_assets.orchestration.execute.yaml_models import (
    CadenceModel,
    CheckModel,
    CompletenessModel,
    CsvModel,
    PresentationModel,
    ProfileModel,
    object_at,
    placed,
)
from feed_assets.sources.declared import EventSource, of_json


class _Profiled(dg.Model):
    """A feed or table with an optional profile and deep checks."""

    profile: ProfileModel | None = None
    deep_checks: list[CheckModel] = Field(default_factory=list[CheckModel])
    rows: str | None = None
    """The path of a function: `my_project.tables.rows`."""

    def with_profile(self, spec: dg.AssetSpec) -> list[dg.AssetSpec | dg.AssetsDefinition]:
        """Return the asset and, with a profile, its companion dataset.

        Raise InvalidDefinition for deep checks without a profile.
        """
        if self.profile is None:
            if self.deep_checks:
                raise InvalidDefinition(
                    f"{spec.key.to_user_string()} has `deep_checks`, but no `profile`: expected both."
                )
            return [spec]
        rows: Callable[..., Any] | None = object_at("rows", self.rows) if self.rows else None
        deep_checks = [each.value for each in self.deep_checks]
        return [spec, profiled(spec, self.profile.value, deep_checks=deep_checks, rows=rows)]


class ForeignFeed(_Profiled, CsvModel, PresentationModel):
    """One foreign feed: `{feed: ads/shown/v1.0, schema: "impression_id string, item_id int"}`."""

    feed: str
    columns: str = Field(alias="schema")
    """The schema. In YAML the key is `schema`. Here the name differs, because pydantic has a method `schema`."""
    appendable: bool = False
    completeness: CompletenessModel | None = None
    event_time: str | None = None
    blackboard: str | None = None
    """The name of the feed's blackboard, if another team owns this blackboard."""
    version_in_key: bool = False
    """True if the asset key contains the version."""
    cadence: CadenceModel | None = None


class ForeignFeedsComponent(dg.Component, dg.Model, dg.Resolvable):
    """Daily feeds that others write, as external assets.

    Args:
        start_date: The first day of the feeds, such as `2024-01-01` (UTC).
        format: The format of their files: `csv`, `json` or `parquet`.
        feeds: The feeds, each with `feed`, `schema` (Spark DDL), `appendable`, `completeness`, `event_time`,
            `blackboard`, `version_in_key`, `cadence`; for CSV `delimiter`, `quote`, `encoding`, `header`, `null_value`;
            for the UI `description`, `group_name`, `tags`, `kinds`, `metadata`, `owners`; and `profile`,
            `deep_checks` and `rows`, which declare a companion dataset.
    """

    start_date: str
    format: Literal["csv", "json", "parquet"] = "csv"
    feeds: list[ForeignFeed]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each feed, with daily partitions from `start_date`."""
        days = dg.DailyPartitionsDefinition(self.start_date)
        with placed(context):
            specs = [(each, self._spec(each, days)) for each in self.feeds]
            return dg.Definitions(assets=[found for each, spec in specs for found in each.with_profile(spec)])

    def _spec(self, each: ForeignFeed, days: dg.DailyPartitionsDefinition) -> dg.AssetSpec:
        return foreign_feed(
            each.feed,
            schema=each.columns,
            partitions_def=days,
            format=self.format,
            appendable=each.appendable,
            completeness=each.completeness.value if each.completeness else None,
            event_time=each.event_time,
            blackboard=each.blackboard,
            version_in_key=each.version_in_key,
            cadence=each.cadence.value if each.cadence else None,
            **each.csv_options,
            **each.presentation,
        )


class EventTableYaml(dg.Model):
    """One event table: `{table: shop/orders, table_name: ORDERS, start_date: "2024-01-01"}`."""

    table: str
    table_name: str | None = None
    start_date: str | None = None
    """The table's first day, if it is partitioned by day."""
    cadence: CadenceModel | None = None


class EventTableComponent(dg.Component, dg.Model, dg.Resolvable):
    """Tables that others write, and whose events others report, as external assets.

    Args:
        source: The arguments of the tables' `EventSource`.
        tables: The tables, each with `table`, `table_name`, `start_date` and `cadence`.
    """

    source: dict[str, Any]
    tables: list[EventTableYaml]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each table."""
        with placed(context):
            source = of_json(self.source)
            return dg.Definitions(assets=[_event_table(each, source) for each in self.tables])


def _event_table(each: EventTableYaml, source: EventSource) -> dg.AssetSpec:
    days = dg.DailyPartitionsDefinition(each.start_date) if each.start_date else None
    cadence = each.cadence.value if each.cadence else None
    return event_table(each.table, source=source, table_name=each.table_name, partitions_def=days, cadence=cadence)


class StateTableYaml(_Profiled):
    """One state table: `{table: web/foo, regions: {apac: Asia/Singapore, emea: UTC}}`."""

    table: str
    completeness: CompletenessModel | None = None
    regions: dict[str, str] = Field(default_factory=dict[str, str])
    """Time zones by region. The partitions then also have the dimension `region`."""


class StateTablesComponent(dg.Component, dg.Model, dg.Resolvable):
    """State tables, whose completeness others report, as external assets.

    Args:
        start: The first day of the tables, such as `2026-01-01` (UTC).
        every: The length of their partitions: `10min` or other minutes that divide an hour, `hour` or `day`.
        tables: The tables, each with `table`, `completeness`, `regions`, and `profile`, `deep_checks` and `rows`, which
            declare a companion dataset.
    """

    start: str
    every: str = "hour"
    tables: list[StateTableYaml]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each table."""
        with placed(context):
            times = windows_from(self.start, self.every)
            specs = [(each, _state_table(each, times)) for each in self.tables]
            return dg.Definitions(assets=[found for each, spec in specs for found in each.with_profile(spec)])


def _state_table(each: StateTableYaml, times: dg.TimeWindowPartitionsDefinition) -> dg.AssetSpec:
    regions = dg.StaticPartitionsDefinition(sorted(each.regions))
    return state_table(
        each.table,
        partitions_def=dg.MultiPartitionsDefinition({"time": times, "region": regions}) if each.regions else times,
        completeness=each.completeness.value if each.completeness else None,
        regions=Regions(each.regions) if each.regions else None,
    )

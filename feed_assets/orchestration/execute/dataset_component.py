"""A YAML component that declares one of our datasets without Python, except for its function."""

from collections.abc import Callable
from datetime import date
from typing import Literal

import dagster as dg
from pydantic import Field

from feed_assets.core.cadence import Cadence
from feed_assets.core.compact import Compact
from feed_assets.core.completeness import Completeness
from feed_assets.core.data_centers import PRIMARY
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.late_policy import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.profiles import Profile
from feed_assets.core.resources import Resources
from feed_assets.core.retention import Retention
from feed_assets.core.sub_partitions import Regions
from feed_assets.core.waits import Wait
from feed_assets.core.windows import zone_of
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.input_specs import Input, Watermark, asset_key
from feed_assets.orchestration.declare.mappings import BatchDate, BySpan, DayToDate, Within
from feed_assets.orchestration.declare.partitions import Partitions, windows_from
from feed_assets.orchestration.declare.warehouse_tables import warehouse_table
from feed_assets.orchestration.execute.assets import feed_asset
from feed_assets.orchestration.execute.yaml_assets import asset_of, once
from feed_assets.orchestration.execute.yaml_models import (
    CheckModel,
    DeclaredComponent,
    PresentationModel,
    object_at,
    placed,
)

_BY_SPAN = {"within": Within, "batch_date": BatchDate, "day_to_date": DayToDate}
_BY_DAGSTER = {"all": dg.AllPartitionMapping, "last": dg.LastPartitionMapping}
_LONG = {"week": dg.WeeklyPartitionsDefinition, "month": dg.MonthlyPartitionsDefinition}


class PartitionsModel(dg.Model):
    """Partitions, such as `{start: "2026-01-01", every: day, tz: Europe/Berlin}`.

    They may also have `keys` of another dimension, or only `keys`.
    """

    start: date | None = None
    """The first day of the partitions. Without it, they have no time dimension."""
    every: str = "day"
    """`10min` or other minutes that divide an hour, `hour`, `day`, `week` or `month`."""
    tz: str = "UTC"
    keys: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    """The keys of another dimension, by the dimension's name, such as `{region: [apac, emea]}`."""

    def value(self, regions: dict[str, str]) -> Partitions:
        """Return Dagster's partitions, with regions as a dimension.

        Raise InvalidDefinition unless they have 1 or 2 dimensions.
        """
        keys = self.keys | ({"region": sorted(regions)} if regions else {})
        parts: dict[str, dg.PartitionsDefinition[str]] = {"time": self._windows(self.start)} if self.start else {}
        parts |= {name: dg.StaticPartitionsDefinition(values) for name, values in keys.items()}
        if len(parts) not in (1, 2):
            raise InvalidDefinition(
                f"partitions have the dimensions {[*parts]}: expected `start`, one name in `keys`, or both."
            )
        return dg.MultiPartitionsDefinition(parts) if len(parts) == 2 else next(iter(parts.values()))

    def _windows(self, start: date) -> dg.TimeWindowPartitionsDefinition:
        zone, first = zone_of(self.tz), start.isoformat()
        return _LONG[self.every](first, timezone=zone) if self.every in _LONG else windows_from(first, self.every, zone)


class InputModel(dg.Model):
    """An input: `{asset: web/foo, at: tables}`, and the arguments of `Input`."""

    asset: str
    """The asset's key. Without `at`, the asset's Python path, such as `my_project.defs.tables.foo`."""
    at: str | None = None
    """The folder or file of `defs/` that declares the asset."""
    mapping: Literal["within", "batch_date", "day_to_date", "all", "last"] | tuple[int, int] | None = None
    """Our own mapping, Dagster's for all or the last partition, or offsets of a `TimeWindowPartitionMapping`."""
    only: dict[str, str] = Field(default_factory=dict[str, str])
    ignore_quality_issue: bool = False
    tagged: bool = False
    required: Literal["all", "own"] = "all"
    optional: bool = False
    beyond: Literal["end of partition"] | None = None
    checks: list[str] = Field(default_factory=list[str])
    late: Late | None = None

    def value(self, context: dg.ComponentLoadContext) -> Input:
        """Return the input in the form of Python's declarations. Raise InvalidDefinition if it is invalid."""
        return Input(
            asset_of(context, "asset", self.asset, self.at),
            mapping=self._mapping,
            ignore_quality_issue=self.ignore_quality_issue,
            tagged=self.tagged,
            required=self.required,
            optional=self.optional,
            beyond=Watermark(self.beyond) if self.beyond else None,
            checks=self.checks,
            late=self.late,
        )

    @property
    def _mapping(self) -> dg.PartitionMapping | BySpan | None:
        if isinstance(self.mapping, str) and self.mapping in _BY_SPAN:
            return _BY_SPAN[self.mapping](self.only)
        if self.only:
            raise InvalidDefinition(
                f"{self.asset}: `only` is given without its mapping: expected `mapping` to be one of "
                f"{', '.join(_BY_SPAN)}. Correct `mapping`, or remove `only`."
            )
        if isinstance(self.mapping, tuple):
            first, last = self.mapping
            return dg.TimeWindowPartitionMapping(start_offset=first, end_offset=last)
        return _BY_DAGSTER[self.mapping]() if self.mapping else None


class FeedAssetComponent(DeclaredComponent, PresentationModel):
    """A dataset: the arguments of `@feed_asset`, with the path of the function.

    An argument that is a dataclass in Python is a mapping of its fields. Durations are in ISO 8601, such as `{deadline:
    PT6H}`.

    Args:
        feed: Name and version, such as `ads/effectiveness/v1.0`.
        function: The path of a plain function from DataFrames to a DataFrame, such as `my_project.reports.report`.
        inputs: The inputs, by the name of the function's parameter: `asset`, `at` (the folder of `defs/` that declares
            it), and the arguments of `Input`; or `previous_bucket`.
        deps: Inputs that the dataset waits for and does not read, in the form of `inputs`.
        partitions: `start`, `every` and `tz` of the time, and `keys` of another dimension. By default the
            dataset has one partition.
        checks: Checks of the written rows, each with `check` and its `arguments`, or with an `aggregate` and its
            bounds `within`.
        profile: Measures of the written rows.
        deep_checks: Checks that run only if a measure of the profile is unusual, or if there are too few profiles to
            compare with.
        late: Rules for which late data cause a re-run.
        retention: History to keep.
        by_events: Build when an update has reached all inputs.
        cadence: Schedule of its updates.
        completeness: Rules for complete windows.
        regions: Time zones by region. The partitions then also have the dimension `region`.
        event_time: A timestamp column.
        wait: Further conditions for building a partition.
        reprocess: Whether a partition is built again after a backfill of windows that it has read.
        figures: Key figures: SQL aggregates of the written rows by name.
        chart: The path of a function from the written rows to Markdown.
        description: A description for the UI; by default the function's docstring.
        group_name: Dagster's group.
        tags: Dagster's tags.
        kinds: Up to three kinds for the UI.
        metadata: Metadata for the UI.
        owners: Owners for the UI.
        code_version: The code's version, by default a digest of the function's source.
        pool: Dagster's concurrency pool of its runs.
        resources: Cores and memory that each run needs, and the compute targets that it may use.
        at: The place where a run computes: `primary`, a data center, a list by preference, `any`, or a place by key.
        version_in_key: True if its asset key contains the version.
        compact: When and how small files of a partition are merged.
        blackboard: The name of the blackboard that it is published on.
        warehouses: Warehouses to load its rows into, each as a table `<warehouse>/<name>`.
    """

    feed: str
    function: str
    inputs: dict[str, InputModel | Literal["previous_bucket"]]
    deps: list[InputModel] = Field(default_factory=list[InputModel])
    partitions: PartitionsModel | None = None
    checks: list[CheckModel] = Field(default_factory=list[CheckModel])
    profile: Profile | None = None
    deep_checks: list[CheckModel] = Field(default_factory=list[CheckModel])
    late: Late | None = None
    retention: Retention | None = None
    by_events: ByEvents | None = None
    appendable: bool = False
    cadence: Cadence | None = None
    completeness: Completeness | None = None
    regions: dict[str, str] = Field(default_factory=dict[str, str])
    event_time: str | None = None
    wait: Wait | None = None
    reprocess: Reprocess = "if_data_changed"
    figures: dict[str, str] = Field(default_factory=dict[str, str])
    chart: str | None = None
    code_version: str | None = None
    pool: str | None = None
    resources: Resources | None = None
    at: str | list[str] | dict[str, str | list[str]] = PRIMARY
    version_in_key: bool = False
    compact: Compact | None = None
    blackboard: str | None = None
    warehouses: list[str] = Field(default_factory=list)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets of the dataset, its rejects and its tables, and the foreign feeds named by path."""
        with placed(context), once(context):
            inputs = {name: _input(each, context) for name, each in self.inputs.items()}
            deps = [each.value(context) for each in self.deps]
            dataset = self._decorator(inputs, deps)(object_at("function", self.function))
            name = asset_key(Feed.parse(self.feed), self.version_in_key).to_user_string()
            tables = [warehouse_table(f"{each}/{name}", dataset=dataset, warehouse=each) for each in self.warehouses]
        declared = zip([*self.inputs.values(), *self.deps], [*inputs.values(), *deps], strict=True)
        by_path = [value.feed for each, value in declared if isinstance(each, InputModel) and not each.at]
        foreign = [feed for feed in by_path if isinstance(feed, dg.AssetSpec)]
        # Foreign feeds may be declared more than once, but datasets may not.
        return dg.Definitions(assets=[dataset, *tables, *foreign])

    def _decorator(self, inputs: dict[str, Input], deps: list[Input]) -> Callable[..., dg.AssetsDefinition]:
        return feed_asset(
            self.feed,
            inputs=inputs,
            deps=deps,
            partitions_def=self.partitions.value(self.regions) if self.partitions else None,
            checks=[each.value for each in self.checks],
            profile=self.profile,
            deep_checks=[each.value for each in self.deep_checks],
            late=self.late,
            retention=self.retention,
            by_events=self.by_events,
            appendable=self.appendable,
            cadence=self.cadence,
            completeness=self.completeness,
            regions=Regions(self.regions) if self.regions else None,
            event_time=self.event_time,
            wait=self.wait,
            reprocess=self.reprocess,
            figures=self.figures,
            chart=object_at("chart", self.chart) if self.chart else None,
            code_version=self.code_version,
            pool=self.pool,
            resources=self.resources,
            at=self.at,
            version_in_key=self.version_in_key,
            compact=self.compact,
            blackboard=self.blackboard,
            **self.presentation,
        )


def _input(declared: InputModel | Literal["previous_bucket"], context: dg.ComponentLoadContext) -> Input:
    return declared.value(context) if isinstance(declared, InputModel) else Input.previous_bucket()

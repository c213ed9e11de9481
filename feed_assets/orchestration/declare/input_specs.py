"""Inputs of datasets: foreign feeds as asset specs, and our own datasets as the assets that make them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import dagster as dg

from feed_assets.core.argument_types import BoardName, Name, Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.completeness import Completeness
from feed_assets.core.csv_dialect import CsvDialect, Delimiter, Encoding, NullValue, Quote
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.examples import Example
from feed_assets.core.feeds import Feed
from feed_assets.core.file_checks import Format
from feed_assets.core.late_policy import Late
from feed_assets.core.limits import check_feed, check_version
from feed_assets.core.pulls import Pull
from feed_assets.core.retention import Retention
from feed_assets.core.schemas import check_event_time, check_schema
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.typed import typed, typed_with
from feed_assets.orchestration.declare.cadences import check_cadence
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    Intake,
    StateTable,
    declaration_of,
    metadata_of,
)
from feed_assets.orchestration.declare.lost_windows import check_windows
from feed_assets.orchestration.declare.mappings import BySpan, Previous, Within
from feed_assets.orchestration.declare.partitions import (
    Partitions,
    by_dimension,
    is_daily,
    is_hourly,
    sources_beside_hours,
    times_of,
)
from feed_assets.orchestration.declare.presentation import INSTEAD_OF_FOREIGN, Kinds, Presentation
from feed_assets.orchestration.declare.sub_partitions import checked
from feed_assets.runs.recipe import PREVIOUS, RecipeInput

PARTITION = "partition"
"""The function parameter that gets the `Partition` to build."""

RUN_SPEC = "run_spec"
"""The function parameter that gets the `RunSpec` of a run by events."""

_OTHERS = "foreign_feed() or event_table()"
"""The functions that declare inputs other than our own datasets, in words for messages."""


def asset_key(feed: Feed, version_in_key: bool = False) -> dg.AssetKey:
    """Return a feed's asset key: its name, and its version only with `version_in_key` (ADR 101)."""
    return dg.AssetKey((str(feed) if version_in_key else feed.name).split("/"))


def page_of(key: dg.AssetKey, partition_key: str | None = None) -> str:
    """Return the path of Dagster's page of an asset, or of a partition of it."""
    query = f"?{urlencode({'view': 'partitions', 'partition': partition_key})}" if partition_key else ""
    return f"/assets/{'/'.join(map(quote, key.path))}{query}"


def group_of(feed: Feed) -> str:
    """Return the group of a feed's asset: the first part of its name, in a form that Dagster accepts."""
    return dg.AssetKey(asset_key(feed).path[0]).to_python_identifier()


def declared_feed(text: str) -> Feed:
    """Return the feed of a declaration.

    Raise InvalidName if feed_assets or Dagster does not allow the name or version.
    """
    feed = check_feed(Feed.parse(text))
    if not re.fullmatch(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", feed.name):
        raise InvalidName(f"feed {text!r}: Dagster's names have only letters, digits, '_', '-' and '.'. Rename it.")
    return check_version(feed)


@typed_with(INSTEAD_OF_FOREIGN)
def foreign_feed(
    feed: str,
    *,
    schema: Annotated[str, Example("'id string, price double'", "columns in Spark's DDL, as one text")],
    partitions_def: Partitions = None,
    format: Format = "csv",  # noqa: A002
    appendable: bool = False,
    description: str | None = None,
    group_name: Name | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: Kinds | None = None,
    metadata: Mapping[str, Any] | None = None,
    owners: Sequence[Owner] | None = None,
    retention: Retention | None = None,
    cadence: Cadence | None = None,
    completeness: Completeness | None = None,
    regions: Regions | None = None,
    event_time: str | None = None,
    intake: Intake | None = None,
    blackboard: BoardName | None = None,
    version_in_key: bool = False,
    delimiter: Delimiter = ",",
    quote: Quote | None = '"',
    encoding: Encoding = "UTF-8",
    header: bool = True,
    null_value: NullValue | None = None,
) -> dg.AssetSpec:
    r"""Declare a feed that somebody else writes, as an external asset.

    Equal declarations in several files of a project are allowed.

    Args:
        feed: Name and version, such as `ads/shown/v1.0`. Leave the version out if the feed's path on the blackboard has
            none.
        schema: The records' columns in Spark's DDL, such as `impression_id string, shown_at timestamp`.
        partitions_def: Dagster's partitions; without them the feed is one partition.
        format: `csv` (RFC 4180, or as in the last five arguments), `json` (one object a line) or `parquet`.
        appendable: True if a partition holds batches. Its data are then the newest valid updates of all batches.
        description: A description for the UI.
        group_name: Dagster's group; by default the first part of the feed's name. The asset key is the feed's whole
            name.
        tags: Dagster's tags, by which assets are selected.
        kinds: Up to three kinds for the UI; by default the format.
        metadata: Metadata for the UI. Names must not begin with `feed_assets/`.
        owners: Owners for the UI: `team:ads`, or an e-mail address. The owners get reports about the effects of late
            data.
        retention: History of the feed that the job `prune` keeps, although another team writes the feed; by default all
            of it.
        cadence: Schedule of the updates. A missing update opens an alert.
        completeness: Rules for complete windows. Readers wait for a valid update and for complete windows.
        regions: The regions that are the keys of the partitions' second dimension, each with its own midnight.
        event_time: A timestamp column of the schema. The first dataset that reads an update counts its records by
            this column, unless the producer reports counts. Without the column, only the producer's reports count.
        intake: How our own intake gets the data and publishes them as batches. `push`: others send JSON to the
            receiver. This needs `event_time` and hourly partitions in UTC, alone or with a static dimension of sources.
            `Pull`: intake reads their files. This needs days or hours in UTC. With intake the feed is appendable. It is
            not polled on the blackboard, because the ledger records each batch when it is published.
        blackboard: The name of the feed's blackboard in `FEED_ASSETS_BLACKBOARDS`; by default our own. feed_assets
            never writes or removes anything on others' blackboards, so the feed has no retention.
        version_in_key: True if the asset key contains the version. Needed if a newer version is declared beside an
            older one.
        delimiter: The character between two fields of CSV, such as `;` or `\t`.
        quote: The character around CSV fields that contain delimiters or line breaks. None if the files use no such
            character.
        encoding: The encoding of CSV: `UTF-8`, `UTF-16` (with a byte order mark) or `Latin-1`.
        header: True if the first record of each CSV file has the column names.
        null_value: A text in CSV that means NULL, quoted or not, such as `\N`. An empty field always means NULL.

    Returns:
        The spec of the external asset, to be an input of datasets.

    Raises:
        InvalidName: The feed name is invalid.
        InvalidDefinition: A value has a wrong type, the schema does not fit the format, a feed on another blackboard
            has a retention or intake, or a feed that is not CSV has a CSV dialect.
    """
    own_feed = declared_feed(feed)
    dialect = CsvDialect(delimiter, quote, encoding, header, null_value).check(own_feed, format)
    check_schema(own_feed, schema, format)
    check_event_time(own_feed, schema, event_time)
    if intake == "push":
        _check_pushed(own_feed, format, partitions_def, event_time)
    if isinstance(intake, Pull):
        _check_pulled(own_feed, intake, partitions_def)
    check_cadence(own_feed, cadence, partitions_def)
    check_windows(own_feed, partitions_def)
    appendable = appendable or intake is not None
    tracked = tracked_of(own_feed, completeness, regions)
    if blackboard:
        _check_elsewhere(own_feed, blackboard, retention, intake)
    options = retention, cadence, tracked, event_time, intake, blackboard, dialect
    declared = Foreign(own_feed, format, schema, appendable, *options)
    presentation = Presentation(
        description, group_name, tags or {}, kinds=kinds or frozenset(), metadata=metadata or {}, owners=owners
    )
    return presentation.spec(
        own_feed,
        asset_key(own_feed, version_in_key),
        partitions_def=partitions_def,
        description=f"Foreign feed {own_feed}, {format}{f', on {blackboard}' if blackboard else ''}.",
        group_name=group_of(own_feed),
        kinds={format},
        metadata=metadata_of(declared),
    )


def _check_elsewhere(feed: Feed, blackboard: str, retention: Retention | None, intake: Intake | None) -> None:
    """Raise InvalidDefinition if a feed on another team's blackboard would be written or pruned there."""
    if retention or intake:
        conflict = "a retention" if retention else "intake"
        raise InvalidDefinition(
            f"{feed} is on the blackboard {blackboard!r} and has {conflict}: expected one of the two, because nothing "
            "is written or removed there. Remove one."
        )


def _check_pushed(feed: Feed, form: Format, partitions_def: Partitions, event_time: str | None) -> None:
    """Raise InvalidDefinition if the receiver cannot sort a feed's events into partitions."""
    declared = f"{form}, event_time {event_time!r}, partitions {str(partitions_def).rstrip('.')}"
    if form != "json" or event_time is None or not sources_beside_hours(partitions_def):
        raise InvalidDefinition(
            f"{feed} is pushed, and declared as {declared}: expected format='json', the event_time that every event "
            "has, and hourly partitions in UTC, such as HourlyPartitionsDefinition('2026-01-01-00:00'), alone or with "
            "a static dimension of sources."
        )


def _check_pulled(feed: Feed, pull: Pull, partitions_def: Partitions) -> None:
    """Raise InvalidDefinition if file names do not determine the partitions of a pulled feed."""
    if not (is_daily(partitions_def) or (is_hourly(partitions_def) and pull.says_hour)):
        declared = str(partitions_def).rstrip(".")
        raise InvalidDefinition(
            f"{feed} is pulled by {pull.pattern!r}, with partitions {declared}: expected days in UTC, or hours "
            "and %H in the pattern, such as HourlyPartitionsDefinition('2026-01-01-00:00')."
        )


def tracked_of(feed: Feed, completeness: Completeness | None, regions: Regions | None) -> Tracked | None:
    """Return the rules for a feed's windows. Return None if it declares none.

    Raise InvalidDefinition for regions without completeness.
    """
    if regions and not completeness:
        raise InvalidDefinition(f"{feed} has `regions` and no `completeness`: expected both. Add Completeness().")
    return checked(Tracked.of(completeness, regions)) if completeness else None


@typed
@dataclass(frozen=True)
class Watermark:
    """The time that the data of an input must reach.

    Args:
        upto: `end of partition`, which is the end of the output's time.

    Raises:
        InvalidDefinition: `upto` has another value.
    """

    upto: Literal["end of partition"] = "end of partition"


@typed_with({"partition_mapping": "mapping= says which partitions of the input are read."})
@dataclass(frozen=True)
class Input:
    """An input with options, such as a partition mapping, ignored quality, or records with reject reasons.

    `Input.previous_bucket()` is the dataset's own previous time window. For the first window, the function gets None.

    Args:
        feed: The asset that `foreign_feed`, `event_table`, `state_table` or `@feed_asset` returns.
        mapping: The mapping to partitions of the input, if Dagster's default does not fit: a mapping of Dagster, or
            across time zones `Within`, `BatchDate` or `DayToDate`. The rows then have a column `_partition` with the
            path of their partition.
        ignore_quality_issue: True to build although the input's last audit failed.
        tagged: Give the function every record of a foreign feed with the columns `_raw`, `_file` and `_reasons`, so
            that it can add reasons.
        required: `all` if every partition of the mapping must exist. `own` if only the output's own partition must
            exist. Other partitions are read if they exist.
        optional: True to build without waiting for this input. The function gets None if the input has no data.
        beyond: The time that the input's data must reach before the output is built. The data of a feed reach the
            newest event time of its newest update. The data of a table reach its last marker. Data that arrive after
            that do not make an output stale.
        checks: Names of the input's checks that can block the output. Each partition or window to read must have a
            result of each named check, and no failed result. By default any failed check blocks.
        late: Rules that decide which late data of this input cause a re-run. They replace the dataset's rules.

    Raises:
        InvalidDefinition: A value has a wrong type, `required="own"` has no mapping, or checks are named although
            their failure is ignored.
    """

    feed: Annotated[
        dg.AssetSpec | dg.AssetsDefinition,
        Example("orders", "what @feed_asset, foreign_feed or another one gives", decorator="feed_asset"),
    ]
    mapping: (
        Annotated[dg.PartitionMapping, Example("dg.AllPartitionMapping()", "a mapping of Dagster")] | BySpan | None
    ) = None
    ignore_quality_issue: bool = False
    tagged: bool = False
    required: Literal["all", "own"] = "all"
    optional: bool = False
    beyond: Watermark | None = None
    checks: Sequence[str] = ()
    late: Late | None = None

    @classmethod
    def previous_bucket(cls) -> "Input":
        """Return an input for the dataset's own previous time window. For the first window, the function gets None.

        Returns:
            The input.
        """
        return cls(dg.AssetSpec("previous_bucket"), mapping=Previous())

    def __post_init__(self) -> None:
        if self.required == "own" and self.mapping is None:
            raise InvalidDefinition(
                f"Input of {self.spec.key.to_user_string()} has required='own' and no mapping: expected a mapping to "
                "several partitions. Without a mapping, an output reads only its own partition."
            )

        if self.checks and self.ignore_quality_issue:
            raise InvalidDefinition(
                f"Input of {self.spec.key.to_user_string()} has `checks` and `ignore_quality_issue`: expected only "
                "one of the two."
            )

    @property
    def spec(self) -> dg.AssetSpec:
        """Return the spec of the asset to read."""
        if isinstance(self.feed, dg.AssetSpec):
            return self.feed
        datasets = [spec for spec in self.feed.specs if isinstance(declaration_of(spec), Dataset)]
        if len(datasets) != 1:
            keys = ", ".join(sorted(key.to_user_string() for key in self.feed.keys))
            raise InvalidDefinition(
                f"{keys} is no feed asset: expected an asset of @feed_asset. Declare what it writes with {_OTHERS}."
            )
        return datasets[0]

    @property
    def declaration(self) -> Declaration:
        """Return the declaration of the asset to read."""
        if declared := declaration_of(self.spec):
            return declared
        raise InvalidDefinition(f"{self.spec.key.to_user_string()} is no feed: declare it with {_OTHERS}.")

    @property
    def by_span(self) -> BySpan | None:
        """Return the mapping to the input's partitions, if feed_assets computes this mapping from spans of time.

        Return None for a mapping of Dagster.
        """
        if isinstance(self.mapping, BySpan):
            return self.mapping
        return Within() if isinstance(self.declaration, StateTable) else None

    def source(self, name: str) -> RecipeInput:
        """Return the input in the form that a run uses, under the name of the function's parameter."""
        declared = self.declaration
        foreign = declared if isinstance(declared, Foreign) else None
        return RecipeInput(
            name,
            declared.feed,
            foreign.format if foreign else "parquet",
            foreign.schema if foreign else None,
            tagged=self.tagged,
            is_appendable=isinstance(declared, Foreign | Dataset) and declared.appendable,
            is_table=isinstance(declared, EventTable),
            is_state=isinstance(declared, StateTable),
            event_time=foreign.event_time if foreign else None,
            grain=foreign.tracked.base if foreign and foreign.tracked else None,
            fans_in=self.mapping is not None and not isinstance(self.mapping, Previous),
            blackboard=declared.blackboard if isinstance(declared, Foreign | Dataset) else None,
            dialect=foreign.dialect if foreign else None,
        )

    @property
    def dep(self) -> dg.AssetDep:
        """Return the dependency for Dagster's graph. If the mapping is our own, the dependency is for display only."""
        if isinstance(self.mapping, Previous):
            return dg.AssetDep(self.spec.key, partition_mapping=_one_before(self.spec.partitions_def))
        mapping = None if isinstance(self.mapping, BySpan) else self.mapping
        return dg.AssetDep(self.spec.key, partition_mapping=dg.AllPartitionMapping() if self.by_span else mapping)


def _one_before(partitions_def: Partitions) -> dg.PartitionMapping:
    """Return Dagster's mapping to the previous window.

    With any other mapping, Dagster lets no asset depend on itself.
    """
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return before
    times, identity = times_of(partitions_def), dg.IdentityPartitionMapping()
    parts = by_dimension(partitions_def)
    return dg.MultiPartitionMapping(
        {
            name: dg.DimensionPartitionMapping(name, before if part is times else identity)
            for name, part in parts.items()
        }
    )


def match_parameters(function: Callable[..., Any], names: set[str]) -> set[str]:
    """Check that a function has one parameter for each input. Return its other parameters.

    Raise InvalidDefinition if a parameter is missing or unknown.
    """
    parameters = signature(function).parameters
    plain = {name for name, each in parameters.items() if each.kind in (Parameter.POSITIONAL_OR_KEYWORD,)}
    keyword = {name for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY}
    accepted = plain | keyword
    if PREVIOUS in names:
        raise InvalidDefinition(
            f"{function.__qualname__}() has an input '{PREVIOUS}': expected another name, because the parameter of "
            "this name gets the dataset's own previous update. Rename the input."
        )
    further = {PARTITION, RUN_SPEC, PREVIOUS} - names
    if accepted - further != names or len(accepted) != len(parameters):
        raise InvalidDefinition(
            f"{function.__qualname__}() takes {', '.join(sorted(parameters)) or 'nothing'}, its inputs are "
            f"{', '.join(sorted(names)) or 'none'}: expected one parameter for each input, with the same name (and "
            f"'{PARTITION}', '{RUN_SPEC}' or '{PREVIOUS}' if it needs them)."
        )
    return accepted & further

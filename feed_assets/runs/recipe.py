"""The recipe of one dataset, independent of Dagster: its inputs, a plain function, and its checks."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.feeds import Feed
from feed_assets.core.file_checks import Format
from feed_assets.core.profiles import Profile
from feed_assets.runs.checks import PROFILED, Check
from feed_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_V = TypeVar("_V")

PREVIOUS = "previous"
"""The function parameter that gets the dataset's previous update, or None if the run loads the whole dataset."""


@dataclass(frozen=True)
class RecipeInput:
    """One input as a run reads it.

    A foreign input has a format and a schema (Spark DDL) and is checked record by record. Our own inputs are Parquet
    without a schema. A `tagged` input has the columns `_raw`, `_file` and `_reasons`, and includes records that do not
    parse.
    """

    name: str
    feed: Feed
    format: Format = "parquet"
    schema: str | None = None
    tagged: bool = False
    is_appendable: bool = False
    """True if each partition holds batches: the function gets the rows of every batch's newest valid update."""
    is_table: bool = False
    """True for an event table: the function gets a `Slice` and reads the rows itself."""
    event_time: str | None = None
    """The timestamp column by which the records of the input are counted."""
    grain: str | None = None
    """The grain of the input's windows, if its records are counted."""
    is_state: bool = False
    """True for a state table: the function gets the `Span` of its complete windows and reads the rows itself."""
    fans_in: bool = False
    """True if rows have a column `_partition`, such as `2019-11-24/men`, because they are from several partitions."""
    blackboard: str | None = field(default=None, repr=False)
    """The name of the input's blackboard, or None for the default one. The rows do not depend on the name."""
    dialect: CsvDialect | None = field(default=None, repr=False)
    """The CSV dialect of the input, or None for RFC 4180."""
    is_handed: bool = field(default=True, repr=False)
    """True if the function gets the input. Inputs in `deps` are pinned, but the function does not get them."""


@dataclass(frozen=True)
class Recipe:
    """One dataset's declaration, as a run needs it. `rejects` is the feed of its rejected records.

    `chart` renders the written rows as Markdown.
    """

    feed: Feed
    sources: tuple[RecipeInput, ...]
    transform: Callable[..., Any]
    checks: tuple[Check, ...] = ()
    rejects: Feed | None = None
    event_time: str | None = None
    chart: "Callable[[DataFrame], str] | None" = None
    code_version: str | None = None
    wants: frozenset[str] = frozenset()
    """The function's parameters that are not inputs: `partition`, `run_spec` and `previous`."""
    grain: str | None = None
    """The grain of the dataset's windows, if its rows are counted by `event_time`."""
    is_by_events: bool = False
    """True for a dataset that is built by events.

    A run reads inputs of one origin only if they were made from the same data.
    """
    profile: Profile | None = None
    deep_checks: tuple[Check, ...] = ()
    """Checks that run only if a measure is unusual, or if there are too few profiles to compare with."""
    is_companion: bool = False
    """True for a dataset that checks the rows of its input, such as another team's feed.

    The function returns these rows, their profile is written, and findings are reported for the input.
    """
    figures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key figures: SQL aggregates of the rows by name. They only serve to show the effect of a re-run."""
    row_group: int | None = field(default=None, repr=False)
    """The size of Parquet's row groups in bytes. None means Spark's own."""

    is_appendable: bool = False
    """True if each increment is written as a batch of its partition."""
    blackboard: str | None = field(default=None, repr=False)
    """The name of the blackboard that the dataset is published on, or None for the default one."""

    @property
    def handed(self) -> tuple[RecipeInput, ...]:
        """Return the sources that the function gets."""
        return tuple(source for source in self.sources if source.is_handed)

    def of_handed(self, by_input: Mapping[str, _V]) -> dict[str, _V]:
        """Return the items of `by_input` (values by a source's name) whose source the function gets."""
        names = {source.name for source in self.handed}
        return {name: value for name, value in by_input.items() if name in names}

    @property
    def adds(self) -> bool:
        """Return whether the function gets the previous update, and adds an increment to it."""
        return PREVIOUS in self.wants

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """Return every check whose results the dataset's runs report."""
        return (*self.checks, *((PROFILED,) if self.profile else ()), *self.deep_checks)

    @property
    def outputs(self) -> tuple[Feed, ...]:
        """Return the feeds that a run publishes, in order: rejects first, so that the clean update can name them."""
        return (self.rejects, self.feed) if self.rejects else (self.feed,)

    @property
    def digest(self) -> str:
        """Return a digest of code version, schemas of inputs, and checks.

        A correction of the declaration changes the digest.
        """
        checks = [_declared(each) for each in (*self.checks, *self.deep_checks)]
        declared: tuple[Any, ...] = self.code_version, self.sources, checks, self.event_time, self.grain
        declared += tuple(each for each in (self.profile, self.figures) if each)
        declared += tuple((source.name, source.dialect) for source in self.sources if source.dialect)
        declared += tuple(source.name for source in self.sources if not source.is_handed)
        return sha256(repr(declared).encode()).hexdigest()[:12]


def _declared(check: Check) -> tuple[Any, ...]:
    """Return the declared values of a check, for a digest. Leave out the severity ERROR.

    So the digest is the same as in earlier versions of feed_assets, in which checks had no severity.
    """
    judged = source_digest(check.passes), source_digest(check.measure)
    severity = source_digest(check.severity) if callable(check.severity) else check.severity
    return (check.name, check.description, check.aggregate, *judged, *(() if severity == "ERROR" else (severity,)))


def source_digest(function: Callable[..., Any] | None) -> str | None:
    """Return a digest of a function's source. Return None if it has no source file, or is another kind of callable."""
    try:
        return sha256(inspect.getsource(function).encode()).hexdigest()[:12] if function else None
    except (OSError, TypeError):
        return None


def made_with(recipe_digest: str, settings: Settings) -> str:
    """Return a digest of recipe and Spark configuration.

    Only failed attempts with the same digest count towards the limit of attempts, so a corrected recipe is tried again.
    The address of a Connect server is left out, because `feed-assets ui` uses another port each time.
    """
    secret = settings.spark_conf.get_secret_value(), settings.spark_profiles.get_secret_value()
    spark = settings.spark_master, settings.spark_jars, *secret
    return sha256(repr((recipe_digest, spark)).encode()).hexdigest()[:12]

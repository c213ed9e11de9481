"""The recipe of one dataset: its inputs, a plain function, its checks. It is free of Dagster."""

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
"""A function parameter of this name is the dataset's own update before; None if everything is loaded."""


@dataclass(frozen=True)
class RecipeInput:
    """One input as a run reads it.

    A foreign one has a format and a schema (Spark DDL) and is checked record by record; ours has neither and is
    Parquet. A `tagged` one has `_raw`, `_file` and `_reasons` in the function, and also records that do not parse.
    """

    name: str
    feed: Feed
    format: Format = "parquet"
    schema: str | None = None
    tagged: bool = False
    is_appendable: bool = False
    """Each partition holds batches: the function gets the rows of the newest valid update of every one."""
    is_table: bool = False
    """An event table: the function gets its `Slice`, and reads the rows itself."""
    event_time: str | None = None
    """A timestamp column, by which its records are counted."""
    grain: str | None = None
    """The base grain of its windows, if its records are counted."""
    is_state: bool = False
    """A state table: the function gets the `Span` of its complete windows, and reads the rows itself."""
    fans_in: bool = False
    """The function sees which partition a row is from: a column `_partition`, such as `2019-11-24/men`."""
    blackboard: str | None = field(default=None, repr=False)
    """The name of the blackboard that it is on, unless that is ours; how rows are made does not depend on it."""
    dialect: CsvDialect | None = field(default=None, repr=False)
    """The form of its CSV, unless that is RFC 4180."""
    is_handed: bool = field(default=True, repr=False)
    """True if the function gets it; inputs in `deps` are only waited for and pinned."""


@dataclass(frozen=True)
class Recipe:
    """One dataset's declaration, as a run needs it. `rejects` is the feed of the records that were turned away.

    `chart` turns the written rows into Markdown for people.
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
    """Parameters of the function that are no inputs: `partition`, `run_spec` and `previous`."""
    grain: str | None = None
    """The base grain of its windows, if its rows are counted by `event_time`."""
    is_by_events: bool = False
    """True if inputs from one pipeline are read together, or not at all."""
    profile: Profile | None = None
    deep_checks: tuple[Check, ...] = ()
    """Checks that run if the profile is off, or has too little to be compared with."""
    is_companion: bool = False
    """True if the function's rows are those of its input, another team's: their profile is written, and what is found
    wrong is reported of the input."""
    figures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key figures, SQL aggregates of the rows by name: they show the effect of a re-run, nothing depends on them."""

    is_appendable: bool = False
    """True if an increment is a batch of its partition."""

    @property
    def handed(self) -> tuple[RecipeInput, ...]:
        """Return the sources that the function gets."""
        return tuple(source for source in self.sources if source.is_handed)

    def of_handed(self, by_input: Mapping[str, _V]) -> dict[str, _V]:
        """Return the values of the sources that the function gets, by their names."""
        names = {source.name for source in self.handed}
        return {name: value for name, value in by_input.items() if name in names}

    @property
    def adds(self) -> bool:
        """Return whether an increment is added to what was published last, which the function gets."""
        return PREVIOUS in self.wants

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """Return every check whose results its runs report."""
        return (*self.checks, *((PROFILED,) if self.profile else ()), *self.deep_checks)

    @property
    def outputs(self) -> tuple[Feed, ...]:
        """Return the feeds that a run publishes, in order: rejects first, so that the clean update can name them."""
        return (self.rejects, self.feed) if self.rejects else (self.feed,)

    @property
    def digest(self) -> str:
        """Return a digest that a mended declaration changes: of code version, inputs' schemas and checks."""
        checks = [_declared(each) for each in (*self.checks, *self.deep_checks)]
        declared: tuple[Any, ...] = self.code_version, self.sources, checks, self.event_time, self.grain
        declared += tuple(each for each in (self.profile, self.figures) if each)
        declared += tuple((source.name, source.dialect) for source in self.sources if source.dialect)
        declared += tuple(source.name for source in self.sources if not source.is_handed)
        return sha256(repr(declared).encode()).hexdigest()[:12]


def _declared(check: Check) -> tuple[Any, ...]:
    """Return what is declared of a check: a severity only if it is not ERROR, which all checks had once."""
    judged = source_digest(check.passes), source_digest(check.measure)
    severity = source_digest(check.severity) if callable(check.severity) else check.severity
    return (check.name, check.description, check.aggregate, *judged, *(() if severity == "ERROR" else (severity,)))


def source_digest(function: Callable[..., Any] | None) -> str | None:
    """Return a digest of a function's source; None if it was not read from a file, or is another kind of callable."""
    try:
        return sha256(inspect.getsource(function).encode()).hexdigest()[:12] if function else None
    except (OSError, TypeError):
        return None


def made_with(recipe_digest: str, settings: Settings) -> str:
    """Return a digest of what a run is made with: attempts with another recipe or Spark configuration do not count.

    The address of a Connect server is left out: `feed-assets ui` starts one on another port each time.
    """
    secret = settings.spark_conf.get_secret_value(), settings.spark_profiles.get_secret_value()
    spark = settings.spark_master, settings.spark_jars, *secret
    return sha256(repr((recipe_digest, spark)).encode()).hexdigest()[:12]

"""Declarations of our assets: frozen values, each stored in its asset's metadata under one key."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import urlencode

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter
from pydantic_core import PydanticSerializationError

from feed_assets.core.addresses import STATUS
from feed_assets.core.cadence import Cadence
from feed_assets.core.compact import Compact
from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.data_centers import PRIMARY, At
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.file_checks import Format
from feed_assets.core.late_policy import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.pulls import Pull
from feed_assets.core.reports import INPUTS
from feed_assets.core.resources import Resources
from feed_assets.core.retention import Retention
from feed_assets.core.source_lines import declared_at
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.topics import Topic, history_of
from feed_assets.core.waits import Wait
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.mappings import Declared as Mapped
from feed_assets.settings import others_places
from feed_assets.sources.declared import EventSource

_log = logging.getLogger(__name__)

KEY = "feed_assets/declaration"
"""The metadata key of an asset's declaration."""

STATUS_LINK = "feed_assets/status"
"""The metadata key of the link to the status page of the asset."""

ON_TIME, PROPAGATION, STALE = "on_time", "propagation", "stale"
"""Names of unpartitioned checks. `ON_TIME`: feeds and tables with a cadence, and datasets with a deadline.

`PROPAGATION`: datasets by events. `STALE`: all datasets.
"""

CAUGHT_UP, NO_DEAD_LETTERS, LOADED = "caught_up", "no_dead_letters", "loaded"
"""Further names. `CAUGHT_UP`: topics and warehouse tables with a `lag`. `NO_DEAD_LETTERS`: topics.

`LOADED`: warehouse tables.
"""

NOT_YET = "not loaded yet: "
"""Beginning of the reason of the check `LOADED` for a table that was never loaded."""

WATCHED = (ON_TIME, PROPAGATION, STALE, CAUGHT_UP, NO_DEAD_LETTERS, LOADED)
"""Checks whose results a sensor reports. No run evaluates them."""

TAKEN = frozenset({*WATCHED, "rejects", INPUTS})
"""Reserved names that a dataset's checks cannot have."""

Intake = Literal["push"] | Pull
"""The way in which intake gets a feed's data: partners push them to the receiver, or intake pulls partners' files."""

FeedName = Annotated[Feed, PlainValidator(Feed.parse), PlainSerializer(str)]


@dataclass(frozen=True)
class Foreign:
    """A feed that somebody else writes."""

    feed: FeedName
    format: Format
    schema: str
    appendable: bool = False
    retention: Retention | None = None
    cadence: Cadence | None = None
    tracked: Tracked | None = None
    """Rules for judging the feed's windows. Readers then wait until the windows are complete."""
    event_time: str | None = None
    """The column by which records are counted. The first dataset that reads an update counts them."""
    intake: Intake | None = None
    """The way in which our intake gets the data, if intake publishes the feed."""
    blackboard: str | None = None
    """The name of the feed's blackboard. None means our own."""
    dialect: CsvDialect | None = None
    """The feed's CSV dialect. None means RFC 4180."""
    role: Literal["foreign"] = "foreign"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class Dataset:
    """A feed that we build.

    `outputs` has all feeds that its run publishes, in order. The dataset's own feed is last.
    """

    feed: FeedName
    outputs: tuple[FeedName, ...]
    ignores_quality_of: tuple[FeedName, ...]
    requires_own_of: tuple[FeedName, ...]
    late: Late
    retention: Retention | None = None
    by_events: ByEvents | None = None
    cadence: Cadence | None = None
    mapped: Mapping[str, Mapped] = field(default_factory=dict[str, Mapped])
    """Mappings of the kinds that feed_assets defines, by input."""
    optional_of: tuple[FeedName, ...] = ()
    beyond_of: tuple[FeedName, ...] = ()
    """Inputs whose data must reach the end of the partition."""
    tracked: Tracked | None = None
    """Rules for judging the feed's windows. Readers then wait until the windows are complete."""
    wait: Wait | None = None
    reprocess: Reprocess = "if_data_changed"
    checks_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The names of the checks that can block an output, by input. Other checks of the input do not count."""
    late_of: Mapping[str, Late] = field(default_factory=dict[str, Late])
    """Late-data policies of single inputs, by input."""
    recipe: str = ""
    """Digest of the dataset's recipe. When the digest changes, failed partitions are tried again."""
    adds: bool = False
    """True if the function adds increments to the previous update."""
    appendable: bool = False
    """True if each increment is written as a batch of the partition."""
    resources: Resources | None = None
    """The compute resources that each run needs. None means the defaults of `Resources()`."""
    at: At = PRIMARY
    """The places where runs compute, and whose copies of the inputs they read."""
    compact: Compact | None = None
    """When and how the files of a partition are merged. None means never."""
    version_in_key: bool = False
    """True if the asset keys of the dataset and its rejects contain the version."""
    blackboard: str | None = None
    """The name of the blackboard that the dataset is published on. None means the default one."""
    role: Literal["dataset"] = "dataset"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class Rejects:
    """The feed of a dataset's rejected records. `outputs` has the same feeds as the dataset's `outputs`."""

    feed: FeedName
    outputs: tuple[FeedName, ...]
    retention: Retention | None = None
    version_in_key: bool = False
    blackboard: str | None = None
    role: Literal["rejects"] = "rejects"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class LoadedTopic:
    """A Kafka topic whose chunks are loaded into a warehouse: the latest row of each key, or each message as a row."""

    topic: str
    warehouse: str
    is_history: bool = False

    @property
    def name(self) -> str:
        """Return the name of the topic's table in the warehouse."""
        return history_of(self.topic) if self.is_history else self.topic


@dataclass(frozen=True)
class LoadedUnion:
    """Several Kafka topics whose chunks are loaded into one table of a warehouse. `union` names the table."""

    union: str
    topics: tuple[str, ...]
    warehouse: str
    topic_in_key: bool = False
    is_history: bool = False

    @property
    def name(self) -> str:
        """Return the name of the table in the warehouse."""
        return history_of(self.union) if self.is_history else self.union


@dataclass(frozen=True)
class LoadedDataset:
    """A dataset whose rows are loaded into a warehouse."""

    dataset: FeedName
    warehouse: str

    @property
    def name(self) -> str:
        """Return the name of the dataset's table in the warehouse."""
        return str(self.dataset)


@dataclass(frozen=True)
class EventTable:
    """A table whose events an event source reports; `table_name` is its name in the source."""

    feed: FeedName
    source: EventSource
    table_name: str
    cadence: Cadence | None = None
    topic: Topic | None = None
    """Rules for chunks, if the table is a Kafka topic. Then `table_name` is the topic's name."""
    lag: int | None = None
    """Greatest number of a partition's messages that may still wait for a signal or, in a warehouse table, for a row.

    If there are more, an alert opens.
    """
    loaded: LoadedTopic | LoadedUnion | LoadedDataset | None = None
    """The topic or dataset that the table is loaded from, if it is a warehouse table."""
    by_pattern: bool = False
    """True for a topic that `kafka_topics` has declared, and for its warehouse tables."""
    role: Literal["table"] = "table"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class StateTable:
    """A table of another team. feed_assets knows only which of its windows are complete."""

    feed: FeedName
    tracked: Tracked
    role: Literal["state"] = "state"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


Declaration = Foreign | Dataset | Rejects | EventTable | StateTable


@cache  # Build the adapter on first use, because building takes longer than importing this module.
def _adapter() -> TypeAdapter[Declaration]:
    return TypeAdapter(Annotated[Declaration, Field(discriminator="role")])


def metadata_of(declaration: Declaration) -> dict[str, Any]:
    """Return a declaration as metadata of an asset. Dagster's UI shows the declaration as one line.

    Raise InvalidDefinition if a value of a plan cannot be written as JSON.
    """
    main_feed = declaration.outputs[-1] if isinstance(declaration, Rejects) else declaration.feed
    link = dg.MetadataValue.url(f"{STATUS}?{urlencode({'dataset': str(main_feed)})}")
    try:
        copied = _adapter().validate_python(_adapter().dump_python(declaration, mode="json"))
    except PydanticSerializationError as error:
        raise InvalidDefinition(
            f"{declaration.feed}: {error}: expected plans with values that JSON supports."
        ) from None
    text = f"{declaration.role} {declaration.feed}, {declaration.declared_at or 'declared in YAML'}"
    return {KEY: ObjectMetadataValue(text, instance=copied), STATUS_LINK: link}


def json_of(declaration: Declaration) -> str:
    """Return a declaration as JSON, without its place in the code and its recipe: what decisions depend on."""
    return _adapter().dump_json(declaration, exclude={"declared_at", "recipe"}).decode()


class Asset(Protocol):
    """An object with metadata: an asset's spec, or its node in Dagster's graph."""

    @property
    def key(self) -> dg.AssetKey:
        """Return the asset's key."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the asset's metadata. Dagster may have wrapped the values."""
        ...


def declaration_of(asset: Asset) -> Declaration | None:
    """Return the declaration in an asset's metadata. Return None for an asset that is not ours.

    Anybody can write metadata, so an invalid value is only logged. It must not stop other assets.
    """
    held = asset.metadata.get(KEY)
    declaration = held.instance if isinstance(held, ObjectMetadataValue) else held
    if declaration is None or isinstance(declaration, Declaration):
        return declaration
    _log.warning("asset %s is ignored: its metadata %r has no valid declaration", asset.key.to_user_string(), KEY)
    return None


def value_of(entry: Any) -> Any:
    """Return the plain value of a metadata entry, which Dagster may have wrapped."""
    return getattr(entry, "value", entry)


def blackboard_of(declared: Declaration) -> str | None:
    """Return the name of the blackboard that a feed is on. Return None for the default one, or for no feed."""
    return declared.blackboard if isinstance(declared, Foreign | Dataset | Rejects) else None


def refuse_others_places(declared: Sequence[Declaration]) -> None:
    """Raise InvalidDefinition for a dataset on a blackboard that the settings do not call ours.

    A name without a setting is no error here: definitions also load where there are no blackboards, as in a test.
    """
    published = [each for each in declared if isinstance(each, Dataset) and each.blackboard]
    read_only = others_places() if published else set[str]()
    if dataset := next((each for each in published if each.blackboard in read_only), None):
        raise InvalidDefinition(
            f"{dataset.feed} is published on the blackboard {dataset.blackboard!r}, which belongs to another team: "
            'expected one that is ours. If you may write to it, add "writable": true to it in FEED_ASSETS_BLACKBOARDS.'
        )


def specs_of(definitions: dg.Definitions) -> list[dg.AssetSpec]:
    """Return the specs of all assets, without building a graph."""
    specs: list[dg.AssetSpec] = []
    for asset in definitions.assets or ():
        specs += [asset] if isinstance(asset, dg.AssetSpec) else []
        specs += asset.specs if isinstance(asset, dg.AssetsDefinition) else []
    return specs


def declarations_of(definitions: dg.Definitions) -> list[Declaration]:
    """Return all declarations in some definitions, in order."""
    declarations = map(declaration_of, specs_of(definitions))
    return [declaration for declaration in declarations if declaration]

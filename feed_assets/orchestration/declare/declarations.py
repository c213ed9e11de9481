"""Declarations of our assets, each as one frozen value that travels in the asset's metadata under one key."""

import logging
from collections.abc import Mapping
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
from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.file_checks import Format
from feed_assets.core.lateness import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.pulls import Pull
from feed_assets.core.reports import INPUTS
from feed_assets.core.retention import Retention
from feed_assets.core.source_lines import declared_at
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.topics import Topic
from feed_assets.core.waits import Wait
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.mappings import Declared as Mapped
from feed_assets.sources.declared import EventSource

_log = logging.getLogger(__name__)

KEY = "feed_assets/declaration"
"""The metadata key of an asset's declaration."""

STATUS_LINK = "feed_assets/status"
"""The metadata key of the link to our only page that shows the asset's partitions."""

ON_TIME, PROPAGATION, STALE = "on_time", "propagation", "stale"
"""The names of the unpartitioned checks: of a table with a cadence, of a dataset by events, and of every dataset."""

CAUGHT_UP, NO_DEAD_LETTERS, LOADED = "caught_up", "no_dead_letters", "loaded"
"""More names: of a topic or a warehouse's table with a limit of lag, of every topic, of every warehouse's table."""

NOT_YET = "not loaded yet: "
"""The beginning of the reason of `LOADED` for a table that was never loaded."""

WATCHED = (ON_TIME, PROPAGATION, STALE, CAUGHT_UP, NO_DEAD_LETTERS, LOADED)
"""The checks that no run makes: a sensor reports their results."""

TAKEN = frozenset({*WATCHED, "rejects", INPUTS})
"""Names that no check of a dataset can have."""

Intake = Literal["push"] | Pull
"""The way that intake gets the data of a foreign feed: others push them to the receiver, or it pulls their files."""

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
    """Rules for judging its windows, if it is ready only when it is complete."""
    event_time: str | None = None
    """The column by which the first dataset that reads it counts its records."""
    intake: Intake | None = None
    """The way that our own intake gets what others send, if it publishes it."""
    blackboard: str | None = None
    """The name of the blackboard that it is on, unless that is ours."""
    dialect: CsvDialect | None = None
    """The dialect of its CSV, unless that is RFC 4180."""
    role: Literal["foreign"] = "foreign"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class Dataset:
    """A feed that we make; `outputs` are all feeds that its run publishes, in order, with the feed itself last."""

    feed: FeedName
    outputs: tuple[FeedName, ...]
    ignores_quality_of: tuple[FeedName, ...]
    requires_own_of: tuple[FeedName, ...]
    late: Late
    retention: Retention | None = None
    by_events: ByEvents | None = None
    cadence: Cadence | None = None
    mapped: Mapping[str, Mapped] = field(default_factory=dict[str, Mapped])
    """Mappings that are ours, and not Dagster's, by input."""
    optional_of: tuple[FeedName, ...] = ()
    beyond_of: tuple[FeedName, ...] = ()
    """Inputs that are waited for up to the end of the partition."""
    tracked: Tracked | None = None
    """Rules for judging its windows, if it is ready only when it is complete."""
    wait: Wait | None = None
    reprocess: Reprocess = "if_data_changed"
    checks_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Checks that alone are heeded, by input."""
    late_of: Mapping[str, Late] = field(default_factory=dict[str, Late])
    """Policies for late data that inputs have of their own, by input."""
    recipe: str = ""
    """Digest of its recipe: failed partitions are tried again when it changes."""
    adds: bool = False
    """True if its function adds increments to what was published last."""
    appendable: bool = False
    """True if an increment is a batch of its partition."""
    version_in_key: bool = False
    """True if its asset key, and that of its rejects, has the version."""
    role: Literal["dataset"] = "dataset"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class Rejects:
    """The records that a dataset turned away; `outputs` are those of the dataset."""

    feed: FeedName
    outputs: tuple[FeedName, ...]
    retention: Retention | None = None
    version_in_key: bool = False
    role: Literal["rejects"] = "rejects"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class LoadedTopic:
    """A Kafka topic whose chunks are loaded into a warehouse."""

    topic: str
    warehouse: str

    @property
    def name(self) -> str:
        """Return the name of its table there."""
        return self.topic


@dataclass(frozen=True)
class LoadedDataset:
    """A dataset whose rows are loaded into a warehouse."""

    dataset: FeedName
    warehouse: str

    @property
    def name(self) -> str:
        """Return the name of its table there."""
        return str(self.dataset)


@dataclass(frozen=True)
class EventTable:
    """A table whose events an event source reports; `table_name` is its name in the source."""

    feed: FeedName
    source: EventSource
    table_name: str
    cadence: Cadence | None = None
    topic: Topic | None = None
    """Rules for the chunks of the Kafka topic that it is; `table_name` is then that topic's."""
    lag: int | None = None
    """Messages of a partition that may be without a signal, or without a row, before that is an alert."""
    loaded: LoadedTopic | LoadedDataset | None = None
    """The topic or dataset that it is loaded from, if it is a table of a warehouse."""
    role: Literal["table"] = "table"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


@dataclass(frozen=True)
class StateTable:
    """A table of which only the complete windows are known."""

    feed: FeedName
    tracked: Tracked
    role: Literal["state"] = "state"
    declared_at: str | None = field(default_factory=declared_at, compare=False)


Declaration = Foreign | Dataset | Rejects | EventTable | StateTable


@cache  # Made when it is first used: it takes longer than importing this module.
def _adapter() -> TypeAdapter[Declaration]:
    return TypeAdapter(Annotated[Declaration, Field(discriminator="role")])


def metadata_of(declaration: Declaration) -> dict[str, Any]:
    """Return a declaration as metadata of an asset, of which people see a line.

    Raise InvalidDefinition if JSON has no form for a value of a plan.
    """
    main_feed = declaration.outputs[-1] if isinstance(declaration, Rejects) else declaration.feed
    link = dg.MetadataValue.url(f"{STATUS}?{urlencode({'dataset': str(main_feed)})}")
    try:
        copied = _adapter().validate_python(_adapter().dump_python(declaration, mode="json"))
    except PydanticSerializationError as error:
        raise InvalidDefinition(f"{declaration.feed}: {error}: expected plans with values that JSON has.") from None
    text = f"{declaration.role} {declaration.feed}, {declaration.declared_at or 'declared in YAML'}"
    return {KEY: ObjectMetadataValue(text, instance=copied), STATUS_LINK: link}


class Asset(Protocol):
    """An object with metadata: an asset's spec, or its node in Dagster's graph."""

    @property
    def key(self) -> dg.AssetKey:
        """Return the asset's key."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the asset's metadata, with or without Dagster's wrapping."""
        ...


def declaration_of(asset: Asset) -> Declaration | None:
    """Return the declaration that an asset's metadata hold, or None for an asset that is not ours.

    Anybody can write metadata: what is no declaration is logged, and must not stop the loop over other assets.
    """
    held = asset.metadata.get(KEY)
    declaration = held.instance if isinstance(held, ObjectMetadataValue) else held
    if declaration is None or isinstance(declaration, Declaration):
        return declaration
    _log.warning("asset %s is left out: its metadata %s are no declaration of ours", asset.key.to_user_string(), KEY)
    return None


def value_of(entry: Any) -> Any:
    """Return the plain value of a metadata entry, which Dagster may have wrapped."""
    return getattr(entry, "value", entry)


def specs_of(definitions: dg.Definitions) -> list[dg.AssetSpec]:
    """Return the specs of all assets, without the cost of a graph."""
    specs: list[dg.AssetSpec] = []
    for asset in definitions.assets or ():
        specs += [asset] if isinstance(asset, dg.AssetSpec) else []
        specs += asset.specs if isinstance(asset, dg.AssetsDefinition) else []
    return specs


def declarations_of(definitions: dg.Definitions) -> list[Declaration]:
    """Return everything that definitions declare, in their order."""
    declarations = map(declaration_of, specs_of(definitions))
    return [declaration for declaration in declarations if declaration]

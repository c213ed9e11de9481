"""What the commands about events and decisions say, as models."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AliasPath, BeforeValidator, Field

from feed_assets.cli.views import Counted, Key, ReadView, Sentence, Text, Values, View
from feed_assets.core.events import in_words

if TYPE_CHECKING:
    from feed_assets.core.propagation import Propagation

Marker = Annotated[str, BeforeValidator(in_words)]
Correlations = Annotated[
    tuple[str, ...], Counted, BeforeValidator(lambda propagations: [each.correlation for each in propagations])
]


class _OfTable(View):
    """Something of one partition of a table."""

    table: Text = Field(validation_alias=AliasPath("place", "feed"))
    partition: str = Field(validation_alias=AliasPath("place", "key"))


class _Numbered(View):
    sequence: int


class EventView(_OfTable, _Numbered):
    """A write event."""

    marker: Marker
    operation: str
    correlation_id: str = Field(validation_alias="correlation")
    event_marker: Marker
    source: Annotated[str, BeforeValidator(lambda source: source or "here")]
    flag: str | None
    context: Annotated[dict[str, Any], Sentence]


class SliceView(_OfTable):
    """What a run reads of a table."""

    after: Marker = Field(validation_alias="start")
    upto: Marker = Field(validation_alias="end")
    operations: Annotated[tuple[str, ...], BeforeValidator(sorted)]


class IncompleteView(View):
    """An update that has not reached every table of its pipeline."""

    correlation_id: str
    missing: Annotated[tuple[str, ...], Counted]
    since: datetime
    why: str

    @classmethod
    def of(cls, found: "Propagation") -> Self:
        """The view of one propagation."""
        missing = tuple(sorted(map(str, found.missing)))
        return cls(correlation_id=found.correlation, missing=missing, since=found.since, why=str(found))


class DueView(View):
    """What the next run takes, and what is left."""

    takes: Correlations = Field(validation_alias="taken")
    slices: tuple[SliceView, ...]
    later: Correlations
    incomplete: Annotated[tuple[IncompleteView, ...], BeforeValidator(lambda found: [*map(IncompleteView.of, found)])]
    waits: str | None


class UnreadView(View):
    """A part of an event source that could not be read: of it is said what was so when it was read last."""

    source: str
    why: str
    as_of: datetime | None


class ConsumerView(View):
    """What is due of a consumer by its partition, and how far it has read."""

    consumer: Text
    paused: str | None
    problem: str | None
    due: dict[str, DueView]
    markers: tuple[Values, ...]
    unread: tuple[UnreadView, ...] = ()


class TrendView(View):
    """How long updates take, in seconds, under one version of code."""

    code_version: str | None
    count: int
    median: float
    p95: float
    change: float | None


class ListedView(View):
    """A partition that waits, as it was last decided."""

    partition: Key
    state: str | None
    reason: str | None
    since: datetime
    requested: int
    next_request: datetime | None = Field(validation_alias="look_at")


class WaitingView(View):
    """The partitions of a dataset that wait."""

    feed: Text
    waiting: tuple[ListedView, ...]
    unread: tuple[UnreadView, ...] = ()


class PinView(ReadView):
    """The same with its data version."""

    version: str


class VerdictView(View):
    """What to do about a partition, and why."""

    feed: Text = Field(validation_alias=AliasPath("output", "feed"))
    partition: str = Field(validation_alias=AliasPath("output", "key"))
    state: str
    reason: str
    published: str | None = None
    reads: tuple[PinView, ...] = Field(default=(), validation_alias="pins")
    due: DueView | None = None
    left_out: tuple[Values, ...] = ()
    unread: tuple[UnreadView, ...] = ()
    requested: int | None = None
    next_request: datetime | None = None

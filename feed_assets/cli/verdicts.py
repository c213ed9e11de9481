"""Models of events, due updates and waiting partitions, which `show` prints."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AliasPath, BeforeValidator, Field

from feed_assets.cli.show import Below, Counted, Number, Seconds, Sentence, Share, Values, View, in_a_cell
from feed_assets.cli.views import ReadView, Text
from feed_assets.core.events import in_words
from feed_assets.core.message_words import first_line, first_of, of_first

if TYPE_CHECKING:
    from feed_assets.core.propagation import Propagation
    from feed_assets.ledger.due_counts import Group

Marker = Annotated[str, BeforeValidator(in_words)]
Correlations = Annotated[
    tuple[str, ...], Counted, BeforeValidator(lambda propagations: [each.correlation for each in propagations])
]


class PinView(ReadView):
    """An input's update that an output reads, with its data version."""

    version: str


class EventView(View):
    """A write event."""

    sequence: int
    table: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))
    marker: Marker
    operation: str
    correlation_id: str = Field(validation_alias="correlation")
    event_marker: Marker
    source: Annotated[str, BeforeValidator(lambda source: source or "here")]
    flag: str | None
    context: Annotated[dict[str, Any], Sentence]


class SliceView(View):
    """A slice of a table that a run reads."""

    table: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))
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
    def of(cls, propagation: "Propagation") -> Self:
        """Return the view of one propagation."""
        missing = tuple(sorted(map(str, propagation.missing)))
        since, why = propagation.since, str(propagation)
        return cls(correlation_id=propagation.correlation, missing=missing, since=since, why=why)


class DueView(View):
    """The propagations that the next run takes, and those for later runs."""

    takes: Correlations = Field(validation_alias="selected")
    slices: tuple[SliceView, ...]
    later: Correlations
    incomplete: Annotated[
        tuple[IncompleteView, ...], BeforeValidator(lambda updates: [*map(IncompleteView.of, updates)])
    ]
    waits: str | None


class UnreadView(View):
    """A part of an event source that could not be read, with the time of its last successful read."""

    source: str
    why: str
    as_of: datetime | None


class ConsumerView(View):
    """A consumer: what is due for each of its partitions, and how far it has read."""

    consumer: Text
    paused: str | None
    problem: str | None
    due: dict[str, DueView]
    markers: tuple[Values, ...]
    unread: tuple[UnreadView, ...] = ()


class TrendView(View):
    """Durations of updates, in seconds, under one version of code.

    `change` compares their median with that of the previous code version (`against`): 0.5 means 50 % longer.
    """

    code_version: str | None
    count: int
    median: Annotated[float, Seconds]
    p95: Annotated[float, Seconds]
    change: Annotated[float | None, Share]
    against: str | None


class GroupView(View):
    """The partitions of a dataset in one state: their number, the first keys, and the reason of the first one."""

    state: str
    count: int
    partitions: str
    reason: str = ""

    @classmethod
    def of(cls, group: "Group") -> Self:
        """Return the view of one group."""
        keys, state = [each.key for each in group.examples], group.state or "to be decided"
        named, reason = first_of(keys, group.count), of_first(first_line(group.examples[0].reason), group.count)
        return cls(state=state, count=group.count, partitions=named, reason=reason)


class OverviewView(View):
    """The partitions of a dataset by state."""

    feed: Text
    paused: str | None
    versions: tuple[str, ...]
    partitions: tuple[GroupView, ...]
    unread: tuple[UnreadView, ...] = ()


class _OfFeed(View):
    """A view of one dataset. The dataset's name is the first column."""

    feed: Text


class WaitingView(GroupView, _OfFeed):
    """Partitions in one state of one dataset, in a list of many datasets."""


class CameBackView(View):
    """A slice that is due again, because the update that consumed it is no longer valid."""

    table: str = Field(validation_alias="feed")
    partition: str
    after: Marker = Field(validation_alias="start")
    upto: Marker = Field(validation_alias="marker")
    consumed_by: str
    why: Text = Field(validation_alias="reason")


class LastRunView(View):
    """The last run of a partition: why it ran or who requested it, where, and its parameters."""

    state: str
    started: datetime
    ended: datetime | None
    asked_by: str | None
    why: str | None
    host: str
    cluster: str | None
    parameters: str | None
    dagster_run: str | None
    reason: Annotated[str | None, Below] = None
    """Why the run failed, unless the verdict already has this reason."""


class LateView(View):
    """A decision about a partition's late data, with the bytes of its changed inputs when consumed and when decided."""

    at: datetime
    feed: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))
    decision: str = Field(validation_alias="outcome")
    bytes_before: int = Field(validation_alias="before")
    bytes_after: int = Field(validation_alias="after")
    growth: Annotated[float | None, Share]
    files_more: int = Field(validation_alias="files")
    until: datetime | None
    published: str
    why: Text


class ComparedView(View):
    """A figure of a partition before and after a re-run; None if unknown."""

    what: str = Field(validation_alias="label")
    before: Annotated[float | None, Number]
    after: Annotated[float | None, Number]
    change: str


class VerdictView(View):
    """A verdict: what to do about a partition, and why."""

    feed: Text = Field(validation_alias=AliasPath("output", "feed"))
    partition: str = Field(validation_alias=AliasPath("output", "key"))
    state: str
    reason: str
    issue: Annotated[str | None, in_a_cell(lambda _: None)] = None
    """The partition's quality problem. The terminal shows it only as part of `reason`."""
    deadline: datetime | None = None
    published: str | None = None
    went_without: tuple[str, ...] = ()
    reads: tuple[PinView, ...] = Field(default=(), validation_alias="pins")
    due: DueView | None = None
    came_back: tuple[CameBackView, ...] = ()
    left_out: tuple[Values, ...] = ()
    unread: tuple[UnreadView, ...] = ()
    requested: int | None = None
    next_request: datetime | None = None
    late: tuple[LateView, ...] = ()
    last_run: LastRunView | None = None
    offending: tuple[Values, ...] = ()
    """Rows that failed the checks of the partition's last run."""

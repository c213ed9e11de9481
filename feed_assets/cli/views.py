"""Models of feeds and repairs, which `show` prints."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AliasChoices, AliasPath, BeforeValidator, ConfigDict, Field, computed_field

from feed_assets.cli.show import Counted, Counts, Levels, Sentence, View, Words, in_a_cell
from feed_assets.core.feeds import File, Skipped, is_update_id
from feed_assets.core.retention import Judgement
from feed_assets.core.sub_partitions import mapping_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from feed_assets.core.feeds import Partition
    from feed_assets.feeds.batch_set import SetReading
    from feed_assets.feeds.read import Reading
    from feed_assets.ledger.states.count_reports import ReportOutcome

Text = Annotated[str, BeforeValidator(str)]
SubPartition = Annotated[
    dict[str, str],
    Levels,
    BeforeValidator(lambda text: mapping_of(text) if isinstance(text, str) else text),
]
Key = Annotated[str, BeforeValidator(lambda partition: getattr(partition, "key", partition))]
Count = Annotated[int, BeforeValidator(len)]


class OfPartition(View):
    """A view of one partition."""

    feed: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))


class KeyView(View):
    """A partition of a feed, or a name below the feed that is not a partition, and why."""

    partition: str = Field(validation_alias=AliasChoices("key", "id"))
    skipped: str = Field("", validation_alias="reason")


class UpdateView(OfPartition):
    """A valid update with its files."""

    id: str
    bytes: int = Field(validation_alias="size")
    files: Annotated[tuple[File, ...], Counted]

    def __str__(self) -> str:
        return f"{self.id} is valid, {len(self.files)} files, {self.bytes} bytes"


class HistoryView(View):
    """An update of a partition: a valid one with files, or an invalid one with a reason.

    `compacted_from` is the update with the same rows that a compaction replaced by this one.
    """

    id: str
    valid: Annotated[bool, BeforeValidator(lambda files: files is not None)] = Field(False, validation_alias="files")
    files: Count | None = None
    bytes: int | None = Field(None, validation_alias="size")
    reason: str = ""
    compacted_from: str = ""


class BatchView(View):
    """A batch with its newest valid update, or why it has none."""

    batch: str = Field(validation_alias=AliasPath("partition", "name"))
    id: str = ""
    valid: bool = True
    files: Count | None = None
    bytes: int | None = Field(None, validation_alias="size")
    reason: str = ""

    @classmethod
    def of_set(cls, reading: "SetReading") -> tuple[Self, ...]:
        """Return a view of every batch of a partition, also of names that are not batch names."""
        without = (cls(batch=part.id, valid=False, bytes=None, reason=part.reason) for part in reading.left_out)
        return (*cls.each(reading.updates), *without)


class ReadingView(OfPartition):
    """A partition's newest valid update, and what was skipped before it."""

    latest: Annotated[UpdateView | None, Sentence] = Field(validation_alias="update")
    skipped: tuple[Skipped, ...]


class VerifiedView(ReadingView):
    """A reading of a partition, and why its newest update is invalid or differs from the recorded one."""

    edited: str = Field("", exclude=True)
    """The first file whose size differs from the ledger's record."""
    note: str = ""

    @classmethod
    def of(cls, reading: "Reading", edits: "Mapping[Partition, tuple[str, str]]") -> Self:
        """Return the view of a partition, with the differences of its update from the ledger's record."""
        edited, note = edits.get(reading.partition, ("", ""))
        return cls.model_validate(reading).model_copy(update={"edited": edited, "note": note})

    @computed_field
    @property
    def problem(self) -> str:
        """Return why the newest update is not valid; '' if it is."""
        newest = next((skip for skip in self.skipped if is_update_id(skip.id)), None)
        if newest:
            return f"{newest.id}: {newest.reason}"
        return self.edited if self.latest else "it has no update"


class DeepView(OfPartition):
    """An update that was read to the last byte, and the damage found in it."""

    id: str
    files: int
    rows: int
    is_compared: bool
    damage: str


class FeedReadingView(ReadingView):
    """A reading of a partition, with all its updates, and the newer versions of the feed."""

    newer_versions: tuple[str, ...] = ()
    went_without: tuple[str, ...] = ()
    history: tuple[HistoryView, ...] = ()


class SetView(OfPartition):
    """The batches of a partition of an appendable feed."""

    batches: tuple[ReadingView, ...]
    left_out: tuple[Skipped, ...]


class ShownSetView(SetView):
    """The batches of a partition, with the newer versions of the feed."""

    newer_versions: tuple[str, ...] = ()


class RevalidatedView(OfPartition):
    """An update that is valid again."""

    id: str
    files: Count
    bytes: int = Field(validation_alias="size")


class PrunedView(View):
    """Updates of a partition to keep and to remove. `applied` is true if the removal was done."""

    partition: Key
    applied: bool
    updates: tuple[Judgement, ...] = Field(validation_alias="judged")


class PrunedLedgerView(View):
    """How many rows of each kind are older than `before` and not needed. `applied` is true if they were removed."""

    before: datetime
    changes: int
    events: int
    rejects: int
    reports: int
    reports_before: datetime
    applied: bool
    held_by: str | None


class CompactedView(View):
    """Batches to be combined into one. `applied` is true if the combined batch exists."""

    partition: Key
    batches: tuple[str, ...]
    into: str
    applied: bool


class CompactedPartitionView(View):
    """An update of a partition to be replaced by one with fewer files. `after` is the new update, if it exists."""

    partition: Key
    before: str
    after: str = ""
    files_before: int
    files_after: int


class DoneView(OfPartition):
    """An action on an update that a killed run left behind."""

    what: str = Field(validation_alias="action")
    update_id: str
    why: str


class GoneView(OfPartition):
    """One of our updates that somebody else removed or damaged, and why it is no longer valid."""

    update_id: str
    why: str


class ReadView(View):
    """An input's update that an output reads."""

    input: str = Field(validation_alias=AliasPath("partition", "path"))
    update_id: str


class AddedView(View):
    """An update that was restored to the ledger."""

    feed: Text = Field(validation_alias=AliasPath("update", "partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("update", "partition", "key"))
    update_id: str = Field(validation_alias=AliasPath("update", "id"))
    records: int | None
    version: str | None


class AssumedView(OfPartition):
    """The inputs from which an update is assumed to be built."""

    update_id: str
    reads: tuple[ReadView, ...] = Field(validation_alias="pins")


class NotKnownView(OfPartition):
    """An update with facts that cannot be restored, and why."""

    update_id: str
    why: str


class RebuiltView(View):
    """The updates that were restored to the ledger, and what is still missing."""

    added: tuple[AddedView, ...]
    assumed: tuple[AssumedView, ...]
    unknown: tuple[NotKnownView, ...]
    unread: tuple[NotKnownView, ...]
    invalid: tuple[NotKnownView, ...]
    not_known: tuple[str, ...] = ()


class RejectedView(View):
    """A line that is not a valid report, and why."""

    reason: str
    raw: str


class ReportedView(View):
    """The outcome of reports, with the first rejected ones."""

    accepted: int = 0
    known: int = 0
    rejected: int = 0
    transitions: int = 0
    reasons: tuple[RejectedView, ...] = ()

    def plus(self, outcome: "ReportOutcome") -> Self:
        """Return the sum of this outcome and the outcome of one more batch of reports."""
        sums = {name: getattr(self, name) + getattr(outcome, name) for name in ("accepted", "known", "transitions")}
        return self.model_copy(update={**sums, "rejected": self.rejected + len(outcome.rejected)})


class TransitionView(View):
    """A window's change of state."""

    model_config = ConfigDict(serialize_by_alias=True)

    sequence: int
    dataset: Text = Field(validation_alias=AliasPath("address", "dataset"))
    sub_partition: SubPartition = Field(validation_alias=AliasPath("address", "sub_partition"))
    grain: str = Field(validation_alias=AliasPath("address", "grain"))
    start: datetime
    end: datetime
    before: str | None = Field(serialization_alias="from")
    after: str = Field(serialization_alias="to")
    at: datetime
    why: str | None
    who: str | None


class PartitionStateView(View):
    """A row of the view `partition_state`."""

    dataset: str
    sub_partition: SubPartition
    grain: str
    partition: str
    start: datetime | None
    end: datetime | None
    complete: bool
    good: bool
    version: str | None
    contiguous: datetime | None
    latest: datetime | None


class LackingPartView(View):
    """A part of a window that is not complete."""

    window: str
    state: Text
    why: str


class WindowStateView(PartitionStateView):
    """A row of the view `partition_state`, with details if it is a window."""

    state: Text
    records: int | None
    sources: Annotated[dict[str, int], Counts]
    since: datetime | None
    why: str
    waits_for: tuple[LackingPartView, ...]
    closed: Text | None


Offsets = in_a_cell(lambda ranges: ", ".join(f"{name}: {first}-{last}" for name, (first, last) in ranges.items()))


class PartView(View):
    """One report about a window."""

    sub_partition: SubPartition
    tier: str
    part: str
    version: str
    records: int
    of: int | None
    first: datetime | None = Field(serialization_alias="min")
    last: datetime | None = Field(serialization_alias="max")
    offsets: Annotated[dict[str, tuple[int, int]], Offsets]
    snapshot: str | None
    batch: str | None
    by: str | None
    at: datetime

    model_config = ConfigDict(serialize_by_alias=True)


class MissingView(View):
    """A file that was not ingested, or offsets that no part contains."""

    sub_partition: SubPartition
    tier: str | None
    part: str | None
    records: int | None
    partition: str | None
    first: int | None
    last: int | None
    after: str | None
    before: str | None


class TwiceView(View):
    """Offsets that two parts of a window contain."""

    sub_partition: SubPartition
    partition: str
    first: int
    last: int
    parts: Words


class WindowPartsView(View):
    """The parts of a window, and what is missing or duplicated."""

    dataset: str
    sub_partition: SubPartition
    grain: str
    partition: str
    state: Text
    why: str
    records: int | None
    more: int
    folded: bool
    parts: tuple[PartView, ...]
    missing: tuple[MissingView, ...]
    twice: tuple[TwiceView, ...]


class LineView(View):
    """The progress of the windows of one grain of a sub-partition."""

    sub_partition: SubPartition
    grain: str
    contiguous: datetime | None
    latest: datetime | None
    windows: Annotated[dict[str, int], Counts]


class DatasetStateView(View):
    """A dataset: how its windows are judged, how far it is complete, and its newest windows and partitions."""

    model_config = ConfigDict(serialize_by_alias=True)

    dataset: Text
    declared: bool
    grains: Words = Field(validation_alias=AliasPath("tracked", "grains"))
    ratio: str = Field(validation_alias=AliasPath("tracked", "ratio"))
    tiers: Words = Field(validation_alias=AliasPath("tracked", "tiers"))
    tz: str = Field(validation_alias=AliasPath("tracked", "zone"))
    schema_: str | None = Field(validation_alias="schema", serialization_alias="schema")
    watermarks: tuple[LineView, ...]
    newest: tuple[PartitionStateView, ...]

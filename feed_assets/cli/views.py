"""What commands say, as models: `show` prints them as JSON for machines, as columns for people."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, RootModel, WrapSerializer, computed_field

from feed_assets.cli.show import FOR_PEOPLE
from feed_assets.core.feeds import File, Partition, Skipped, Update, is_update_id
from feed_assets.core.retention import Judged

if TYPE_CHECKING:
    from feed_assets.feeds.batches import SetReading


class View(BaseModel):
    """What a command says of one thing. Its fields are read from the thing's attributes."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True, frozen=True)

    @classmethod
    def each(cls, found: Iterable[object]) -> tuple[Self, ...]:
        """A view of each of some things."""
        return tuple(cls.model_validate(one) for one in found)


Text = Annotated[str, BeforeValidator(str)]
Counted = WrapSerializer(lambda values, dump, info: len(values) if info.context == FOR_PEOPLE else dump(values))
"""Marks a field of which people are told the number of values only."""
Sentence = WrapSerializer(lambda view, dump, info: str(view or "") if info.context == FOR_PEOPLE else dump(view))
"""Marks a field that is told to people in one cell."""
Key = Annotated[str, BeforeValidator(lambda partition: getattr(partition, "key", partition))]


class Values(RootModel[dict[str, Any]]):
    """Named values, as they are given."""

    @classmethod
    def of(cls, **values: Any) -> Self:
        """These."""
        return cls(values)


class _OfPartition(View):
    """Something of one partition."""

    feed: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))


class KeyView(View):
    """A partition of a feed, or why a name is none."""

    partition: str
    skipped: str = ""

    @classmethod
    def of(cls, found: Partition | Skipped) -> Self:
        """What there is to say of it."""
        if isinstance(found, Skipped):
            return cls(partition=found.id, skipped=found.reason)
        return cls(partition=found.key)


class UpdateView(_OfPartition):
    """A valid update with its files."""

    id: str
    bytes: int = Field(validation_alias="size")
    files: Annotated[tuple[File, ...], Counted]

    def __str__(self) -> str:
        return f"{self.id} is valid, {len(self.files)} files, {self.bytes} bytes"


class HistoryView(View):
    """An update of a partition, valid or not."""

    id: str
    valid: bool
    files: int | None = None
    bytes: int | None = None
    reason: str = ""

    @classmethod
    def of(cls, found: Update | Skipped) -> Self:
        """What there is to say of it."""
        if isinstance(found, Skipped):
            return cls(id=found.id, valid=False, reason=found.reason)
        return cls(id=found.id, valid=True, files=len(found.files), bytes=found.size)


class _Batch(View):
    batch: str


class BatchView(HistoryView, _Batch):
    """A batch with its newest valid update, or why it has none."""

    @classmethod
    def of_set(cls, held: "SetReading") -> tuple[Self, ...]:
        """Every batch of a partition; names that are no batches among those without."""
        valid = [cls(batch=each.partition.name, **HistoryView.of(each).model_dump()) for each in held.updates]
        return (*valid, *(cls(batch=left.id, id="", valid=False, reason=left.reason) for left in held.left_out))


class ReadingView(_OfPartition):
    """A partition's newest valid update, and what was passed over before it."""

    latest: Annotated[UpdateView | None, Sentence] = Field(validation_alias="update")
    skipped: tuple[Skipped, ...]


class VerifiedView(ReadingView):
    """The same, and why the newest update is not valid."""

    @computed_field
    @property
    def problem(self) -> str:
        """Empty if it is valid."""
        newest = next((skip for skip in self.skipped if is_update_id(skip.id)), None)
        if newest:
            return f"{newest.id}: {newest.reason}"
        return "" if self.latest else "it has no update"


class ShownView(ReadingView):
    """The same, with all updates of the partition, and the newer versions of the feed."""

    newer_versions: tuple[str, ...] = ()
    history: tuple[HistoryView, ...] = ()


class SetView(_OfPartition):
    """The batches of a partition of an appendable feed."""

    batches: tuple[ReadingView, ...]
    left_out: tuple[Skipped, ...]


class ShownSetView(SetView):
    """The same, with the newer versions of the feed."""

    newer_versions: tuple[str, ...] = ()


class RevalidatedView(_OfPartition):
    """An update that is valid again."""

    id: str
    files: Annotated[int, BeforeValidator(len)]
    bytes: int = Field(validation_alias="size")


class PrunedView(View):
    """What becomes of the updates of a partition; `applied`: what goes is gone."""

    partition: Key
    applied: bool
    updates: tuple[Judged, ...] = Field(validation_alias="judged")


class DoneView(_OfPartition):
    """What was done about an update that a run left behind."""

    what: str
    update_id: str
    why: str


class ReconciledView(View):
    """What `reconcile` did."""

    claims: int
    done: tuple[DoneView, ...]
    events: tuple[Values, ...]
    problems: tuple[str, ...]


class ReadView(View):
    """An input's update that an output reads."""

    input: str = Field(validation_alias=AliasPath("partition", "path"))
    update_id: str


class AddedView(_OfPartition):
    """An update that a rebuilt ledger knows again."""

    feed: Text = Field(validation_alias=AliasPath("update", "partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("update", "partition", "key"))
    update_id: str = Field(validation_alias=AliasPath("update", "id"))
    records: int | None
    version: str | None


class AssumedView(_OfPartition):
    """What an update is taken to be built from."""

    update_id: str
    reads: tuple[ReadView, ...] = Field(validation_alias="pins")


class NotKnownView(_OfPartition):
    """What cannot be known of an update, and why."""

    update_id: str
    why: str


class RebuiltView(View):
    """What a rebuilt ledger knows again, and what it does not."""

    added: tuple[AddedView, ...]
    assumed: tuple[AssumedView, ...]
    unknown: tuple[NotKnownView, ...]
    unread: tuple[NotKnownView, ...]
    invalid: tuple[NotKnownView, ...]
    not_known: tuple[str, ...] = ()

"""The output of `feed-assets status` as models: `--json` prints all of them, the terminal some."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AliasPath, BeforeValidator, Field

from feed_assets.cli.show import View
from feed_assets.cli.views import Text
from feed_assets.core.feeds import Partition
from feed_assets.core.grid import CellState, reasons
from feed_assets.core.message_words import first_line, first_of, of_first, shortened

if TYPE_CHECKING:
    from feed_assets.core.grid import Hole, Reason
    from feed_assets.ledger.due_counts import Group
    from feed_assets.orchestration.decide.status_grid import GridRow, Status

NAMED = 4
"""The most partitions that a line names. Further partitions are only counted."""

Line = Annotated[str, BeforeValidator(first_line)]


class StaleView(View):
    """A partition that was built and is out of date, with its verdict and the time since which it is due."""

    dataset: Text = Field(validation_alias=AliasPath("partition", "feed"))
    partition: str = Field(validation_alias=AliasPath("partition", "key"))
    state: str
    since: datetime
    why: Line


class GridPartitionView(View):
    """A partition of the grid. If the partition is due, `verdict` is the state that `explain` shows."""

    partition: str = Field(validation_alias=AliasPath("partition", "key"))
    start: datetime | None
    end: datetime | None
    state: CellState
    verdict: str | None
    why: str
    since: datetime | None


class MarkView(View):
    """Two times of a grid row: the time up to which its data have no hole, if known, and the end of its data."""

    dataset: Text = Field(validation_alias=AliasPath("node", "feed"))
    of: str
    contiguous: datetime | None = Field(validation_alias=AliasPath("marks", "contiguous"))
    latest: datetime | None = Field(validation_alias=AliasPath("marks", "latest"))


class RowView(MarkView):
    """One line of the grid: a dataset, or those of its partitions that have the same key in the other dimensions."""

    role: str = Field(validation_alias=AliasPath("node", "role"))
    partitions: tuple[GridPartitionView, ...] = Field(validation_alias="shown")


class ReasonView(View):
    """Partitions of one row in one state, and the reason of the first one. `all` has every partition.

    `all` is used for links, and is not printed.
    """

    all: Annotated[tuple[Partition, ...], Field(exclude=True)]
    state: str
    dataset: str
    verdict: str | None
    count: int
    partitions: str
    since: datetime | None
    why: str

    @classmethod
    def of_row(cls, row: "GridRow", reason: "Reason") -> Self:
        """Return the view of one reason."""
        partitions = tuple(each.partition for each in reason.partitions)
        return cls(
            all=partitions,
            state=reason.first.state.value,
            dataset=str(row.node.feed),
            verdict=reason.first.verdict,
            count=len(partitions),
            partitions=shortened([each.key for each in partitions], NAMED),
            since=reason.since,
            why=of_first(first_line(reason.first.why), len(partitions)),
        )


class HoleView(View):
    """A hole: start and end of a time without data, although later data exist."""

    dataset: str
    of: str
    start: datetime | None
    end: datetime
    why: str

    @classmethod
    def of_row(cls, row: "GridRow", hole: "Hole") -> Self:
        """Return the view of one hole."""
        return cls(dataset=str(row.node.feed), of=row.of, start=hole.start, end=hole.end, why=first_line(hole.why))


class ElsewhereView(View):
    """Partitions of a dataset that are due but not shown, in one state."""

    dataset: str
    state: str
    count: int
    partitions: str

    @classmethod
    def of_group(cls, group: "Group") -> Self:
        """Return the view of one group."""
        from feed_assets.ledger.status_facts import verdict_of

        named = [each.key for each in group.examples]
        partitions = first_of(named, group.count) if named else ""
        return cls(dataset=str(group.feed), state=verdict_of(group.state), count=group.count, partitions=partitions)


class StatusView(View):
    """The whole status: the rows of the grid, then reasons, holes and stale partitions."""

    now: datetime
    start: datetime | None
    """The start of the requested days; None: the newest periods of each dataset are shown."""
    end: datetime | None
    counts: dict[str, int]
    datasets: tuple[RowView, ...]
    waits: tuple[ReasonView, ...]
    gaps: tuple[HoleView, ...]
    stale: tuple[StaleView, ...]
    stale_in_all: int
    elsewhere: tuple[ElsewhereView, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, status: "Status") -> Self:
        """Return the view of a status."""
        return cls(
            now=status.now,
            start=status.slots.start if status.slots else None,
            end=status.slots.end if status.slots else None,
            counts=counts(status),
            datasets=RowView.each(status.rows),
            waits=waits(status),
            gaps=tuple(HoleView.of_row(row, hole) for row, hole in status.holes),
            stale=StaleView.each(status.stale),
            stale_in_all=status.stale_in_all,
            elsewhere=tuple(map(ElsewhereView.of_group, status.elsewhere)),
            notes=status.notes,
        )


def counts(status: "Status") -> dict[str, int]:
    """Return how many partitions are in each state; states that need a person come first."""
    states = [each.state for row in status.rows for each in row.shown]
    return {each.value: states.count(each) for each in CellState if each in states}


def waits(status: "Status") -> tuple[ReasonView, ...]:
    """Return the reasons for partitions' states: those that need a person first, then by dataset."""
    order = {state: number for number, state in enumerate(CellState)}
    pairs = [(row, reason) for row in status.rows for reason in reasons(row.shown)]
    pairs.sort(key=lambda each: order[each[1].first.state])
    return tuple(ReasonView.of_row(row, reason) for row, reason in pairs)

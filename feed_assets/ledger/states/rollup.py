"""Roll-up of counts: changed counts change the states of windows, and of the larger windows that contain them.

The transaction must hold the lock of the dataset (`window_policies.lock`). The transaction also locks the log as soon
as a state changes, and judges larger windows after that. So if two transactions complete two sibling windows, the later
transaction sees both windows.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.completeness import AS_EXPECTED, WindowState, combined, judge, why
from feed_assets.core.errors import InvalidName, InvalidReport, PartitionClosed
from feed_assets.core.events import LAST_VERSION
from feed_assets.core.feeds import Feed
from feed_assets.core.offset_comparison import OffsetProblems
from feed_assets.core.sub_partitions import Tracked, above
from feed_assets.core.windows import Window, WindowAddress, minutes_of, parents, window_of
from feed_assets.ledger import closures
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states import watermarks
from feed_assets.ledger.states.deltas import Delta, add_source
from feed_assets.ledger.states.nested_windows import held_by, holding, inner, inside
from feed_assets.ledger.states.posting import NewTransition, post
from feed_assets.ledger.states.window_rows import DIGESTS, WindowRow, empty, rows, state_counts, write

NOTHING_SAID: Mapping[WindowAddress, OffsetProblems] = {}
"""The offset problems if no report has offsets."""


class Judging:
    """The judging of one dataset's windows, in one transaction."""

    def __init__(
        self, connection: sa.Connection, dataset: Feed, tracked: Tracked, now: datetime, by: str | None
    ) -> None:
        self._connection, self._dataset, self._tracked = connection, dataset, tracked
        self._now, self._by = now, by
        self._has_closed = closures.has_any(connection, dataset)
        self._rows: dict[WindowAddress, WindowRow] = {}
        self._touched: dict[WindowAddress, WindowRow] = {}
        self._transitions: dict[WindowAddress, NewTransition] = {}
        self._held: dict[WindowAddress, str | None] = {}
        self._accepted: set[WindowAddress] = set()
        self._suspicions: dict[WindowAddress, str | None] = {}

    def count(
        self,
        deltas: Mapping[tuple[str, datetime], Delta],
        offsets: Mapping[WindowAddress, OffsetProblems] = NOTHING_SAID,
    ) -> int:
        """Change the counts and the offset problems of base windows, and judge all affected windows.

        The keys of `deltas` are sub-partition and start. Return how many windows change their state.
        """
        summed: dict[WindowAddress, Delta] = {}
        for (sub_partition, start), delta in deltas.items():
            for depth, at in enumerate(self._holding(sub_partition, start)):
                summed.setdefault(at, Delta()).merge(delta, is_base=depth == 0)
        self._load(summed)
        for at, delta in summed.items():
            self._add(self._rows[at], delta)
        self._compare(offsets)
        return self._settle({*(self.base_of(*each) for each in deltas), *offsets})

    def folded(self, starts: Iterable[tuple[str, datetime]]) -> set[tuple[str, datetime]]:
        """Return the base windows whose old reports were merged. The names of the merged parts are lost.

        Each window is a pair of sub-partition and start.
        """
        address_by_start = {each: self.base_of(*each) for each in set(starts)}
        self._load(address_by_start.values())
        return {each for each, at in address_by_start.items() if self._rows[at].folded}

    def _compare(self, offsets: Mapping[WindowAddress, OffsetProblems]) -> None:
        """Store the offset problems of windows in their rows. Skip windows whose problems did not change."""
        self._load(offsets)
        for at, comparison in offsets.items():
            row = self._rows[at]
            if row.offsets != comparison:
                row.offsets = comparison
                self._touched[at] = row

    def base_of(self, sub_partition: str, start: datetime) -> WindowAddress:
        """Return the base window that contains a time."""
        return self._address(sub_partition, window_of(self._tracked.base, start, self._tracked.zone_of(sub_partition)))

    def count_again(
        self,
        kept: Sequence[WindowRow],
        deltas: Mapping[tuple[str, datetime], Delta],
        offsets: Mapping[WindowAddress, OffsetProblems],
    ) -> None:
        """Sum up and judge all windows again from all reports, after a change of the base grain."""
        for row in kept:
            row.records, row.parts, row.sources, row.data = 0, 0, {}, 0
        self._rows = {row.address: row for row in kept}
        counted = {(sub, start): self.base_of(sub, start) for sub, start in deltas}
        self._load(counted.values())
        for each, at in counted.items():
            self._add(self._rows[at], deltas[each])
        self.recount([*self._rows.values()], offsets)

    def recount(self, kept: Iterable[WindowRow], offsets: Mapping[WindowAddress, OffsetProblems]) -> None:
        """Sum up and judge all windows again from the base windows.

        `offsets` has the offset problems of all windows.
        """
        kept = [*kept]
        for row in kept:
            row.offsets = offsets.get(row.address, AS_EXPECTED)
        self._rows = self._touched = {row.address: row for row in kept if self._is_bound(row)}
        parts = {at: self._tracked.parts(at, row.window) for at, row in self._rows.items()}
        base = [row for at, row in self._rows.items() if self._is_base(at, parts[at])]
        for row in [row for at, row in self._rows.items() if not self._is_base(at, parts[at])]:
            row.records, row.parts, row.data = 0, 0, 0
        larger = {row.address: self._holding(row.address.sub_partition, row.start)[1:] for row in base}
        self._load({at for addresses in larger.values() for at in addresses})
        for row in base:
            for at in larger[row.address]:
                self._add(self._rows[at], Delta(row.records, row.parts, data=row.data))
        self._settle([*self._rows])

    def _is_bound(self, row: WindowRow) -> bool:
        """Return whether a window is still declared.

        Set its start and end again, because its time zone may have changed.
        """
        if row.address.grain != self._tracked.base:
            try:
                window = self._tracked.window(row.address.sub_partition, row.address.grain, row.address.key)
            except InvalidName:
                return False
            row.start, row.end = window.start, window.end
        return True

    def _is_base(self, at: WindowAddress, below: Sequence[WindowAddress]) -> bool:
        """Return whether the counts of a window come from reports, not from smaller windows or other sub-partitions."""
        tracked = self._tracked
        is_known = not tracked.members or not at.sub_partition or at.sub_partition in tracked.members
        return not below and at.grain == tracked.base and is_known

    def judge_again(self, addresses: Iterable[WindowAddress]) -> set[WindowAddress]:
        """Judge windows after a change of something other than counts. Return the windows whose state changes."""
        seeds = {*addresses}
        self._settle(seeds.union(self._flag(seeds)))
        return {*self._transitions}

    def move(self, address: WindowAddress, state: WindowState, why: str) -> set[WindowAddress]:
        """Set a window's state, but only if its counts and checks allow this state.

        Return the windows whose state changes.
        """
        row = self.row(address)
        lock_log(self._connection)  # This change is logged, even if no window above changes.
        self._transitions[address] = NewTransition(row, row.state, why)
        row.state, row.since = state, self._now
        self._settle({address, *self._above(address)})
        return {*self._transitions}

    def row(self, address: WindowAddress) -> WindowRow:
        """Return the row of a window, so that the caller can change it. Call `judge_again` after the change.

        Raise PartitionClosed if the window is closed.
        """
        self._load([address])
        self._load(self._ancestors(address))
        if final := self._closed([address]):
            raise PartitionClosed(final[address])
        self._touched[address] = self._rows[address]
        return self._rows[address]

    def open_again(self, addresses: Iterable[WindowAddress]) -> None:
        """Judge reopened windows, and all windows inside of them. Nothing judged them while they were closed."""
        seeds = {*addresses}
        self._load(seeds)
        self._load({above for at in seeds for above in self._ancestors(at)})
        self._settle(seeds.union(*(self._load_inside(self._rows[at]) for at in seeds)))

    def _closed(self, addresses: Iterable[WindowAddress]) -> dict[WindowAddress, str]:
        """Return the loaded windows that are closed or inside of a closed window, each with a message about that."""
        if not self._has_closed:
            return {}
        places = {at: holding(self._tracked, at, self._rows[at].start) for at in addresses}
        return closures.of_windows(self._connection, places)

    def _holding(self, sub_partition: str, start: datetime) -> list[WindowAddress]:
        return self._tracked.holding(self._dataset, sub_partition, start)

    def _address(self, sub_partition: str, window: Window) -> WindowAddress:
        return WindowAddress(self._dataset, sub_partition, window.grain, window.key)

    def _load(self, addresses: Iterable[WindowAddress]) -> None:
        new = [at for at in addresses if at not in self._rows]
        self._keep(rows(self._connection, new))
        self._keep({at: empty(self._tracked, at) for at in new if at not in self._rows})

    def _keep(self, loaded: Mapping[WindowAddress, WindowRow]) -> None:
        """Remember rows of windows that were loaded.

        Also remember their hold reasons, acceptances and problems, before these change.
        """
        self._rows |= loaded
        self._held |= {at: row.held for at, row in loaded.items() if row.held}
        self._accepted |= {at for at, row in loaded.items() if row.accepted}
        self._suspicions |= {at: why for at, row in loaded.items() if (why := row.suspicion)}

    def _load_inside(self, row: WindowRow) -> list[WindowAddress]:
        """Load the recorded windows inside of a window, with all windows that contain them.

        Return the recorded windows inside.
        """
        addresses = [*inside(self._tracked, row.address, row.window)]
        self._keep(rows(self._connection, [at for at in addresses if at not in self._rows]))
        stored = [at for at in addresses if at in self._rows and self._rows[at].is_kept]
        self._load({above for at in stored for above in self._ancestors(at)})
        return stored

    def _ancestors(self, at: WindowAddress) -> list[WindowAddress]:
        """Return the windows that contain a window. These are larger, or belong to a sub-partition above."""
        return holding(self._tracked, at, self._rows[at].start)[1:]

    def _add(self, row: WindowRow, delta: Delta) -> None:
        row.records, row.parts = row.records + delta.records, row.parts + delta.parts
        row.data = (row.data + delta.data) % DIGESTS
        for tier, counted in delta.sources.items():
            add_source(row.sources, tier, *counted)
        if max(row.records, *(each for each, _ in row.sources.values()), 0) > LAST_VERSION:
            raise InvalidReport(
                f"{row.address.partition}: its records are more than {LAST_VERSION}. Correct the report."
            )
        self._touched[row.address] = row

    def _settle(self, seeds: Iterable[WindowAddress]) -> int:
        """Judge windows until no state changes any more, in the order that `_queue` describes."""
        waiting: dict[tuple[int, int], set[WindowAddress]] = {}
        self._queue(waiting, seeds)
        while waiting:
            group = waiting.pop(min(waiting))
            self._queue(waiting, (each for at in self._judge(group) for each in self._above(at)))
            self._queue(waiting, self._flag(group))
        self._write()
        return len(self._transitions)

    def _flag(self, judged: Iterable[WindowAddress]) -> list[WindowAddress]:
        """Note which windows became suspect (a check failed) or good again.

        Return the windows inside of these and above them, to judge them next.
        """
        new = [at for at in judged if self._rows[at].suspicion != self._suspicions.get(at)]
        if not new:
            return []
        self._suspicions |= {at: self._rows[at].suspicion for at in new}
        return [each for at in new for each in [*self._load_inside(self._rows[at]), *self._above(at)]]

    def _queue(self, waiting: dict[tuple[int, int], set[WindowAddress]], addresses: Iterable[WindowAddress]) -> None:
        """Queue windows for judging: from the lowest sub-partitions up, and then from small to large windows."""
        for at in addresses:
            depth = at.sub_partition.count("/") + 1 if at.sub_partition else 0
            waiting.setdefault((-depth, minutes_of(at.grain)), set()).add(at)

    def _above(self, at: WindowAddress) -> list[WindowAddress]:
        """Return the windows that may change together with a window.

        These are larger windows, the same window of the parent sub-partition, and accepted windows that contain it.
        """
        tracked, sub_partition = self._tracked, at.sub_partition
        larger = parents(self._rows[at].window, tracked.grains, tracked.zone_of(sub_partition))
        addresses = [self._address(sub_partition, each) for each in larger]
        if sub_partition and tracked.members:
            addresses.append(WindowAddress(self._dataset, above(sub_partition), at.grain, at.key))
        return [*addresses, *(self._accepted.intersection(self._ancestors(at)) if self._accepted else ())]

    def _judge(self, group: set[WindowAddress]) -> list[WindowAddress]:
        """Judge the windows of `group` (one grain, one level). Return those whose state or hold reason changed.

        Closed windows are skipped.
        """
        self._load(group)
        group = group.difference(self._closed(group))
        parts = {at: self._tracked.parts(at, self._rows[at].window) for at in group}
        self._load({each for below in parts.values() for each in below})
        changed = [at for at, below in parts.items() if self._is_changed(self._rows[at], below)]
        if changed:
            lock_log(self._connection)
        return changed

    def _is_changed(self, row: WindowRow, below: Sequence[WindowAddress]) -> bool:
        before = row.state, row.held, row.flagged
        row.flagged = self._flagged_by(row)
        counted = self._counted(row, below)
        is_open = counted is WindowState.OPEN
        held = held_by(self._holders(row, below), is_accepted=bool(row.accepted)) if is_open else None
        state = self._state(row, counted, is_there=held is not None)
        row.held = held if state is WindowState.OPEN else None
        if state is not row.state:
            first = self._transitions[row.address].before if row.address in self._transitions else row.state
            row.state, row.since = state, self._now
            self._transitions[row.address] = NewTransition(row, first, self._why(row, below))
        if (row.state, row.held, row.flagged) == before:
            return False
        self._touched[row.address] = row
        return True

    def _holders(self, row: WindowRow, below: Sequence[WindowAddress]) -> list[WindowRow]:
        """Return the parts of a window (smaller windows or sub-partitions) that may keep it open.

        If a person has accepted the window as complete, replace an open part by its own parts.
        """
        addresses, tracked = [*below], self._tracked
        while lacking := {at: parts for at in addresses if row.accepted and (parts := inner(tracked, self._rows[at]))}:
            self._load({each for parts in lacking.values() for each in parts})
            addresses = [each for at in addresses for each in lacking.get(at, (at,))]
        return [self._rows[at] for at in addresses]

    def _flagged_by(self, row: WindowRow) -> str | None:
        """Return why the data of a larger window, which contains this one, are suspect. Return None if they are not.

        Windows that are not loaded have no problem.
        """
        if not any(self._suspicions.values()):
            return None
        suspicions = (self._suspicions.get(at) for at in self._ancestors(row.address))
        return next((why for why in suspicions if why), None)

    def _state(self, row: WindowRow, counted: WindowState, *, is_there: bool) -> WindowState:
        """Return a window's new state. It follows from the state by counts, a person's acceptance, and quality checks.

        A failed check counts only when all data have arrived. So an invalid window is never incomplete, and readers
        that ignore quality can read it. A window in backfill keeps its state until the backfill is ended. `is_there` is
        True if all data of the window have arrived, even if a part is bad.
        """
        if row.state is WindowState.BACKFILLING:
            return row.state
        is_open = counted is WindowState.OPEN and (is_there or not row.accepted)
        if row.issue and (is_there or not is_open):
            return WindowState.INVALID
        if is_open:
            return counted
        if row.stale and row.state is WindowState.BACKFILLED:
            return row.state
        if row.flagged or row.marked or row.stale or counted is WindowState.COMPLETE_WITH_ISSUE:
            return WindowState.COMPLETE_WITH_ISSUE
        return row.state if row.state is WindowState.BACKFILLED else WindowState.COMPLETE

    def _counted(self, row: WindowRow, below: Sequence[WindowAddress]) -> WindowState:
        """Return the state by counts alone: a base window's own counts, or the states of a larger window's parts."""
        if self._is_base(row.address, below):
            return judge(row.records, row.counts, self._tracked.tiers, self._tracked.share, row.offsets)
        states = state_counts(self._rows[each].judged_as for each in below)
        return combined(states, len(below)) if below else WindowState.OPEN

    def _why(self, row: WindowRow, below: Sequence[WindowAddress]) -> str:
        """Return why a window has its present state."""
        if row.state is WindowState.INVALID and row.issue:
            return row.issue
        if row.state is WindowState.COMPLETE_WITH_ISSUE and row.bad:
            return row.bad
        if row.held:
            return row.held
        if row.state is WindowState.COMPLETE and row.accepted and self._counted(row, below) is WindowState.OPEN:
            return row.accepted
        if self._is_base(row.address, below):
            return why(row.records, row.counts, self._tracked.tiers, row.offsets)
        states = state_counts(self._rows[each].state for each in below)
        summary = ", ".join(f"{count} {each.value}" for each, count in sorted(states.items()))
        return f"of {len(below)} smaller windows: {summary}"

    def _write(self) -> None:
        """Log the windows' changes of state, write the changed rows, and move the watermarks."""
        new = [each for each in self._transitions.values() if each.before is not each.row.state]
        held = {at for at, row in self._touched.items() if row.held} | self._held.keys()
        held_rows = [self._rows[at] for at in held if self._rows[at].held != self._held.get(at)]
        post(self._connection, new, held_rows, self._now, self._by)
        write(self._connection, self._touched.values())
        watermarks.move(self._connection, self._tracked, self._touched.values())
        self._transitions = {each.row.address: each for each in new}

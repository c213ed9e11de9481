"""A lake in memory: sources, datasets made of them, and one report by events, decided by the real rules.

Which change wakes which dataset, and what a run records, follows orchestration/decisions.py and runs/build.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from zlib import crc32

from feed_assets.core.consistency import Lineage, mixed
from feed_assets.core.events import NO_NEW_DATA, Operation, Recorded, foreign_correlation, joined_correlation
from feed_assets.core.facts import Built, Facts
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import Consumer
from feed_assets.core.readiness import State, Verdict, decide
from feed_assets.core.update_choice import Choice, Inbox, choose
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.lake_shapes import REPORT, Shape

START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Update:
    """One update of a feed; `rows` is its data version."""

    id: str
    rows: str
    made_of: tuple[Pin, ...]
    correlation: str
    is_valid: bool = True


Choosing = Callable[[Consumer, Inbox], Choice]


@dataclass
class Lake:
    """The state of a lake. With `wakes` False, a dataset whose rows stay the same wakes no consumer."""

    shape: Shape
    choosing: Choosing = choose
    wakes: bool = True
    updates: dict[str, list[Update]] = field(default_factory=dict)
    events: list[Recorded] = field(default_factory=list)
    left: dict[int, Recorded] = field(default_factory=dict)
    """Events in the report's inbox."""
    due: dict[str, bool] = field(default_factory=dict)
    """Outputs to decide about. True: the change of an input put it there."""
    code: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[tuple[Pin, ...], frozenset[int]]] = field(default_factory=list)
    """Requested runs of the report: the pins that each reads, and the events that it consumes."""
    published: list[tuple[Pin, ...]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    now: datetime = START

    @property
    def made_of(self) -> dict[str, str]:
        return {**self.shape.made_of, REPORT: self.shape.reads}

    @property
    def sources(self) -> list[str]:
        return sorted({each for some in self.shape.made_of.values() for each in some} - self.shape.made_of.keys())

    # Actions of other teams and of people.

    def drop(self, source: str, rows: str) -> None:
        partition, id_ = _place(source), self._next()
        self._publish(source, Update(id_, rows, (), foreign_correlation(partition, id_)))

    def invalidate(self, name: str, at: int = -1) -> None:
        if valid := self.valid(name):
            valid[at % len(valid)].is_valid = False
            self._changed(name)

    def revalidate(self, name: str, at: int = -1) -> None:
        if gone := [each for each in self.updates.get(name, []) if not each.is_valid]:
            gone[at % len(gone)].is_valid = True
            self._changed(name)

    def change_code(self, name: str) -> None:
        self.code[name] = self.code.get(name, 0) + 1

    def by_hand(self, name: str) -> None:
        """Build from the newest updates, whatever is due."""
        pins = [self.newest(each) for each in self.made_of[name]]
        known = tuple(pin for pin in pins if pin)
        if len(known) < len(pins):
            return
        if name == REPORT and (why := self._mixed(known)):
            self.refused.append(why)
        elif name == REPORT:
            self._report(known, frozenset())
        else:
            self._make(name, known)

    # Actions of the sensors and their runs.

    def look(self, name: str) -> None:
        """Decide about an output if something woke it, and run it; a run of the report may begin later."""
        if name not in self.due:
            return
        verdict = self.decide(name)
        if verdict.state in (State.BUILD, State.REBUILD):
            self._ask(verdict) if name == REPORT else self._make(name, verdict.pins)
        elif verdict.state is State.CURRENT:
            self._acknowledge(name, verdict)
        else:
            self.due.pop(name)

    def decide(self, name: str) -> Verdict:
        output, inputs = _place(name), tuple(map(_place, self.made_of[name]))
        newest = {partition: pin for partition in inputs if (pin := self.newest(str(partition.feed)))}
        last = self.last(name)
        facts = Facts(START, newest=newest)
        if last:
            facts = replace(facts, outputs={output: Built(last.id, last.made_of)})
        need = need_of(output, inputs)
        if name == REPORT:
            need = replace(need, consumer=self.shape.consumer)
            choice = self.choosing(self.shape.consumer, self._inbox(inputs, newest, last))
            facts = replace(facts, choices={output: choice})
        return decide([need], facts)[0]

    def begin(self, at: int = -1) -> None:
        """Begin a requested run of the report, unless one of its updates has disappeared or an event was consumed."""
        if not self.asked:
            return
        pins, numbers = self.asked.pop(at % len(self.asked))
        if numbers <= self.left.keys() and all(self._is_valid(pin) for pin in pins):
            self._report(pins, numbers)

    def finish(self, random: Random) -> None:
        """Let every output look, in any order, until nothing is left to do."""
        names = [*self.made_of]
        for _ in range(400):
            if not self.due and not self.asked:
                return
            self.look(random.choice(names))
            self.begin()
        raise AssertionError(f"it does not come to rest: {self.due}")

    # Current state.

    def valid(self, name: str) -> list[Update]:
        return [each for each in self.updates.get(name, []) if each.is_valid]

    def last(self, name: str) -> Update | None:
        return max(self.valid(name), key=lambda each: each.id, default=None)

    def newest(self, name: str) -> Pin | None:
        last = self.last(name)
        return Pin(_place(name), last.id, last.rows) if last else None

    def _is_valid(self, pin: Pin) -> bool:
        return any(each.id == pin.update_id for each in self.valid(str(pin.partition.feed)))

    def lineage(self) -> Lineage:
        built = {(_place(n), each.id): each.made_of for n, some in self.updates.items() for each in some}
        return Lineage(built, {_place(name): pin for name in self.updates if (pin := self.newest(name))})

    def _mixed(self, pins: tuple[Pin, ...]) -> str | None:
        found, needed = self.lineage(), self.shape.consumer.needed
        groups = [[pin for pin in pins if pin.partition.feed in tables] for tables in needed.values()]
        return next((why for some in groups if (why := mixed(some, found.built_from, found.newest))), None)

    def _inbox(self, inputs, newest, last: Update | None) -> Inbox:
        seen: dict[tuple[str, str], list[tuple[Feed, int]]] = {}
        for event in self.events:
            seen.setdefault((event.correlation, ""), []).append((event.partition.feed, event.sequence))
        named = {
            (_place(n), each.id): Pin(_place(n), each.id, each.rows) for n in self.updates for each in self.valid(n)
        }
        consumed = {pin.partition: pin for pin in last.made_of} if last else {}
        events = [self.left[number] for number in sorted(self.left)]
        return Inbox(inputs, events, seen, frozenset(), newest, consumed, named, self.lineage())

    # Records that a run, or an acknowledgement, leaves.

    def _make(self, name: str, pins: tuple[Pin, ...]) -> None:
        rows = f"{name}{self.code.get(name, 0)}({','.join(pin.version for pin in pins)})"
        if name in self.shape.coarse:
            rows = f"{name}{crc32(rows.encode()) % 2}"
        correlation, _ = joined_correlation(map(self._correlation, pins))
        self._publish(name, Update(self._next(), rows, pins, correlation))

    def _publish(self, name: str, update: Update) -> None:
        before = self.last(name)
        self.updates.setdefault(name, []).append(update)
        is_same = bool(update.made_of) and before is not None and before.rows == update.rows
        self._tell(name, update.id, update.correlation, has_new_data=not is_same)
        self._changed(name)

    def _tell(self, name: str, marker: str, correlation: str, *, has_new_data: bool) -> None:
        context = {} if has_new_data else {NO_NEW_DATA: True}
        number, partition = len(self.events) + 1, _place(name)
        what = Operation.OVERWRITE, context, None, self.now
        event = Recorded(number, "", partition, marker, None, None, marker, correlation, *what)
        self.events.append(event)
        if name in self.shape.reads:
            self.left[number] = event
            self.due[REPORT] = True

    def _changed(self, name: str) -> None:
        if name in self.made_of:
            self.due.setdefault(name, False)
        self._wake_consumers(name)

    def _wake_consumers(self, name: str) -> None:
        for consumer, inputs in self.made_of.items():
            if name in inputs:
                self.due[consumer] = True

    def _acknowledge(self, name: str, verdict: Verdict) -> None:
        if name == REPORT and (within := self._within(verdict)):
            self._consume(within)
            return
        was_input = self.due.pop(name)
        if name == REPORT:
            return
        correlation, _ = joined_correlation(map(self._correlation, verdict.pins))
        last = self.last(name)
        if last and last.correlation != correlation and not self._was_told(name, correlation):
            self._tell(name, last.id, correlation, has_new_data=False)
        if was_input and self.wakes:
            self._wake_consumers(name)

    def _was_told(self, name: str, correlation: str) -> bool:
        return any((event.partition, event.correlation) == (_place(name), correlation) for event in self.events)

    def _correlation(self, pin: Pin) -> str:
        """Return the last correlation id that was reported for an update."""
        mine = [each for each in self.events if (each.partition, each.marker) == (pin.partition, pin.update_id)]
        return mine[-1].correlation

    def _ask(self, verdict: Verdict) -> None:
        if not self.asked:  # One run is in progress at a time.
            self.asked.append((verdict.pins, self._within(verdict)))

    def _within(self, verdict: Verdict) -> frozenset[int]:
        slices = verdict.due.slices if verdict.due else ()
        inside = [
            number
            for number, event in self.left.items()
            if any(event.partition == piece.partition and event.interval.within(piece.interval) for piece in slices)
        ]
        return frozenset(inside)

    def _report(self, pins: tuple[Pin, ...], numbers: frozenset[int]) -> None:
        self._consume(numbers)
        self.published.append(pins)
        self.updates.setdefault(REPORT, []).append(Update(self._next(), f"{len(self.published)}", pins, "report"))
        self._changed(REPORT)

    def _consume(self, numbers: frozenset[int]) -> None:
        self.left = {number: event for number, event in self.left.items() if number not in numbers}

    def _next(self) -> str:
        self.now += timedelta(seconds=1)
        return update_id(self.now)


def _place(name: str) -> Partition:
    return Partition(Feed.parse(name))

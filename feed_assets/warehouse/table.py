"""Loading of one topic into its table: signals are read, collected in groups, and their chunks are loaded."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from feed_assets.core.errors import (
    InvalidEvent,
    InvalidShape,
    KeyStrayed,
    LoadFailed,
    LogTrimmed,
    NotMigratable,
    NoTopic,
    OffsetsMissing,
)
from feed_assets.core.topic_unions import UnionPart, named
from feed_assets.core.topics import DEBEZIUM, Topic, TopicHistory, signals_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.home import say
from feed_assets.kafka import signal_message, topic_reader
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.lag import ends, why_unsignalled
from feed_assets.kafka.messages import Message
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse import loader_tables, union_state
from feed_assets.warehouse.conflicts import TableChange, change
from feed_assets.warehouse.load import LoadContext, fitting, load
from feed_assets.warehouse.load_groups import Buffer, LoadGroup, Signalled, runs
from feed_assets.warehouse.load_progress import LoadProgress
from feed_assets.warehouse.load_state import Position, TopicState
from feed_assets.warehouse.message_history import with_history
from feed_assets.warehouse.order_column import with_order
from feed_assets.warehouse.shapes import Shape, shape_of
from feed_assets.warehouse.statements import STATE
from feed_assets.warehouse.target import Target

ANSWER_SECONDS = 5
"""Seconds for the broker to answer. A stopping loader waits no longer than this; a running loader tries again."""

_READ_BYTES = 16 << 20
"""Bytes of signals that are read at once."""


@dataclass(frozen=True)
class Loading(Target):
    """A warehouse, with access to the topics and chunks for its tables."""

    clients: Clients
    schemas: Schemas
    board: Blackboard


class TopicTable:
    """The warehouse table that a topic is loaded into. Loading continues from the state that the last load stored.

    A topic may have two tables: one with the latest row of each key, and its history. Each has a state of its own.
    The topics of a union share the state of its table, and each is loaded in transactions of its own.
    """

    def __init__(
        self,
        loading: Loading,
        holder: str,
        name: str,
        of: Topic | TopicHistory,
        state: TopicState,
        *,
        part: UnionPart | None = None,
        has_open_snapshot: bool = False,
    ) -> None:
        self._loading, self.name, self.state, self._part = loading, name, state, part
        self._is_history = isinstance(of, TopicHistory)
        self._topic = of.rules if isinstance(of, TopicHistory) else of
        self.topic = part.topic if part else of.topic if isinstance(of, TopicHistory) else name
        days = loading.warehouse.deleted_days
        self._place = LoadContext(
            loading.engine,
            loading.board,
            holder,
            days,
            self._topic.conflicts,
            part=part,
            # A snapshot may be open whose markers are declared no more. Its dead letters count, too.
            has_snapshots=has_open_snapshot or self._topic.snapshot_markers is not None,
        )
        self._buffer = Buffer(loading.warehouse.chunks, loading.warehouse.seconds)
        self._early: list[Signalled] = []
        """Signals that a history holds back: deletes before the first value, whose schema has the columns."""
        self._after = {number: each.signal_offset for number, each in self._positions.items()}
        self._is_anew = self._has_said_nothing = self._is_within = False
        self.loads, self.progress = 0, LoadProgress()

    @property
    def _positions(self) -> Mapping[int, Position]:
        """Return the stored positions of the topic."""
        return union_state.positions_of(self.state, self._part)

    @property
    def waiting(self) -> int:
        """Return the number of signals that were read but are not loaded yet."""
        return len(self._buffer.signals) + len(self._early)

    def look(self, now: float) -> bool:
        """Read some new signals of the topic's chunks, and load the chunks that are due.

        Return True if there are more signals to read now.
        """
        is_complete = self._read(now, self._buffer.room)
        return not (self._load(self._due(now)) and is_complete)

    def load_all(self) -> None:
        """Load all signalled chunks now, without waiting for more."""
        is_done = False
        while not is_done:
            is_complete = self._read(0, self._buffer.room)
            is_done = self._load(self._due(inf if is_complete else 0)) and is_complete

    def plan(self) -> Iterator[TableChange]:
        """Yield the change that the table needs, for each new schema in chunks that are not loaded yet."""
        while not self._read(0, self._loading.warehouse.chunks):
            pass
        for each in runs(self._buffer.signals):
            shape = self._shape_of(each.schema_id)
            table_change = change(
                self._loading.engine, self.name, self.state, each.schema_id, shape, conflicts=self._topic.conflicts
            )
            self.state = table_change.state
            if table_change.statements:
                yield table_change

    def _read(self, now: float, limit: int) -> bool:
        """Read up to `limit` signals of the topic's chunks. Return whether no more signals exist."""
        try:
            page = topic_reader.read(
                self._loading.clients,
                signals_of(self.topic),
                self._after,
                limit=limit,
                size=_READ_BYTES,
                seconds=ANSWER_SECONDS,
            )
        except NoTopic:  # The topic was never signalled.
            self._say_nothing()
            return True
        except LogTrimmed as error:
            self._begin_anew(error)
            return False
        positions = self._positions
        self._refuse_partitions(page)
        for partition, message in page.messages:
            if (signal := self._signal(partition, message)) is None:
                continue
            self._refuse_another(signal)
            position = positions.get(partition)
            if position is None or signal.next_offset > position.next_offset:
                self._buffer.add(signalled := Signalled(signal, message.offset + 1), now)
                self.progress.add(signalled, message.moment / 1000)
        self._after = page.after
        if page.is_complete:  # If the topic was recreated, its signals have raised an error above.
            self._refuse_beyond()
        if page.is_complete and not (page.messages or positions or self.waiting):
            self._say_nothing()
        return page.is_complete

    def _signal(self, partition: int, message: Message) -> Signal | None:
        """Return the signal in a message. For a message that is not a valid signal, print a line and return None.

        If a signal was lost in this way, the gap in the offsets before the next signal reveals it.
        """
        try:
            signal = Signal.of(message.value or b"")
            signal_message.check_place(signal, self.topic, partition)
        except InvalidEvent as error:
            place = f"{signals_of(self.topic)}/{partition} offset {message.offset}"
            say(f"warehouse {self._loading.name}: {place} is skipped, because it is not a signal: {error}")
            return None
        return signal

    def _say_nothing(self) -> None:
        """Print once that there is nothing to load, and why."""
        if not self._has_said_nothing:
            self._has_said_nothing = True
            why = why_unsignalled(self._loading.clients, self.topic)
            say(f"warehouse {self._loading.name}: nothing of {self.name} can be loaded yet: {why}")

    def _refuse_another(self, signal: Signal) -> None:
        """Raise LogTrimmed if a signal is about a topic that was recreated with the same name.

        Otherwise the loader would skip this signal, because its stored positions belong to the old topic.
        """
        if union_state.id_of(self.name, self.state, self._part) in (None, signal.topic_id):
            return
        option = f" --topic {self.topic}" if self._part and not self._topic.newest_by else ""
        raise LogTrimmed(
            f"{self.topic} was deleted and recreated: expected the topic from which its table was loaded, "
            "because offsets begin again. Make the table anew: "
            f"`feed-assets warehouse reset {self._loading.name} {self.name}{option} --apply`."
        )

    def _refuse_partitions(self, page: topic_reader.ReadMessages) -> None:
        """Raise LoadFailed for Debezium's marks in several partitions: only one has the first, and one the last.

        A partition without signals counts, too: it may have rows that moved there.
        """
        if self._topic.snapshot_markers != DEBEZIUM:
            return
        count = len(page.after)
        with suppress(NoTopic):  # Its signals are still loaded.
            count = max(count, len(ends(self._loading.clients, self.topic)) if page.messages else 0)
        if count > 1:
            raise LoadFailed(
                f"{self.topic} has {count} partitions, and snapshot_markers is {DEBEZIUM!r}: expected one partition, "
                "because Debezium marks the first and the last row of a snapshot once, and not in each partition. "
                "Remove snapshot_markers, or have the producer mark each partition, with header:NAME."
            )

    def _refuse_beyond(self) -> None:
        """Raise LoadFailed if a stored position is after the topic's end, which would skip messages.

        Check this once per session.
        """
        if self._is_within or not (positions := self._positions):
            return
        try:
            end_offsets = ends(self._loading.clients, self.topic)
        except NoTopic:
            return
        for partition, position in positions.items():
            if position.next_offset > (end := end_offsets.get(partition, 0)):
                raise LoadFailed(
                    f"{STATE}.positions has {self._named(partition)} at offset {position.next_offset}: expected at "
                    f"most {end}, where the topic ends. Somebody altered it, or the topic was recreated. "
                    f"{loader_tables.reset_advice(self.name)}"
                )
        self._is_within = True

    def _due(self, now: float) -> list[LoadGroup]:
        """Return the groups of chunks to load now. A history without a table waits for the first value.

        Another topic of a union may bring it. A table with the latest rows skips deletes before it.
        """
        due = self._buffer.due(now)
        has_columns = self.state.shape is not None
        if not self._is_history or (has_columns and not self._early):
            return due
        signals = [*self._early, *(each for group in due for each in group.signals)]
        has_columns = has_columns or any(each.schema_id is not None for each in due)
        self._early = [] if has_columns else signals
        return [*runs(signals)] if has_columns else []

    def _load(self, due: Sequence[LoadGroup]) -> bool:
        """Load groups of chunks in order, as many as fit into each transaction.

        Return False if the signals must be read again before the rest can be loaded.
        """
        while due:
            try:
                count = fitting(
                    self._place.engine, self.name, self.state, due, self._shape_of, conflicts=self._topic.conflicts
                )
                self.state = load(self._place, self.name, self.state, due[:count], self._shape_of)
            except OffsetsMissing as error:
                self._begin_anew(error)
                return False
            except (NotMigratable, KeyStrayed) as error:
                raise type(error)(f"{self.name}: {error} {self._anew(error)} {self._without()}") from error
            except LoadFailed as error:
                if type(error) is not LoadFailed or self._topic.conflicts != "stop":
                    raise
                raise LoadFailed(f"{error} If the value of a row is the cause: {self._without()}") from error
            self.progress.commit(due[:count])
            due = due[count:]
            self.loads += 1
        return True

    def _anew(self, error: NotMigratable | KeyStrayed) -> str:
        """Return the advice to make the table anew, with only rows from now on.

        With all rows of the topic, the load would fail again, because rows of the old schema are first.
        """
        command = f"feed-assets warehouse reset {self._loading.name} {self.name} --from stop --apply"
        once = ", once no key among them is from two partitions" if isinstance(error, KeyStrayed) else ""
        return f"`{command}` makes the table anew, with only these and later rows{once}."

    def _without(self) -> str:
        """Return the advice to continue without the rows that the table cannot take."""
        command = f"feed-assets warehouse load {self._loading.name} {self.name} --once --refuse"
        return (
            f"`{command}` continues without the rows that it cannot take: they are in {STATE}.refused. With "
            "conflicts='refuse' the topic always does so."
        )

    def _begin_anew(self, error: LogTrimmed | OffsetsMissing) -> None:
        """Arrange that all signals are read again from the beginning, because their topic may have been recreated.

        Signals of loaded chunks are then skipped. Raise the error if this was already tried.
        """
        if self._is_anew:
            raise error
        say(f"warehouse {self._loading.name}: reads the signals of {self.name} from their beginning: {error}")
        self._is_anew, self._after = True, {}
        self._buffer.signals.clear()
        self._early.clear()
        self.progress.clear()

    def _shape_of(self, schema_id: int | None) -> Shape | None:
        """Return the shape of a schema's rows. Return None for None, the schema of a group with only tombstones."""
        if schema_id is None:
            return None
        try:
            schema, topic = self._loading.schemas.get(schema_id), self._topic
            shape = shape_of(
                schema,
                topic.key,
                is_debezium=topic.has_envelope_schemas,
                masks=topic.masks,
                flatten=topic.flatten,
            )
        except Poison as error:
            raise InvalidShape(
                f"{self.name} cannot be loaded: {error}. Put the schema back into the registry."
            ) from error
        shape = with_order(shape, self._topic.newest_by) if self._topic.newest_by else shape
        shape = with_history(shape, has_snapshots=self._place.has_snapshots) if self._is_history else shape
        return union_state.with_topic(shape, self._part) if self._part else shape

    def _named(self, partition: int) -> str:
        """Return the name of a partition of the topic in messages about the table."""
        return f"{self.name}/{named(self.topic, partition) if self._part else partition}"

"""Loading of several topics into one table. Each topic has its own signals, positions and transactions."""

from collections.abc import Iterator

from feed_assets.core.topic_unions import TopicUnion
from feed_assets.warehouse import union_state
from feed_assets.warehouse.conflicts import TableChange
from feed_assets.warehouse.load_progress import LoadProgress
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.table import Loading, TopicTable


class UnionTable:
    """The warehouse table that several topics are loaded into. They share its stored state.

    A load has chunks of one topic. A topic that cannot continue stops the table.
    """

    def __init__(
        self,
        loading: Loading,
        holder: str,
        name: str,
        union: TopicUnion,
        state: TopicState,
        *,
        has_open_snapshot: bool = False,
    ) -> None:
        self.name, self._state = name, union_state.with_topics(name, state, union.topics)
        parts = union_state.parts(name, self._state, union.topics, topic_in_key=union.topic_in_key)
        self._tables = [
            TopicTable(
                loading,
                holder,
                name,
                union.source_of(each.topic),
                self._state,
                part=each,
                has_open_snapshot=has_open_snapshot,
            )
            for each in parts
        ]

    @property
    def loads(self) -> int:
        """Return the number of committed loads."""
        return sum(each.loads for each in self._tables)

    @property
    def progress(self) -> LoadProgress:
        """Return the sum of the topics' figures."""
        return LoadProgress.total(each.progress for each in self._tables)

    @property
    def waiting(self) -> int:
        """Return the number of signals that were read but are not loaded yet."""
        return sum(each.waiting for each in self._tables)

    def look(self, now: float) -> bool:
        """Read some new signals of each topic, and load the chunks that are due. Return whether there are more."""
        has_more = False
        for each in self._turns():
            has_more = each.look(now) or has_more
        return has_more

    def load_all(self) -> None:
        """Load all signalled chunks now, without waiting for more."""
        for each in self._turns():
            each.load_all()

    def plan(self) -> Iterator[TableChange]:
        """Yield the change that the table needs, for each new schema in chunks that are not loaded yet."""
        for each in self._turns():
            yield from each.plan()

    def _turns(self) -> Iterator[TopicTable]:
        """Yield each topic with the state that the one before has left. After an error, the table is not used again."""
        for each in self._tables:
            each.state = self._state
            yield each
            self._state = each.state

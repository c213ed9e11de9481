"""A loader of one topic into one warehouse."""

from collections.abc import Iterable

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load import LoadContext, ShapeOf, fitting, load
from feed_assets.warehouse.load_groups import Signalled, runs
from feed_assets.warehouse.load_state import TopicState
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.stream import Stream

HOLDER = "the test"


class Loader:
    """Loads a topic into a warehouse, from its known state on."""

    def __init__(self, engine: Engine, board: Blackboard) -> None:
        self.engine, self.place = engine, LoadContext(engine, board, HOLDER, 7)

    def known(self, stream: Stream) -> TopicState:
        with opened(self.engine) as connection:
            return load_state.read(connection, stream.name)

    def load(self, stream: Stream, *signals) -> TopicState:
        """Load these signals, or all new ones of the topic; then compare the table with the model."""
        known = self.known(stream)
        nexts = {number: each.next_offset for number, each in known.positions.items()}
        new = [each for each in stream.signals if each.signal.next_offset > nexts.get(each.signal.partition, 0)]
        return load_signals(self.place, stream.name, known, signals or new, stream.shape)

    def ask(self, question: str) -> list:
        with opened(self.engine) as connection:
            return connection.execute(question)


def load_signals(
    place: LoadContext, name: str, state: TopicState, signals: Iterable[Signalled], shape_of: ShapeOf
) -> TopicState:
    """Load signals in as few transactions as the loader does. Return the table's state after them."""
    groups = [*runs(signals)]
    while groups:
        count = fitting(place.engine, name, state, groups, shape_of, conflicts=place.conflicts)
        state = load(place, name, state, groups[:count], shape_of)
        groups = groups[count:]
    return state

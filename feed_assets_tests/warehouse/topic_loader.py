"""A loader of one topic into one warehouse."""

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load import LoadContext, fitting, load
from feed_assets.warehouse.load_groups import runs
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
        groups = [*runs(signals or new)]
        while groups:
            count = fitting(self.engine, stream.name, known, groups, stream.shape)
            known = load(self.place, stream.name, known, groups[:count], stream.shape)
            groups = groups[count:]
        return known

    def ask(self, question: str) -> list:
        with opened(self.engine) as connection:
            return connection.execute(question)

"""Both ends of copies into a place, which all threads of a process share."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock, Semaphore

from feed_assets.core.errors import TurnLost
from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import place_copies
from feed_assets.replication import replicas
from feed_assets.replication.bandwidth import Bandwidth
from feed_assets.replication.copy_events import CopyEvents
from feed_assets.replication.places import Place
from feed_assets.replication.turn import Turn
from feed_assets.runs.services import Services

GUARD = "_invalidated-"
"""Beginning of the name of an empty object that makes the count of every manifest wrong, as `feed invalidate` does."""


@dataclass(frozen=True)
class CopyEnds:
    """Both ends of a copy: the services with the blackboards of the source, the place, and the turn to write there."""

    services: Services
    place: Place
    turn: Turn
    slots: Semaphore = field(init=False)
    """One for each file that may be copied at the same time, of all updates together: their parts are in memory."""
    bandwidth: Bandwidth = field(init=False)

    checked: Future[None] = field(init=False, default_factory=Future[None])
    """Result of the look at the place's mark, or its error. `checking` is held meanwhile."""
    checking: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        """Make what all threads share."""
        object.__setattr__(self, "slots", Semaphore(self.place.center.at_once))
        object.__setattr__(self, "bandwidth", Bandwidth(self.place.center.bandwidth))

    def source_of(self, partition: Partition) -> Blackboard:
        """Return the blackboard to copy a partition from."""
        return self.services.board_of(partition.feed)

    @property
    def board(self) -> Blackboard:
        """Return the blackboard to copy to."""
        return self.place.board

    def guard(self, path: str) -> str:
        """Return the key of the guard that this turn puts into an update's folder."""
        return f"{path}/{GUARD}{self.turn.holder}"

    def sent(self, size: int) -> None:
        """Wait as long as the bandwidth asks for after some bytes. Raise TurnLost."""
        self.bandwidth.take(size, self.turn.keep)

    def read(self, _size: int) -> None:
        """Keep the turn between bytes that are compared. Raise TurnLost."""
        self.turn.keep()

    def events_of(self, partition: Partition) -> CopyEvents:
        """Return the write events for the copies of a partition."""
        return CopyEvents(self.place, self.source_of(partition))

    def set_removed(self, partition: Partition, update_id: str) -> None:
        """Record that a copy is removed, if the ledger has it."""
        now = self.services.now()
        with self.services.ledger.write() as connection:
            replicas.set_state(connection, self.place.name, partition, update_id, state=replicas.REMOVED, now=now)

    def sweep(self, partition: Partition, update_id: str) -> None:
        """Remove all files of a copy that is not visible, and record it."""
        self.board.sweep(Update(partition, update_id, ()).path)
        self.set_removed(partition, update_id)

    def set_withdrawn(self, partition: Partition, update_id: str) -> None:
        """Record that a copy is withdrawn, if the ledger has it. Its event is in the same transaction: so it is one.

        Raise TurnLost if another process has the turn. It may have published the copy again, so it looks once more.
        """
        now, lost = self.services.now(), None
        with self.services.ledger.change() as connection:
            try:
                self.turn.check(connection)
            except TurnLost as error:
                lost = error
                place_copies.mark_gone(connection, self.place.name, partition, update_id)
            else:
                before = replicas.find(connection, self.place.name, partition, update_id)
                self.events_of(partition).withdrawn(connection, before, now)
                replicas.set_state(connection, self.place.name, partition, update_id, state=replicas.WITHDRAWN, now=now)
        if lost:
            raise lost

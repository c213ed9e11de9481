"""The same with the ledger on PostgreSQL: tasks, turns, copies, their overview and the end of a place."""

import pytest

from feed_assets.ledger.database import open_ledger
from feed_assets.replication import place_overview, turn
from feed_assets.replication.transitions_read import forget_place
from feed_assets.replication.turn import Turn
from feed_assets_tests.replication.two_ends import DAY, Ends, history, place_on, visible


@pytest.fixture
def ends(local_board, local_place, postgresql):
    """Return two local ends with a ledger on PostgreSQL."""
    ledger = open_ledger(postgresql.database())
    yield Ends(local_board, place_on(local_place, keep=2), ledger)
    ledger.engine.dispose()


def test_updates_are_copied_listed_and_forgotten(ends):
    updates = [ends.publish(files={"n.csv": str(number).encode()}) for number in range(3)]
    assert (ends.replicate().done, ends.waiting()) == (3, [])
    assert [*history(ends.place.board)] == [updates[2].id, updates[1].id]
    ends.invalidate(updates[2])
    last = ends.publish()
    assert ends.settle().failed == 0
    assert visible(ends.place.board) == visible(ends.source)

    ends.publish()
    turn.pause(ends.ledger, "b", "disk", "ann", ends.clock())
    assert ends.replicate().is_busy
    assert not Turn(ends.ledger, "b", ends.clock).take()
    with ends.ledger.read() as connection:
        (copies,) = place_overview.overview(connection, "b", ["shop/*"], ends.clock())
        notes = place_overview.notes(connection, place_overview.updates.newest(connection, [DAY])[DAY])
    assert (copies.partitions, copies.complete, copies.waiting, copies.waiting_bytes) == (1, 0, 1, last.size)
    assert notes[0].startswith("the data center b waits for its copy since 2026-02-01")
    with ends.ledger.write() as connection:
        assert forget_place(connection, "b") == 4

"""Two processes that copy into one place: one has the turn, and the other publishes nothing that differs."""

from contextlib import suppress
from datetime import timedelta

import pytest

from feed_assets.core.errors import TurnLost
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.replication import turn
from feed_assets.replication.copy_ends import GUARD
from feed_assets.replication.turn import LASTS, Turn
from feed_assets.runs.sync import sync
from feed_assets_tests.replication.two_ends import DAY, FILES, OTHER, Killed, history, place_on, stop, visible, wired


def test_one_process_at_a_time_copies_and_another_one_goes_on_after_it_died(ends):
    ends.publish()
    dead = Turn(ends.ledger, "b", ends.clock)
    assert dead.take()

    assert ends.replicate().is_busy
    assert visible(ends.place.board) is None
    ends.clock.pass_(seconds=LASTS.total_seconds())
    assert ends.replicate().done == 1
    with pytest.raises(TurnLost), ends.ledger.read() as connection:
        dead.check(connection)


def test_a_paused_place_gets_nothing_not_even_a_copy_in_progress(ends):
    ends.publish()
    ends.on_step = lambda step: (
        turn.pause(ends.ledger, "b", "disk", "ann", ends.clock()) if step == "file copied" else None
    )
    assert ends.replicate().is_busy
    assert visible(ends.place.board) is None
    assert ends.replicate().is_busy
    with ends.ledger.read() as connection:
        assert turn.why_paused(connection, "b") == "disk"

    ends.on_step = lambda _: None
    turn.pause(ends.ledger, "b", None, "ann", ends.clock())
    assert ends.replicate().done == 1
    assert visible(ends.place.board) == visible(ends.source)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_process_without_its_turn_cannot_publish_what_was_withdrawn(ends, is_begun):
    update = ends.publish()
    if is_begun:  # Then the stalled attempt has a guard of its own, and removes no other one.
        ends.stopped_at("file copied")

    def withdrawn() -> None:
        ends.invalidate(update)
        ends.replicate()

    ends.stalled("before the manifest", withdrawn)

    assert visible(ends.place.board) is None
    assert ends.place.board.get(f"{update.path}/_SUCCESS") == b"2", "it has put its manifest, which is wrong"
    ends.settle()
    assert visible(ends.place.board) is None


def test_a_process_without_its_turn_puts_no_manifest(ends):
    ends.publish()
    ends.stalled("files recorded", Turn(ends.ledger, "b", ends.clock).take_or_raise)
    assert visible(ends.place.board) is None
    assert ends.settle().failed == 0
    assert visible(ends.place.board) == visible(ends.source)


@pytest.mark.parametrize("files", [OTHER, {"part-0.csv": b"id\n7\n8\n", "part-1.csv": b"", "part-2.csv": b"1"}])
@pytest.mark.parametrize("stops", ["part-1.csv", "files recorded", "before the manifest", "guard removed", "manifest"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_two_attempts_never_publish_a_mix_of_two_contents(ends, files, stops, is_begun):
    board, wire = wired(ends.place.board)
    ends.place, update, seen = place_on(board), ends.publish(), set[str]()
    if is_begun:
        ends.stopped_at("file copied")
    whole = [None, (update.id, FILES), (update.id, dict(files))]

    def look(_step: str) -> None:
        seen.add(str(visible(ends.place.board)))
        assert visible(ends.place.board) in whole

    def rewritten() -> None:
        """Let the source have other files under the id, and a second process copy them, as far as `stops`."""
        ends.rewrite(update, files)
        sync(ends.source, ends.ledger, DAY, ends.clock())
        ends.on_step = lambda step: look(step) or stop(step, stops)
        wire.before = lambda operation, key: stop(key.rpartition("/")[2], stops) if operation == "put_chunks" else None
        with suppress(Killed):
            ends.replicate()
        ends.on_step, wire.before = look, lambda *_: None

    ends.stalled("before the manifest", rewritten)
    look("")
    ends.on_step = look
    ends.settle()
    assert visible(ends.place.board) == (update.id, dict(files))
    assert len(seen) > 1


def test_without_the_guard_a_mix_is_published(ends, monkeypatch):
    put = Blackboard.put
    monkeypatch.setattr(Blackboard, "put", lambda board, key, data: None if GUARD in key else put(board, key, data))
    with pytest.raises(AssertionError):
        test_two_attempts_never_publish_a_mix_of_two_contents(ends, OTHER, "part-1.csv", is_begun=False)


def test_a_turn_is_renewed_while_a_long_copy_goes_on(ends):
    update = ends.publish()

    def on_step(step: str) -> None:
        if step == "file copied":
            ends.clock.pass_(seconds=(LASTS - timedelta(seconds=1)).total_seconds())

    ends.on_step = on_step
    assert ends.replicate().done == 1
    assert [*history(ends.place.board)] == [update.id]

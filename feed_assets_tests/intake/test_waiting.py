"""Unpublished events are visible: how many, since when and why; publication is retried until it succeeds."""

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.intake import serve
from feed_assets.intake.spool import Spool
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.receivers import Partner, door_of, event, lines, listening, numbers, published


class Away:
    """A store that does not answer until it is restored."""

    def __init__(self) -> None:
        self.is_back = False

    def __call__(self) -> None:
        if not self.is_back:
            raise BlackboardUnavailable("no answer")


def waits(partner: Partner) -> dict:
    """Return the spool's part of `/health`."""
    return partner.get("/health").json()["spool"]


def until(partner: Partner, is_so: Callable[[dict], bool]) -> dict:
    for _ in range(1500):
        if is_so(said := waits(partner)):
            return said
        time.sleep(0.02)
    raise AssertionError(f"it stays as it is: {said}")


def metric(partner: Partner, name: str) -> float:
    (found,) = re.findall(rf"^feed_assets_receiver_{re.escape(name)} (\S+)$", partner.get("/metrics").text, re.M)
    return float(found)


def test_an_unavailable_blackboard_is_reported_until_all_is_published(local_board, ledger, tmp_path, caplog):
    away = Away()
    board = Counting.around(local_board, {"put": away, "create": away}).board
    with listening(door_of(board, ledger, tmp_path / "spool"), flush_seconds=0) as partner:
        assert partner.post(lines(event(1))).ok
        said = until(partner, lambda spool: spool["failed"])
        assert "waits: no answer" in caplog.text
        assert "no answer" not in partner.get("/health").text, "a stranger"
        assert (said["bytes"] > 0, partner.get("/health").status_code) == (True, 200), "events are taken all the same"
        assert partner.post(lines(event(2))).ok
        assert metric(partner, 'flushes_total{outcome="failed"}') >= 1
        assert metric(partner, "spool_seconds") > 0
        away.is_back = True
        assert until(partner, lambda spool: not spool["bytes"]) == {"bytes": 0, "seconds": 0, "failed": False}
    assert numbers(published(local_board)) == [1, 2]


def test_a_failed_flush_is_reported_and_flushing_continues(local_board, ledger, tmp_path, monkeypatch, caplog):
    """Raise any error: if the flush task ended, events would be accepted and not published."""
    with listening(door_of(local_board, ledger, tmp_path / "spool"), flush_seconds=0) as partner:
        with monkeypatch.context() as patch:
            patch.setattr(Spool, "seal", lambda *_, **__: [][0])
            assert partner.post(lines(event(1))).ok
            until(partner, lambda spool: spool["failed"])
            assert "IndexError" in caplog.text
        assert not until(partner, lambda spool: not spool["bytes"])["failed"]
        assert numbers(published(local_board)) == [1]


def test_a_stop_during_a_flush_flushes_once_more(door, monkeypatch):
    asked = []

    async def ended_during_the_first_look() -> None:
        loop, ending = asyncio.get_running_loop(), asyncio.Event()

        def look(_, seconds):
            asked.append(seconds)
            loop.call_soon_threadsafe(ending.set)

        monkeypatch.setattr(serve, "_look", look)
        await serve._keep_flushing(door, 60, ending)

    monkeypatch.setattr(serve, "LOOK_SECONDS", 0.01)
    asyncio.run(ended_during_the_first_look())
    door.receiver.spool.close()
    assert asked == [60, 0]


def test_the_age_of_a_segment_counts_from_its_first_frame(door, monkeypatch):
    """Measure the age of a segment from its first frame, not from its last."""
    with listening(door) as partner:
        partner.post(lines(event(1)))
        later = time.monotonic() + 900
        monkeypatch.setattr("feed_assets.intake.spool.monotonic", lambda: later)
        partner.post(lines(event(2)))
        assert waits(partner)["seconds"] == pytest.approx(900, abs=60)
        assert metric(partner, "spool_seconds") == pytest.approx(900, abs=60)
        monkeypatch.undo()


def test_a_segment_removed_while_the_spool_is_measured_is_ignored(door, monkeypatch):
    glob = Path.glob

    def with_one_gone(folder, pattern):
        yield folder / "gone.spool"
        yield from glob(folder, pattern)

    with listening(door) as partner:
        partner.post(lines(event(1)))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "glob", with_one_gone)
            spool = door.receiver.spool
            spool.seal()
            assert (len(spool.sealed()), spool.size > 0, spool.oldest_seconds() >= 0) == (1, True, True)


@pytest.fixture
def door(local_board, ledger, tmp_path):
    return door_of(local_board, ledger, tmp_path / "spool")

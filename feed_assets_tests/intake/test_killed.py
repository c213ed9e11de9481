"""A receiver killed by SIGKILL under load: every acknowledged event is there once, and one request for each key."""

import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import requests

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.receivers import (
    LINES,
    Partner,
    Process,
    event,
    free_port,
    lines,
    partner_of,
    published,
    started,
)

CLIENTS = 4


class Load:
    """Clients that send batches of numbered events until stopped."""

    def __init__(self, partner: Partner) -> None:
        self._partner, self._ended, self._lock, self._next = partner, threading.Event(), threading.Lock(), 0
        self.acknowledged: list[int] = []
        self.repeated: list[int] = []
        """Events sent with a key: each was acknowledged in the end."""
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(CLIENTS)]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop, and wait until every request with a key is answered."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, with_key: bool) -> None:
        while not self._ended.is_set():
            with self._lock:
                mine = [*range(self._next, self._next + 3)]
                self._next += 3
            self._send(mine, {**LINES, "Idempotency-Key": str(mine[0])} if with_key else LINES, with_key)

    def _send(self, mine: list[int], headers, with_key: bool) -> None:
        data = body(mine)
        while True:
            time.sleep(0.01)  # A load that leaves the receiver the processor to start again on.
            try:
                answer = self._partner.post(data, headers=headers)
            except requests.RequestException:
                answer = None
            if answer is not None and answer.ok:
                with self._lock:
                    (self.repeated if with_key else self.acknowledged).extend(mine)
                return
            assert answer is None or answer.status_code in (409, 503), answer.text
            if not with_key:
                return


def body(numbers: list[int]) -> bytes:
    """Return events of this hour and of earlier ones."""
    now = datetime.now(UTC)
    hours = [(now - timedelta(hours=5 * at)).strftime("%Y-%m-%dT%H:%M:%SZ") for at in range(len(numbers))]
    return lines(*(event(number, at) for number, at in zip(numbers, hours, strict=True)))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def flushing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set frequent flushes, so that kills hit them."""
    monkeypatch.setenv("FEED_ASSETS_RECEIVER_FLUSH_SECONDS", "0.1")


def ended(process: Process) -> None:
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60) == 0 or process.process.returncode == -signal.SIGTERM


def blackboard_of(home: Path) -> Blackboard:
    return Blackboard.open((home / "blackboard").as_uri())


@pytest.mark.parametrize("kills", seeds(10, 100, in_make_test=3))
@pytest.mark.usefixtures("flushing")
def test_each_acknowledged_event_is_there_once_whenever_the_receiver_is_killed(home, spool, kills):
    port = free_port()
    load, process = Load(partner_of(home, port)), started(home, spool, port)
    process.wait()
    load.begin()
    for seed in kills:
        time.sleep(Random(seed).uniform(0.05, 0.8))  # noqa: S311
        process.kill()
        process = started(home, spool, port)
        process.wait()
    load.end()
    ended(process)
    found = Counter(each["n"] for each in published(blackboard_of(home)))
    assert load.acknowledged
    assert load.repeated
    assert lost(found, load) == []
    assert [number for number, times in found.items() if times > 1] == []
    assert [*spool.glob("*.spool")] == []


def lost(found: Counter[int], load: Load) -> list[int]:
    return [number for number in load.acknowledged + load.repeated if number not in found]


@pytest.mark.parametrize("early", ["answer", "remove"])
@pytest.mark.usefixtures("flushing")
def test_a_receiver_that_answers_or_removes_too_early_loses_events_and_that_is_seen(home, spool, early):
    port = free_port()
    load, process = Load(partner_of(home, port)), started(home, spool, port, early)
    process.wait()
    answer = load._partner.post(body([1, 2, 3]))
    assert answer.ok
    load.acknowledged += [1, 2, 3]
    if early == "remove":
        process.process.wait(60)
    process.kill()
    process = started(home, spool, port)
    process.wait()
    ended(process)
    assert lost(Counter(each["n"] for each in published(blackboard_of(home))), load) == [1, 2, 3]

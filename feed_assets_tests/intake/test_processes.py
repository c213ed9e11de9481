"""Receivers as separate processes: on a full disk, under too much load, and two on one blackboard."""

import gzip
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.receivers import (
    ARRAY,
    LINES,
    MEN,
    Partner,
    Process,
    event,
    free_port,
    lines,
    numbers,
    partner_of,
    published,
    started,
)
from feed_assets_tests.support.servers import peak_mb

SMALL_DISK = (
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"',
)
"""Run a command with a folder on a temporary disk; without root, if the kernel allows it."""

BLOB, SMALL = "x" * 20_000, 10_000
BOMBS_MB, LARGE_MB = (128 << 20) / 1e6, 400
"""Allowed MB above a receiver at rest: 8 small bodies that unpack to much take less, 24 large bodies of events 240."""

MIB = 1 << 20
BOMBS = {
    "blank lines": (b"", b"\n", 16 * MIB, LINES),
    "short lines": (b"", b"1\n", 8 * MIB, LINES),
    "as many lines as may be": (b"", b" " * 150 + b"\n", 100_000, LINES),
    "events that are none": (b"", b"\xff" * 600 + b"\n", 27_000, LINES),
    "one line": (b"", b"\xff", 16 * MIB, LINES),
    "lines of lists": (b"", b'{"id":[' + b"[]," * 300_000 + b"0]}\n", 16, LINES),
    "an array of numbers": (b"[", b"1,", 8 * MIB - 1, ARRAY),
    "an array of one list": (b"[[", b"[],", 5 * MIB, ARRAY),
    "an array of blanks": (b"[", b" ", 16 * MIB - 1, ARRAY),
    "an array of wide text": (b'["', "\N{GRINNING FACE}".encode(), 4 * MIB - 1, ARRAY),
}
"""Bodies of some KB that unpack to 16 MiB: beginning, repeated text, and number of repetitions."""

NOW = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def needs_small_disks(folder: Path) -> None:
    """Skip if no disk can be mounted, as in most containers."""
    if not shutil.which("unshare"):
        pytest.skip("`unshare` (util-linux) is not installed")
    done = subprocess.run([*SMALL_DISK, folder, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (folder := tmp_path / "spool").mkdir()
    return folder


@pytest.fixture
def flushing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush after two seconds: long enough to fill a small disk, short enough to see space freed."""
    monkeypatch.setenv("FEED_ASSETS_RECEIVER_FLUSH_SECONDS", "2")


@pytest.fixture
def receivers(home: Path) -> Iterator[Callable[..., Process]]:
    """Start receivers of the home, and wait until they answer; kill them at the end."""
    begun = list[Process]()

    def begin(spool: Path, port: int, **options) -> Process:
        begun.append(started(home, spool, port, **options))
        begun[-1].wait()
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()


def ended(process: Process) -> None:
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60) in (0, -signal.SIGTERM)


def blackboard_of(home: Path) -> Blackboard:
    return Blackboard.open((home / "blackboard").as_uri())


def sized(number: int) -> bytes:
    """Return a large event of this hour."""
    return lines({**event(number, NOW), "id": BLOB})


@dataclass
class Pushing:
    """Send events, one a request; repeat refused ones with even numbers, which have a key."""

    partner: Partner
    taken: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def push(self, number: int) -> bool:
        headers = {**LINES, "Idempotency-Key": str(number)} if number % 2 == 0 else LINES
        answer = self.partner.post(sized(number), headers=headers)
        assert answer.ok or (answer.status_code, answer.headers["Retry-After"]) == (507, "5"), answer.text
        (self.taken if answer.ok else self.refused).append(number)
        return answer.ok

    def until(self, number: int, is_taken: bool) -> int:
        """Push new events until one is accepted, or refused; return the next number."""
        for each in range(number, number + 1000):
            if self.push(each) == is_taken:
                return each + 1
            _ = is_taken and time.sleep(0.1)
        raise AssertionError(f"of {1000} events none was {'taken' if is_taken else 'refused'}")


@pytest.mark.usefixtures("flushing")
def test_on_a_full_disk_exactly_acknowledged_events_are_kept(home, spool, receivers):
    """Use a real full disk: the kernel fails in the middle of a write, and the partial frame must be truncated."""
    needs_small_disks(spool)
    partner = partner_of(home, port := free_port())
    process = receivers(spool, port, within=(*SMALL_DISK, str(spool)))
    pushing = Pushing(partner)
    number = pushing.until(0, is_taken=False)
    assert partner.post(lines(event(SMALL, NOW))).ok, "what the kernel took of the large one is taken back"
    refused = [number - 1, *(each for each in (number, number + 1) if not pushing.push(each))]
    pushing.until(number + 2, is_taken=True)
    for each in [each for each in pushing.refused if each % 2 == 0]:
        while not pushing.push(each):
            time.sleep(0.1)
    ended(process)
    assert numbers(published(blackboard_of(home))) == sorted([*pushing.taken, SMALL])
    assert {each % 2 for each in refused} == {0, 1}, "with a key, and without"


def test_two_receivers_on_one_blackboard_share_no_batch_and_lose_none(home, tmp_path, receivers):
    """Kill, restart and end two receivers: each flushes only its own spool."""
    ports, spools = [free_port(), free_port()], [tmp_path / "one", tmp_path / "two"]
    partners = [partner_of(home, port) for port in ports]
    first, second = (receivers(spool, port) for spool, port in zip(spools, ports, strict=True))
    for number in range(40):
        assert partners[number % 2].post(sized(number)).ok
    first.kill()
    for process in (receivers(spools[0], ports[0]), second):
        ended(process)
    board = blackboard_of(home)
    assert numbers(published(board)) == [*range(40)]
    batches = [batch for hour in board.children(MEN) for batch in board.children(f"{MEN}/{hour}")]
    assert {batch.split("-")[0] for batch in batches} == {(spool / "receiver").read_text() for spool in spools}


def test_memory_is_limited_under_any_load(home, spool, receivers, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_RECEIVER_EVENTS_PER_SECOND", "1e9")
    partner = partner_of(home, port := free_port())
    process = receivers(spool, port)
    data = gzip.compress(lines(*({**event(number, NOW), "id": "x" * 330} for number in range(40_000))), 1)
    headers = {**LINES, "Content-Encoding": "gzip"}
    at_rest, partner.patience = peak_mb(process.process.pid), 300
    with ThreadPoolExecutor(24) as partners:
        answers = [partners.submit(partner.post, data, headers=headers) for _ in range(24)]
    assert {each.result().status_code for each in answers} == {200}
    assert peak_mb(process.process.pid) - at_rest < LARGE_MB


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bombs_take_little_memory_and_block_no_other_request(home, spool, receivers, monkeypatch, name):
    monkeypatch.setenv("FEED_ASSETS_RECEIVER_EVENTS_PER_SECOND", "1e9")
    begin, piece, times, media = BOMBS[name]
    packed, headers = gzip.compress(begin + piece * times, mtime=0), {**media, "Content-Encoding": "gzip"}
    partner = partner_of(home, port := free_port())
    process = receivers(spool, port)
    at_rest, partner.patience = peak_mb(process.process.pid), 300
    with ThreadPoolExecutor(8) as partners:
        bombs = [partners.submit(partner.post, packed, headers=headers) for _ in range(8)]
        answered = 0
        while not all(each.done() for each in bombs) or not answered:
            assert partner.post(lines(event(answered, NOW))).ok
            answered += 1
    assert {each.result().status_code for each in bombs} <= {200, 400, 413}
    assert peak_mb(process.process.pid) - at_rest < BOMBS_MB

"""Notes in the home folder about reads of Kafka in progress. A note without a living process means a crashed read.

A note names the partitions that its process reads, and is locked until that process ends. After a crash, the next
process that reads one of these partitions searches it once for messages that crash their reader.
"""

import fcntl
import json
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO
from uuid import uuid4

from confluent_kafka import Consumer

from feed_assets.home import OWNED, home
from feed_assets.kafka import crash_probe, known_crashes
from feed_assets.kafka.child_process import Place, Starts, no_wait
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.known_crashes import FOLDER


class ReadNote:
    """The note of one read of Kafka, in a file that this process has locked."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    def crashing(
        self, clients: Clients, reader: Consumer, starts: Starts, on_wait: Callable[[], None] = no_wait
    ) -> dict[Place, int]:
        """Return the partitions of `starts` that crash their reader, and from which offset on. Raise KafkaException.

        Search only the partitions that a crashed process has read. Afterwards, the note names the partitions that do
        not crash their reader, because the caller reads these next.
        """
        crashing = known_crashes.among(reader, starts)
        with suppress(OSError):
            self._write({*starts} - {*crashing})
        suspects = self._suspects()
        searched = {each: start for each, start in starts.items() if each in suspects and each not in crashing}
        for place, offset in crash_probe.crashing(clients, searched, on_wait):
            known_crashes.remember(place, offset)
            crashing[place] = offset
        with suppress(OSError):
            self._write({*starts} - {*crashing})
            self._clear({*starts})
        return crashing

    def close(self) -> None:
        """Remove the note."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def _write(self, places: Iterable[Place]) -> None:
        """Replace the note's content. No message is read meanwhile, so an incomplete note leaves out no suspect."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps([*places]).encode())
        self._file.flush()

    def _earlier(self) -> list[Path]:
        """Return the notes of crashed processes: those that no living process has locked."""
        prefix = self._path.name.partition("@")[0]
        return [each for each in self._path.parent.glob(f"{prefix}@*") if not _is_locked(each)]

    def _suspects(self) -> set[Place]:
        return {place for each in self._earlier() for place in _places(each)}

    def _clear(self, places: set[Place]) -> None:
        """Remove partitions from the notes of crashed processes."""
        for each in self._earlier():
            if remaining := _places(each) - places:
                new = each.with_name(f"new-{uuid4().hex}")
                new.touch(OWNED)
                new.write_text(json.dumps([*remaining]))
                new.rename(each)
            else:
                each.unlink(missing_ok=True)


@contextmanager
def noted(name: str) -> Generator[ReadNote | None]:
    """Keep a note while the block runs. Yield None without a home folder, or if the note cannot be written."""
    note = None
    with suppress(OSError):
        note = _written(f"{sha256(name.encode()).hexdigest()[:32]}@") if home().is_dir() else None
    try:
        yield note
    finally:
        if note is not None:
            with suppress(OSError):
                note.close()


def _written(prefix: str) -> ReadNote:
    """Write a note. It has its final name only once it is locked, so no process takes it for the note of a crash."""
    (folder := home() / FOLDER).mkdir(0o700, exist_ok=True)
    path = folder / f"{prefix}{uuid4().hex}"
    new = path.with_name(f"new-{path.name}")
    new.touch(OWNED)
    file = new.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    new.rename(path)
    return ReadNote(path, file)


def _places(path: Path) -> set[Place]:
    """Return the partitions that a note names. A note with no complete content names none."""
    try:
        return {(topic, number) for topic, number in json.loads(path.read_bytes())}
    except (OSError, ValueError):
        return set()


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # The note is locked, or it was removed meanwhile.
        return True
    return False

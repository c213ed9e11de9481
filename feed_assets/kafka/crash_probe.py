"""Search for topic partitions whose next messages crash their reader: the process that reads them by librdkafka.

A child process reads the partitions in turns, only one at a time. If the child crashes, another child continues with
the other partitions.
"""

import json
import sys
from collections.abc import Callable, Iterator
from time import monotonic

from confluent_kafka import Consumer, TopicPartition

from feed_assets.kafka import child_process
from feed_assets.kafka.child_process import Place, Starts
from feed_assets.kafka.clients import Clients

SEARCH_SECONDS = 30.0
"""The most seconds for one search, however many partitions it has."""

_TURN_SECONDS, _LONGER = 0.1, 4
"""Seconds of a partition's first turn, and the factor by which each further turn is longer."""

_STILL_SECONDS = 1.0
"""If a partition has no message in a turn of at least this many seconds, it is not read any further."""

_DONE = -(1 << 40)
"""A value instead of an offset. It marks a partition that is not read any further."""


def crashing(
    clients: Clients, starts: Starts, on_wait: Callable[[], None] = child_process.no_wait
) -> Iterator[tuple[Place, int]]:
    """Yield each topic partition whose messages crash their reader, and the offset from which on they do.

    `starts` has the partitions to search. Call `on_wait` every second meanwhile.
    """
    remaining, until = {**starts}, monotonic() + SEARCH_SECONDS
    while remaining and (seconds := until - monotonic()) > 0:
        places = [*remaining]
        job = {"conf": clients.properties, "places": places, "offsets": [*remaining.values()], "seconds": seconds}
        ended = child_process.run("feed_assets.kafka.crash_probe", job, [_DONE, *remaining.values()], seconds, on_wait)
        at, *offsets = ended.progress
        if not ended.is_crash or at == _DONE:  # A child that crashes before it reads was not crashed by a message.
            return
        yield places[at], offsets[at]
        remaining = {
            place: offset
            for number, (place, offset) in enumerate(zip(places, offsets, strict=True))
            if number != at and offset != _DONE
        }


class _Turns:
    """The work of the child process: it reads partitions in turns, and notes the offset that it has reached in each."""

    def __init__(self, reader: Consumer, places: list[Place], offsets: list[int], until: float) -> None:
        self._reader, self._places, self._offsets, self._until = reader, places, offsets, until

    def run(self) -> None:
        """Read all partitions in turns up to their end, or until the time is over."""
        seconds, remaining = _TURN_SECONDS, [*range(len(self._places))]
        while remaining and monotonic() < self._until:
            for number in remaining:
                self._read(number, seconds)
            remaining = [each for each in remaining if self._offsets[each] != _DONE]
            seconds *= _LONGER

    def _read(self, number: int, seconds: float) -> None:
        """Read one partition for some seconds. Read no other one meanwhile, so that a crash can be attributed."""
        child_process.report(0, number)
        place = TopicPartition(*self._places[number])
        low, _ = self._reader.get_watermark_offsets(place, timeout=SEARCH_SECONDS)
        place.offset = max(low, self._offsets[number])
        self._reach(number, place.offset)
        self._reader.assign([place])
        until = min(self._until, monotonic() + seconds)
        while monotonic() < until and self._offsets[number] != _DONE:
            received = self._reader.poll(0.05)
            if received is not None:
                self._reach(number, _DONE if received.error() else (received.offset() or 0) + 1)
        self._reader.unassign()
        if self._offsets[number] == place.offset and seconds >= _STILL_SECONDS:
            self._reach(number, _DONE)

    def _reach(self, number: int, offset: int) -> None:
        self._offsets[number] = offset
        child_process.report(number + 1, offset)


def main() -> None:
    """Run as the child process: read the partitions that the standard input lists."""
    job = json.load(sys.stdin)
    places = [(topic, number) for topic, number in job["places"]]
    reader = Clients(job["conf"]).peeker()
    _Turns(reader, places, job["offsets"], monotonic() + job["seconds"]).run()
    reader.close()


if __name__ == "__main__":
    main()

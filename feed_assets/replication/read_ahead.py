"""Chunks that another thread reads: obstore cannot read from one store inside of a write to another."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Event, Thread

_AHEAD = 2
"""Number of chunks that are in memory before they are sent."""


@contextmanager
def read_ahead(chunks: Iterable[bytes]) -> Generator[Iterator[bytes]]:
    """Read chunks in a thread while the block runs, and yield the iterator over them. It raises the reader's error.

    At the end of the block the thread ends, even if the chunks were not all taken.
    """
    queue, stopped = Queue[bytes | BaseException | None](_AHEAD), Event()
    thread = Thread(target=_read, args=(chunks, queue, stopped), name="read ahead", daemon=True)
    thread.start()
    try:
        yield _chunks_of(queue)
    finally:
        stopped.set()
        while thread.is_alive():
            _drain(queue)  # A thread that waits for room goes on, and sees that it has to stop.
            thread.join(0.05)


def _read(chunks: Iterable[bytes], queue: Queue[bytes | BaseException | None], stopped: Event) -> None:
    try:
        for chunk in chunks:
            if stopped.is_set():
                return
            queue.put(chunk)
        queue.put(None)
    except BaseException as error:  # noqa: BLE001  The thread that sends raises it.
        queue.put(error)


def _chunks_of(queue: Queue[bytes | BaseException | None]) -> Iterator[bytes]:
    while (item := queue.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _drain(queue: Queue[bytes | BaseException | None]) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        pass

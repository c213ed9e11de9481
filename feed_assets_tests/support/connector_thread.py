"""A connector in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from feed_assets.core.topics import Topic
from feed_assets.kafka import service
from feed_assets.kafka.offset_range import Chunking
from feed_assets_tests.support.servers import wait_until


class Connector:
    """A connector that runs in a thread, and the error that ended it."""

    def __init__(
        self, chunking: Chunking, wanted: dict[str, Topic], newer: service.NewerTopics = service.no_newer_topics
    ) -> None:
        self.stopping, self.error = Event(), None
        self.figures: dict[str, float] = {}
        self._chunking, self._wanted, self._newer = chunking, wanted, newer
        self.thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            beat = lambda figures: self.figures.update(figures())  # noqa: E731
            service.run(self._chunking, self._wanted, self.stopping, (0.1, 1), beat=beat, newer=self._newer)
        except BaseException as error:  # noqa: BLE001 - it is raised where the test waits
            self.error = error
        finally:
            self._chunking.schemas.close()

    @contextmanager
    def running(self) -> Iterator["Connector"]:
        """Run until the block ends. Raise the error if one ended it."""
        self.thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            self.thread.join(60)
        if self.error is not None:
            raise self.error

    def ended_with(self) -> BaseException | None:
        """Return the connector's error, which `wait` then no longer raises."""
        found, self.error = self.error, None
        return found

    def wait(self, condition, what: str) -> None:
        """Wait until a condition holds. Raise the error if one ended the connector."""
        wait_until(lambda: self.error is not None or condition(), what, 120, 0.1)
        if error := self.ended_with():
            raise error

"""Checks of `feed-assets doctor` for the queues that get buckets' notifications. No message is received."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from json import loads
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feed_assets.core.setting_types import BlackboardLocation
    from feed_assets.settings import Settings

WAITING, HIDDEN = "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
REDRIVE = "RedrivePolicy"


class Doubtful(Exception):
    """A finding that is not an error, but that a person should look at, because it may be a mistake."""


@dataclass(frozen=True)
class QueueLooks:
    """The checks for queues. Each check returns what it found as text, or raises an error."""

    settings: "Settings"

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Return one check for each blackboard with a queue."""
        return tuple(
            (f"queue of {name or 'the blackboard'}", partial(self._look, place))
            for name, place in self.settings.queues.items()
        )

    def _look(self, place: "BlackboardLocation") -> str:
        from feed_assets.feeds.queues import Queue

        url = place.queue or ""
        attributes = Queue(url, place.profile).attributes([WAITING, HIDDEN, REDRIVE])
        state = f"{url}: {attributes[WAITING]} messages wait, {attributes[HIDDEN]} are in process"
        if REDRIVE not in attributes:
            raise Doubtful(
                f"{state}; it has no dead-letter queue, so a message that is not from S3 is received again and again. "
                "Set a RedrivePolicy."
            )
        return (
            f"{state}, messages that are not from S3 are set aside after "
            f"{loads(attributes[REDRIVE])['maxReceiveCount']} tries"
        )

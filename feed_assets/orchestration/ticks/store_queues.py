"""Notifications of stores by their queues: a step of a tick, and threads beside it while it listens."""

import logging
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.isolation import failing_alone
from feed_assets.orchestration.ticks.tick import Listening, OutOfTime, Tick
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.feeds.queues import Queue
    from feed_assets.runs.notified_partitions import Notified

_log = logging.getLogger(__name__)


def hear_stores(tick: Tick, out_of_time: OutOfTime) -> None:
    """Check what the queues of our stores report; a queue out of reach is its own problem, as all is listed anyway.

    Queues that answer are polled while the tick listens.
    """
    if not settings().queues:
        return
    from feed_assets.runs.notified_partitions import Notified  # boto3, which local blackboards do not need.

    notified = Notified.of(tick.services, settings(), tick.graph.polled(), tick.graph.appendable())
    for queue, feed in notified.queues.items():
        with failing_alone(tick.problems, str(feed)):
            tick.is_complete &= notified.hear(queue, out_of_time)
            tick.beside.append(partial(_listen, notified, queue))


def _listen(notified: "Notified", queue: "Queue", listening: Listening) -> None:
    """Record what a queue reports while a tick listens, which finds it in the log.

    Its last request may outlast the tick by a second: its messages are recorded, and decided about by the next one.
    """
    from feed_assets.runs.notified_partitions import received

    try:
        while (seconds := listening.seconds_left()) > 0:
            messages, _ = received(queue, listening.is_over, ceil(seconds))
            with listening.recording:
                notified.look(queue, messages, lambda: False)  # A few at most, which else would be hidden for a while.
    except FeedAssetsError as error:  # The next tick tries again, and reports it.
        _log.warning("%s is listened to no longer: %s", queue.url, error)

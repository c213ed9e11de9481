"""Notifications from the queues of object stores.

A step of a tick reads them. While the tick listens, threads read them.
"""

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
    """Handle the notifications in our stores' queues.

    An unreachable queue is only reported, because listings find the data later. Reachable queues are polled while the
    tick listens.
    """
    if not settings().queues:
        return
    from feed_assets.runs.notified_partitions import Notified  # needs boto3, which local blackboards do not need

    notified = Notified.of(tick.services, settings(), tick.graph.polled(), tick.graph.appendable())
    for queue, feed in notified.queues.items():
        with failing_alone(tick.problems, str(feed)):
            tick.is_complete &= notified.hear(queue, out_of_time)
            tick.beside.append(partial(_listen, notified, queue))


def _listen(notified: "Notified", queue: "Queue", listening: Listening) -> None:
    """Record a queue's notifications while a tick listens. The tick finds the changes in the log.

    The last request may end up to a second after the tick. Its messages are recorded, and the next tick decides.
    """
    from feed_assets.runs.notified_partitions import received

    try:
        while (seconds := listening.seconds_left()) > 0:
            messages, _ = received(queue, listening.is_over, ceil(seconds))
            with listening.recording:
                # No time limit: any message left over would stay invisible for a while.
                notified.look(queue, messages, lambda: False)
    except FeedAssetsError as error:  # the next tick tries again and reports it
        _log.warning("listening to %s has stopped: %s", queue.url, error)

"""Failures of sinks: recorded in the outbox, with pauses that grow, and reported by each tick until a try succeeds."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import datetime

from feed_assets.core.errors import DeliveryRefused, DeliveryTargetDown, SinkRefused, SinkUnavailable, in_short
from feed_assets.core.secrets import masked
from feed_assets.deliveries import outbox, outlets
from feed_assets.deliveries.outbox import SINK, Delivery
from feed_assets.ledger import subscriptions
from feed_assets.ledger.database import Ledger

NEEDS_PERSON = "|person"
"""End of the name of a problem that needs a person. So it is an alert of its own, and channels report it."""


def name_of(url: str) -> str:
    """Return the name under which a sink reads the log, and under which its failure is in the outbox."""
    return f"{SINK}{masked(url)}"


def failures(ledger: Ledger, urls: Iterable[str]) -> dict[str, Delivery]:
    """Return the last failed try of each sink that has one, by URL. One query reads all."""
    with ledger.read() as connection:
        rows = outlets.failures(connection, map(name_of, urls))
    return {url: rows[name_of(url), ""] for url in urls if (name_of(url), "") in rows}


def add_failures(ledger: Ledger, urls: Iterable[str], problems: dict[str, str]) -> None:
    """Add the sinks that wait for another try or a person. So alerts stay open in ticks that do not try these sinks."""
    for url, failure in failures(ledger, urls).items():
        if failure.error:
            problems.pop(masked(url), None)
            is_dead = failure.is_dead
            problems[f"{masked(url)}{NEEDS_PERSON * is_dead}"] = outbox.advice(failure) if is_dead else failure.error


@contextmanager
def recorded(ledger: Ledger, name: str, before: Delivery | None, now: datetime) -> Generator[None]:
    """Record a failed try of the block, or remove the failure of an earlier tick.

    A sink that moves its position removes the failure then. But another process may have published what was left.
    """
    try:
        yield
    except Exception as error:  # Any failed try has a pause, and is raised again.
        kind = DeliveryRefused if isinstance(error, SinkRefused) else DeliveryTargetDown
        event = (isinstance(error, SinkUnavailable) and error.failed_event) or {}
        with ledger.write() as connection:
            following = subscriptions.position(connection, name) + 1
            head = Delivery(name, "", following, event, due=now)
            outlets.failed(connection, head, now, kind(in_short(error)))
        raise
    if before:
        with ledger.write() as connection:
            outbox.remove(connection, [before])

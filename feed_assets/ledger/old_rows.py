"""Removal of old rows from the ledger: changes, events, reports and rejects.

One function serves the command, the job and the sensor. Each step is one short transaction. If the process is killed
between two steps, the next call continues. A dry run makes the same queries, and removes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.ledger import event_rejects, log
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.old_events import OldEvents
from feed_assets.ledger.states.old_reports import fold_all
from feed_assets.ledger.tables import subscription

ROWS_PER_STEP = 500
"""Number of rows in one step. After each step the time limit is checked."""

CHANGES, EVENTS = "changes", "events"

Step = Callable[[int], tuple[int, int | None]]
"""Function that does one step, beginning after the given number.

It returns the count of removed rows, and the last number searched (None at the end).
"""


@dataclass(frozen=True)
class PrunedLog:
    """Numbers of removed rows by table. If `applied` is False, it was a dry run.

    `held_by` describes the slowest subscriber (and its feed), if old changes must stay until it has read them.
    `stopped` is the place where the next call continues, if time was over. It is empty if everything was checked.
    """

    before: datetime
    reports_before: datetime
    changes: int = 0
    events: int = 0
    rejects: int = 0
    reports: int = 0
    applied: bool = False
    held_by: str | None = None
    stopped: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of log changes, events and rejects that were removed because of their age."""
        return {"changes": self.changes, "events": self.events, "rejects": self.rejects}

    @property
    def total(self) -> int:
        """Return the total number of removed rows."""
        return self.changes + self.events + self.rejects + self.reports


def lines_of(pruned: PrunedLog) -> list[str]:
    """Return lines that describe the removed rows. If changes stay because of a subscriber, name it."""
    goes = "were removed" if pruned.applied else "would be removed"
    old, long_complete = (f"{each:%Y-%m-%d %H:%M} UTC" for each in (pruned.before, pruned.reports_before))
    lines = [f"{count} {what} older than {old} {goes}" for what, count in pruned.counts.items()]
    lines += [f"{pruned.reports} reports of windows that were complete before {long_complete} {goes}"]
    return [*lines, *([f"changes stay for a subscriber: {pruned.held_by}"] if pruned.held_by else [])]


def prune_log(
    ledger: Ledger,
    now: datetime,
    days: int,
    report_days: int | None,
    *,
    apply: bool = False,
    out_of_time: Callable[[], bool] = lambda: False,
    after: str = "",
) -> PrunedLog:
    """Remove rows older than `days`, or count them without `apply`. `after` is the `stopped` of an earlier call.

    Changes are removed before events, because an event stays as long as its change does. Reports of windows that have
    been complete for `report_days` are merged into one row (`states/old_reports.py`). If `report_days` is None, only
    the sensor `watch` does that.
    """
    before = now - timedelta(days=days)
    with ledger.read() as connection:
        upto, held_by = log.last_before(connection, before), None
        if upto:
            held_by = _held_by(connection, upto)
    old = OldEvents(ledger, before, upto)
    steps: dict[str, Step] = {
        CHANGES: lambda last: log.prune_some(ledger, before, last, upto, ROWS_PER_STEP, apply=apply),
        EVENTS: lambda last: old.prune_some(last, ROWS_PER_STEP, apply=apply),
    }
    gone, stopped = _walk(steps, out_of_time, after)
    counts = {"rejects": 0, "reports": 0}
    if not stopped:
        counts["rejects"] = event_rejects.prune(ledger, before, ROWS_PER_STEP, apply=apply)
        counts["reports"] = 0 if report_days is None else fold_all(ledger, now, report_days, apply=apply)
    reports_before = now - timedelta(days=report_days or 0)
    return PrunedLog(before, reports_before, **gone, **counts, applied=apply, held_by=held_by, stopped=stopped)


def _walk(steps: dict[str, Step], out_of_time: Callable[[], bool], after: str) -> tuple[dict[str, int], str]:
    """Run the pruning steps in order until the time is over.

    Return the numbers of removed rows by table, and the place from which the next call continues ("" at the end).
    """
    gone, (begin, _, number) = dict.fromkeys(steps, 0), after.partition(" ")
    names = [*steps][[*steps].index(begin) if begin in steps else 0 :]
    for name in names:
        last: int | None = int(number) if name == begin and number else 0
        while last is not None:
            count, last = steps[name](last)
            gone[name] += count
            if last is not None and out_of_time():
                return gone, f"{name} {last}"
    return gone, ""


def _held_by(connection: sa.Connection, upto: int) -> str | None:
    """Describe the slowest subscriber if old changes stay because of it. Return None otherwise."""
    order = subscription.c.position, subscription.c.subscriber, subscription.c.feed
    first = connection.execute(sa.select(*order).order_by(*order).limit(1)).first()
    if first is None:
        return "nobody has subscribed to the log yet"
    if first.position >= upto:
        return None
    return f"{first.subscriber}{f' of {first.feed}' if first.feed else ''} has read up to number {first.position} only"

"""Decisions about late data, stored in the log.

A decision that equals the last decision about its partition is not stored.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.late_weighing import Weighed
from feed_assets.core.pins import pins_digest
from feed_assets.core.readiness import Verdict
from feed_assets.ledger import key_tables, log
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import change


@dataclass(frozen=True)
class Decision:
    """A decision about the late data of a partition. Its `outcome` is `re-run`, `wait` or `skip`. Times are in UTC.

    `until` is the end of a wait. `published` is the update after which the data arrived. `before` and `after` are the
    bytes of the changed inputs: when they were consumed, and at the time of the decision. `files` is the number of
    additional files. `arrived` is a digest of the arrived data, and `policies` is a digest of the policies.
    """

    partition: Partition
    at: datetime
    outcome: str
    why: str
    published: str
    before: int
    after: int
    files: int
    until: datetime | None
    arrived: str
    policies: str = ""

    @property
    def growth(self) -> float | None:
        """Return the relative growth of the changed inputs. Return None if they had no bytes."""
        return (self.after - self.before) / self.before if self.before else None


def decisions(
    connection: sa.Connection, limit: int, feed: Feed | None = None, key: str | None = None
) -> tuple[Decision, ...]:
    """Return the last decisions about one partition, one dataset, or all datasets, newest first."""
    query = sa.select(change).where(_IS_LATE).order_by(change.c.sequence.desc()).limit(limit)
    query = query if feed is None else query.where(change.c.feed == str(feed))
    query = query if key is None else query.where(change.c.partition == key)
    return tuple(map(_decision, connection.execute(query)))


def record(ledger: Ledger, verdicts: Iterable[Verdict], now: datetime) -> None:
    """Append new decisions about late data to the log. A repeated call changes nothing."""
    weighed = {each.output: each for each in verdicts if each.weighed}
    with ledger.read() as connection:
        new = _new(connection, weighed) if weighed else []
    if new:
        with ledger.change() as connection:  # Check again under the lock: two ticks may run at once.
            still_new = _new(connection, {each.output: each for each in new})
            log.append(connection, [_change(each, each.weighed, now) for each in still_new if each.weighed])


def _new(connection: sa.Connection, verdicts: Mapping[Partition, Verdict]) -> list[Verdict]:
    """Return the verdicts about late data that differ from the last recorded decision about their partition.

    Cost: one index lookup for each verdict.
    """
    last = _last(connection, verdicts)
    identity_by_partition = {at.partition: (at.outcome, at.until, at.published, at.arrived, at.policies) for at in last}
    return [
        each
        for at, each in verdicts.items()
        if each.weighed and identity_by_partition.get(at) != _identity(each, each.weighed)
    ]


def _identity(verdict: Verdict, weighed: Weighed) -> tuple[object, ...]:
    """Return the values that identify a decision about late data. A decision with equal values is not stored again.

    The reason is left out, because the costs in the reason change with each run.
    """
    return weighed.outcome.value, weighed.look_again, verdict.published, _arrived(verdict), weighed.policies


def _last(connection: sa.Connection, outputs: Collection[Partition]) -> list[Decision]:
    key_table, history = key_tables.partitions(connection, outputs), change.alias()
    is_decision = key_tables.same_keys(history, key_table) & (history.c.kind == sa.literal_column("'late'"))
    last = sa.select(sa.func.max(history.c.sequence)).where(is_decision).correlate(key_table).scalar_subquery()
    query = sa.select(change).join(key_table, change.c.sequence == last)
    return [*map(_decision, connection.execute(query))]


_IS_LATE = change.c.kind == sa.literal_column("'late'")
"""SQL condition with a literal. If it were a parameter, no database would use the partial index."""


def _arrived(verdict: Verdict) -> str:
    return pins_digest(verdict.pins)[:12]


def _change(verdict: Verdict, weighed: Weighed, now: datetime) -> Change:
    until = weighed.look_again.isoformat() if weighed.look_again else None
    sizes = {"before": weighed.before, "after": weighed.after, "files": weighed.files}
    detail = json.dumps({**sizes, "until": until, "arrived": _arrived(verdict), "policies": weighed.policies})
    published, outcome = verdict.published or "", weighed.outcome.value
    return Change(verdict.output, log.LATE, published, at=now, after=outcome, why=weighed.reason, detail=detail)


def _decision(row: sa.Row[Any]) -> Decision:
    detail: dict[str, Any] = json.loads(row.detail)
    until = datetime.fromisoformat(detail.pop("until")) if detail["until"] else detail.pop("until")
    at = Partition(Feed.parse(row.feed), row.partition)
    return Decision(at, row.at, row.after, row.why, row.subject, **detail, until=until)

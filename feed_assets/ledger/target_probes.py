"""Answers of compute targets, which all processes of a ledger share: many waiting partitions cost one probe."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.resources import Amount
from feed_assets.core.target_room import Probe, Worker
from feed_assets.ledger.database import Ledger, insert_missing
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.ledger.tables import probe

ASKED_WITHIN = timedelta(seconds=5)
"""Time after which another process asks a target, because the process that began to ask it may be dead."""

LOST = "a run has lost it"
"""The reason why a target that answers gets no run for a while."""

FAULTY = "Spark of two datasets could not start there"
"""The reason why a target that answers but starts no Spark gets no run for a while."""

LOST_FOR = timedelta(minutes=2)
"""Time for which a target that a run has lost gets no other run. Without this pause, a target that answers but cannot
start Spark would be the least busy target, and would get each run."""


def answers(ledger: Ledger, names: Collection[str], now: datetime) -> tuple[dict[str, Probe], list[str]]:
    """Return the answers of targets by name, and the names of the targets that the caller must ask now.

    One process at a time asks a target. Other processes use the target's last answer, unless the answer is too old.
    """
    with ledger.read() as connection:
        rows = {row.target: row for row in connection.execute(sa.select(probe).where(probe.c.target.in_(names)))}
    stale = [name for name in names if name not in rows or not _is_fresh(rows[name].at, now)]
    begun = _begin(ledger, stale, now) if stale else []
    fresh = {name: _probe(row, now) for name, row in rows.items() if row.at and row.at > now - 2 * LOOK_AGAIN}
    return fresh, begun


def last_answers(connection: sa.Connection, names: Collection[str], now: datetime) -> dict[str, Probe]:
    """Return the last answer of each target, however old. Targets without a stored answer are missing."""
    query = sa.select(probe).where(probe.c.target.in_(names), probe.c.cores.is_not(None)).order_by(probe.c.target)
    return {row.target: _probe(row, now) for row in connection.execute(query)}


def _is_fresh(at: datetime | None, now: datetime) -> bool:
    """Return whether an answer still counts. An answer from the future does not: a clock was wrong."""
    return at is not None and now - LOOK_AGAIN < at <= now + LOOK_AGAIN


def _begin(ledger: Ledger, names: Collection[str], now: datetime) -> list[str]:
    """Return the targets among `names` that nobody else is asking, and note that this process asks them."""
    begun: list[str] = []
    with ledger.write() as connection:
        insert_missing(connection, probe, [{"target": name} for name in names])
        free = probe.c.asked.is_(None) | (probe.c.asked <= now - ASKED_WITHIN) | (probe.c.asked > now + ASKED_WITHIN)
        stale = probe.c.at.is_(None) | (probe.c.at <= now - LOOK_AGAIN) | (probe.c.at > now + LOOK_AGAIN)
        for name in sorted(names):
            own = sa.update(probe).where(probe.c.target == name, free, stale).values(asked=now)
            begun += [name] if connection.execute(own).rowcount else []
    return begun


def keep(ledger: Ledger, probes: Mapping[str, Probe]) -> dict[str, Probe]:
    """Store the answers of targets. Return the answers; for an offline target, add when it became offline."""
    kept: dict[str, Probe] = {}
    with ledger.write() as connection:
        for name, each in sorted(probes.items()):
            row = connection.execute(sa.select(probe).where(probe.c.target == name)).first()
            since = row.since if row and row.offline and row.since else each.at
            answer = replace(each, since=since if each.offline else None)
            values = {"at": answer.at, "cores": answer.total.cores, "memory": answer.total.memory}
            values |= {"free_cores": answer.free.cores, "free_memory": answer.free.memory, "queued": answer.queued}
            values |= {
                "offline": answer.offline,
                "since": answer.since,
                "asked": None,
                "workers": _written(answer.workers),
            }
            insert_missing(connection, probe, [{"target": name}])
            connection.execute(sa.update(probe).where(probe.c.target == name).values(**values))
            kept[name] = _with_loss(answer, row, each.at) if row else answer
    return kept


def outdate(connection: sa.Connection, name: str) -> None:
    """Let the next process that needs a target ask it, because a run there has ended."""
    connection.execute(sa.update(probe).where(probe.c.target == name).values(at=None))


def lose(ledger: Ledger, name: str, now: datetime) -> None:
    """Record that a run has lost a target. It gets no other run until LOST_FOR has passed."""
    with ledger.write() as connection:
        insert_missing(connection, probe, [{"target": name}])
        connection.execute(sa.update(probe).where(probe.c.target == name).values(lost=now, unstarted=None))


def note_refusal(ledger: Ledger, name: str, dataset: str, now: datetime) -> bool:
    """Record that Spark could not start for a dataset on a target that answers. Return whether the target is to blame.

    A target is to blame if another dataset could not start there either, and no dataset has worked there since. Such a
    target gets no run until LOST_FOR has passed. Otherwise the dataset's own configuration may be the cause.
    """
    of_target = probe.c.target == name
    with ledger.write() as connection:
        insert_missing(connection, probe, [{"target": name}])
        before = connection.execute(sa.select(probe.c.unstarted).where(of_target).with_for_update()).scalar_one()
        is_faulty = before is not None and before != dataset
        lost = {"lost": now} if is_faulty else {}
        connection.execute(sa.update(probe).where(of_target).values(unstarted=dataset, **lost))
    return is_faulty


def note_work(ledger: Ledger, name: str) -> None:
    """Record that a run's work on Spark has succeeded on a target, so the target is not faulty."""
    with ledger.write() as connection:
        refused = (probe.c.target == name) & probe.c.unstarted.is_not(None)
        connection.execute(sa.update(probe).where(refused).values(unstarted=None, lost=None))


def _probe(row: Any, now: datetime) -> Probe:
    at, offline = row.at, row.offline
    total, free = Amount(row.cores, row.memory), Amount(row.free_cores, row.free_memory)
    answer = Probe(at, total, free, queued=row.queued, offline=offline, since=row.since, workers=_read(row.workers))
    return _with_loss(answer, row, now)


def _written(workers: Sequence[Worker]) -> str | None:
    figures = [[each.total.cores, each.total.memory, each.free.cores, each.free.memory] for each in workers]
    return json.dumps(figures) if figures else None


def _read(text: str | None) -> tuple[Worker, ...]:
    return tuple(Worker(Amount(*each[:2]), Amount(*each[2:])) for each in (json.loads(text) if text else ()))


def _with_loss(answer: Probe, row: Any, now: datetime) -> Probe:
    """Return the answer. If a run lost the target lately, add that the target is offline.

    Ignore a loss in the far future, which comes from a wrong clock.
    """
    lost = row.lost
    if answer.offline or lost is None or not now - LOST_FOR < lost <= now + LOST_FOR:
        return answer
    return replace(answer, offline=FAULTY if row.unstarted else LOST, since=lost)

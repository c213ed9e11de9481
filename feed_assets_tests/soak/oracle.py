"""Conditions of the final state, judged from blackboard and ledger without any of the rules under test."""

from collections import Counter

import dagster as dg
import pyarrow.parquet as pq
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.home import home
from feed_assets.ledger import due, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed, update
from feed_assets.orchestration.decide.unfinished_runs import UNFINISHED
from feed_assets.settings import settings
from feed_assets_tests.soak.project import BOTH, KEYS, READS


def judge(expected: dict[str, int]) -> list[str]:
    """Describe everything lost, stale or doubled; `expected` is the last number dropped, by partition key."""
    return [*lost(expected), *stale(), *doubled(), *left()]


def left() -> list[str]:
    """Return partitions that wait for a person, which no kill can cause, and unfinished runs of Dagster."""
    with open_ledger(settings().ledger).read() as connection:
        waiting = [str(each.partition) for each in due.in_state(connection, State.WAITS_FOR_A_PERSON.value)]
    with dg.DagsterInstance.get() as instance:
        unfinished = [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))]
    return [f"a person is waited for: {each}" for each in waiting] + [f"unfinished: {each}" for each in unfinished]


def lost(expected: dict[str, int]) -> list[str]:
    """Return partitions of the last dataset whose rows differ from the update that was dropped last."""
    found = {key: _numbers(BOTH, key) for key in expected}
    return [
        f"lost: {BOTH}/{key} has {found[key]}, not {number}"
        for key, number in expected.items()
        if found[key] != {number}
    ]


def stale() -> list[str]:
    """Return outputs that were built from other updates than the newest ones of their inputs."""
    found: list[str] = []
    for consumer, inputs in READS.items():
        for key in KEYS:
            newest = {feed: _newest(feed, key) for feed in inputs}
            read_last = _read_by(consumer, key)
            if any(newest.values()) and read_last != newest:
                found.append(f"stale: {consumer}/{key} was built from {read_last}, newest are {newest}")
    return found


def doubled() -> list[str]:
    """Return pins from which one output was published more than once."""
    with open_ledger(settings().ledger).read() as connection:
        rows = connection.execute(
            sa.select(consumed.c.feed, consumed.c.partition, consumed.c.id, consumed.c.input_feed, consumed.c.position)
            .join(update, _same_update())
            .where(update.c.state == updates.PUBLISHED, consumed.c.is_input)
        ).all()
    pins: dict[tuple[str, str, str], frozenset[tuple[str, str]]] = {}
    for feed, partition, update_id, input_feed, position in rows:
        at = (feed, partition, update_id)
        pins[at] = pins.get(at, frozenset()) | {(input_feed, position)}
    times = Counter((feed, partition, read_from) for (feed, partition, _), read_from in pins.items())
    return [f"doubled: {feed}/{key} from {sorted(read_from)}" for (feed, key, read_from), n in times.items() if n > 1]


def _same_update() -> sa.ColumnElement[bool]:
    same = (update.c.feed == consumed.c.feed) & (update.c.partition == consumed.c.partition)
    return same & (update.c.id == consumed.c.id)


def _newest(feed: str, key: str) -> str | None:
    found = read.latest(open_board(settings()), Partition(Feed.parse(feed), key)).update
    return found.id if found else None


def _read_by(consumer: str, key: str) -> dict[str, str]:
    newest = _newest(consumer, key)
    if newest is None:
        return {}
    with open_ledger(settings().ledger).read() as connection:
        pins = updates.consumed_by(connection, Partition(Feed.parse(consumer), key), newest)
    return {str(pin.partition.feed): pin.update_id for pin in pins}


def _numbers(feed: str, key: str) -> set[int]:
    newest = _newest(feed, key)
    folder = home() / "blackboard" / feed / key / str(newest)
    return {row["n"] for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()}

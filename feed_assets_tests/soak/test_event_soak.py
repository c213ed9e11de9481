"""Another team's events under the real daemon, which is killed at random: each event is consumed exactly once."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

import pytest
import sqlalchemy as sa

from feed_assets.core.events import Operation, WriteEvent, encode
from feed_assets.core.feeds import Feed
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed, update
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.spark.session import conf
from feed_assets_tests.soak.daemon_steps import VICTIMS, judge_until_idle
from feed_assets_tests.soak.event_project import REPORT, URL, A, B
from feed_assets_tests.soak.operations import Operations, running
from feed_assets_tests.soak.project import KEYS
from feed_assets_tests.support.ledger_records import waiting
from feed_assets_tests.support.progress import print_progress
from feed_assets_tests.support.servers import connect_server

PROJECT = "feed_assets_tests.soak.event_project"
PAUSE = 0.4
"""Mean seconds between two events."""

Published = dict[tuple[str, str], list[str]]
"""Published markers in order, by table and partition."""


def judge(published: Published) -> list[str]:
    """Return objections unless the slices of all outputs together cover every event once and no event waits."""
    found: list[str] = []
    for (table, key), markers in published.items():
        pieces = _slices(table, key)
        if sorted(pieces) != sorted({*pieces}):
            found.append(f"doubled: {table} {key} has {pieces}")
        if [start for start, _ in pieces] != ["", *(end for _, end in pieces[:-1])]:
            found.append(f"not one after the other: {table} {key} has {pieces}")
        if (pieces[-1][1] if pieces else None) != markers[-1]:
            found.append(f"lost: {table} {key} was read up to {pieces[-1:]}, not {markers[-1]}")
    left = waiting(open_ledger(settings().ledger), Feed.parse(REPORT))
    return [*found, *(f"waits: {key} has {len(each)} events" for key, each in left.items())]


def _slices(table: str, key: str) -> list[tuple[str, str]]:
    """Return the slices of a table's partition that published updates read: (after, up to), in order."""
    same = (update.c.feed == consumed.c.feed) & (update.c.partition == consumed.c.partition)
    query = sa.select(consumed.c.slice_from, consumed.c.position).join(update, same & (update.c.id == consumed.c.id))
    mine = (consumed.c.feed == REPORT) & (consumed.c.input_feed == table) & (consumed.c.partition == key)
    with open_ledger(settings().ledger).read() as connection:
        rows = connection.execute(query.where(mine, update.c.state == updates.PUBLISHED)).all()
    return sorted((row.slice_from or "", row.position) for row in rows)


def events(random: Random, count: int) -> Iterator[WriteEvent]:
    """Yield two events of each update, one of each table; the second one follows a few events later."""
    late: list[WriteEvent] = []
    for number in range(count // 2):
        key, now = random.choice(KEYS), datetime.now(UTC)
        one, other = (
            WriteEvent(table, 10 * number + at, now, f"X{number}", Operation.UPSERT, key)
            for at, table in enumerate((A, B))
        )
        yield one
        late.append(other)
        while late and (random.random() < 0.6 or number == count // 2 - 1):
            yield late.pop(0)


def publish_and_kill(operations: Operations, sink: SqlSink, random: Random, count: int, kills: int) -> list[str]:
    """Publish events at random moments, with kills between them. Return the final objections."""
    published: Published = {}
    fatal = {*random.sample(range(count), kills)}
    for number, event in enumerate(events(random, count)):
        sink.publish([(0, event)])
        published.setdefault((event.table_name, event.partition_key), []).append(encode(event.marker))
        if number in fatal:
            victim = random.choice(VICTIMS)
            if victim == "worker" and not operations.workers():  # An event without its counterpart starts no worker.
                victim = "daemon"
            print_progress(f"after event {number}: kill {victim}")
            operations.kill(victim, random)
        time.sleep(random.expovariate(1 / PAUSE))
        operations.start()
    return judge_until_idle(partial(judge, published))


@pytest.fixture
def under_fire(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that soaks the project with so many events and kills, and returns the final objections."""

    def soak(count: int, kills: int) -> list[str]:
        seed = int(os.environ.get("SOAK_SEED") or SystemRandom().randrange(10**6))
        print_progress(f"SOAK_SEED={seed} events={count} kills={kills}")
        sink = SqlSink(f"sqlite:///{tmp_path / 'team.db'}", "events")
        sink.publish([])
        monkeypatch.setenv(URL, sink.url)
        monkeypatch.setenv("PYTHONWARNINGS", "ignore")
        # A kill counts as an attempt, and three in a row on one partition happen by chance.
        monkeypatch.setenv("FEED_ASSETS_MAX_ATTEMPTS", "20")
        settings.cache_clear()
        with connect_server(tmp_path, conf(settings()), os.environ) as url:
            monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", url)
            settings.cache_clear()
            with running(home, PROJECT) as operations:
                return publish_and_kill(operations, sink, Random(seed), count, kills)  # noqa: S311

    return soak


@pytest.mark.soak
@pytest.mark.parametrize(("count", "kills"), [(40, 4), (500, 40)])
def test_every_event_is_consumed_once_under_random_kills(under_fire, count, kills):
    assert under_fire(count, kills) == []

"""Feeds as reporters: the newest valid update of each partition counts, and its later changes correct the count."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count as numbers

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.reports import Report, text_of, windows_of
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import claims, log, subscriptions, update_changes, update_counts, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.states.feed_reports import CountedFeed, count
from feed_assets.ledger.tables import event_reject
from feed_assets.ledger.tables import report as table
from feed_assets.ledger.tables import update as update_table
from feed_assets.ledger.update_counts import COUNTER
from feed_assets_tests.support.ledger_records import EFFECT, NOW, SHOWN, seen
from feed_assets_tests.support.ledger_records import sync as synced
from feed_assets_tests.support.statement_counter import counted_statements as asked

DAY = datetime(2019, 11, 24, tzinfo=UTC)
HOUR = timedelta(hours=1)
FAR = ((datetime(1, 1, 1, tzinfo=UTC), 1), (datetime(9999, 12, 31, 23, 55, tzinfo=UTC), 1))
HOURLY = Tracked.of(Completeness(grains=("hour", "day")))
FIRST, SECOND, THIRD = "20191125.000001", "20191125.000002", "20191125.000003"
RUNS = (f"run-{number}" for number in numbers())


def campaign(partition: Partition) -> str:
    """Return the sub-partition of a partition by date and campaign."""
    return f"campaign={partition.key.split('/')[1]}"


OURS = {EFFECT.feed: CountedFeed(HOURLY, campaign)}
THEIRS = {SHOWN.feed: CountedFeed(HOURLY, campaign, is_foreign=True)}


def hours(*records: int, first: int = 0):
    """Return counts by hour."""
    return tuple((DAY + (first + number) * HOUR, each) for number, each in enumerate(records))


def build(ledger, update_id, windows, partition=EFFECT):
    """Publish an update, as a run of ours does."""
    run = next(RUNS)
    with ledger.change() as connection:
        claims.claim(connection, run, [(partition, update_id)], (), "code", NOW)
        text = None if windows is None else text_of(windows)
        claims.stage(connection, seen(partition, update_id), "rows", records=3, windows=text)
        update_changes.publish(connection, partition, update_id, NOW)


def change(ledger, update_id, state, partition=EFFECT):
    with ledger.change() as connection:
        update_changes.change(connection, partition, update_id, state, NOW)


def counted(ledger, feeds=OURS, **options):
    window_queries.declare(ledger, {feed: each.tracked for feed, each in feeds.items()}, NOW)
    return count(ledger, feeds, NOW, lambda: False, **options)


def parts(ledger, dataset=EFFECT.feed):
    """Return the reports of ingested records, by part, with windows by hour of the day."""
    mine = (table.c.tier == "") & (table.c.dataset == str(dataset))
    with ledger.read() as connection:
        rows = connection.execute(sa.select(table).where(mine)).all()
    return {row.part: {start.hour: n for start, n in windows_of(row.windows).items()} for row in rows}


def state(ledger, hour, dataset=EFFECT.feed, sub_partition="campaign=men", grain="hour"):
    key = f"2019-11-24-{hour:02d}:00" if grain == "hour" else "2019-11-24"
    at = WindowAddress(dataset, sub_partition, grain, key)
    with ledger.read() as connection:
        found = window_queries.stored_windows(connection, [at])
    return str(found[at].state) if at in found else None


def position(ledger, feed=EFFECT.feed):
    with ledger.read() as connection:
        return subscriptions.position(connection, COUNTER, str(feed)), log.last(connection)


def test_partition_counts_the_records_of_its_newest_update(ledger):
    build(ledger, FIRST, (*hours(10, 20), *FAR))
    assert counted(ledger)
    assert parts(ledger) == {EFFECT.key: {0: 10, 1: 20}}
    build(ledger, SECOND, hours(10, 30))
    assert counted(ledger)
    assert parts(ledger) == {EFFECT.key: {0: 10, 1: 30}}
    assert windows_of(text_of(FAR)) == windows_of('[["1-01-01-00:00", 1], ["9999-12-31-23:55", 1]]') == dict(FAR)


def test_roll_back_counts_the_previous_update_or_none(ledger):
    window_queries.declare(ledger, {EFFECT.feed: HOURLY}, NOW)
    source = [Report(EFFECT.feed, "campaign=men", str(start), ((start, n),), "web") for start, n in hours(10, 30)]
    report(ledger, source, NOW)
    build(ledger, FIRST, hours(10, 20))
    build(ledger, SECOND, hours(10, 30))
    counted(ledger)
    assert (state(ledger, 0), state(ledger, 1)) == ("complete", "complete")
    change(ledger, SECOND, updates.INVALIDATED)
    counted(ledger)
    assert (parts(ledger), state(ledger, 0), state(ledger, 1)) == ({EFFECT.key: {0: 10, 1: 20}}, "complete", "open")
    change(ledger, FIRST, updates.INVALIDATED)
    counted(ledger)
    assert (parts(ledger), state(ledger, 0)) == ({EFFECT.key: {}}, "open")
    change(ledger, SECOND, updates.PUBLISHED)
    counted(ledger)
    assert (parts(ledger), state(ledger, 1)) == ({EFFECT.key: {0: 10, 1: 30}}, "complete")


def test_pruned_update_does_not_change_the_count(ledger):
    build(ledger, FIRST, hours(10))
    build(ledger, SECOND, hours(11))
    counted(ledger)
    change(ledger, FIRST, updates.PRUNED)
    counted(ledger)
    assert parts(ledger) == {EFFECT.key: {0: 11}}


def test_partition_counts_as_its_sub_partition_and_unknown_ones_are_skipped(ledger):
    women, odd = Partition(EFFECT.feed, "2019-11-24/women"), Partition(EFFECT.feed, "2019-11-24/odd")
    for partition in (EFFECT, women, odd):
        build(ledger, FIRST, hours(10), partition)
    known = {EFFECT.feed: CountedFeed(HOURLY, lambda each: None if each == odd else campaign(each))}
    counted(ledger, known)
    assert parts(ledger) == {EFFECT.key: {0: 10}, women.key: {0: 10}}
    with ledger.read() as connection:
        found = connection.execute(sa.select(table.c.sub_partition).order_by(table.c.part)).scalars().all()
        assert found == ["campaign=men", "campaign=women"]
        assert connection.execute(sa.select(event_reject)).all() == []


def test_the_days_of_a_region_are_counted_by_its_own_midnight(ledger):
    days = Tracked.of(Completeness(grains=("day",)), Regions({"india": "Asia/Kolkata"}))
    quarters = tuple((DAY + timedelta(hours=18, minutes=15 * each), 1) for each in range(4))
    build(ledger, FIRST, quarters)
    window_queries.declare(ledger, {EFFECT.feed: days}, NOW)
    counted(ledger, {EFFECT.feed: CountedFeed(days, lambda _: "region=india")})
    with ledger.read() as connection:
        (text,) = connection.execute(sa.select(table.c.windows)).scalars()
    assert windows_of(text) == {DAY - 5.5 * HOUR: 2, DAY + 18.5 * HOUR: 2}


def test_batch_of_another_team_counts_once_a_run_has_counted_it(ledger):
    batches = [SHOWN.batch("a"), SHOWN.batch("b")]
    for batch in batches:
        synced(ledger, batch, seen(batch, FIRST), is_batch=True)
    counted(ledger, THEIRS)
    assert parts(ledger, SHOWN.feed) == {each.key: {} for each in batches}
    keep(ledger, seen(batches[0], FIRST), hours(5))
    counted(ledger, THEIRS)
    keep(ledger, seen(batches[0], FIRST), hours(6))
    counted(ledger, THEIRS)
    assert parts(ledger, SHOWN.feed) == {batches[0].key: {0: 5}, batches[1].key: {}}


def keep(ledger: Ledger, update: Update, windows) -> None:
    """Record that a run counted an update of another team."""
    with ledger.change() as connection:
        update_counts.keep(connection, [(update, windows)], "a run", NOW)


def test_uncounted_newer_update_of_another_team_removes_the_count(ledger):
    synced(ledger, SHOWN, seen(SHOWN, FIRST))
    keep(ledger, seen(SHOWN, FIRST), hours(5))
    counted(ledger, THEIRS)
    synced(ledger, SHOWN, seen(SHOWN, SECOND))
    counted(ledger, THEIRS)
    assert parts(ledger, SHOWN.feed) == {SHOWN.key: {}}
    synced(ledger, SHOWN, seen(SHOWN, FIRST), {SECOND: "it is gone"})
    counted(ledger, THEIRS)
    assert parts(ledger, SHOWN.feed) == {SHOWN.key: {0: 5}}


def test_feed_whose_producer_reports_is_not_counted_again(ledger):
    window_queries.declare(ledger, {SHOWN.feed: HOURLY}, NOW)
    report(ledger, [Report(SHOWN.feed, "campaign=men", "s3://theirs", hours(5))], NOW, "producer")
    synced(ledger, SHOWN, seen(SHOWN, FIRST))
    with ledger.read() as connection:
        assert update_counts.uncounted(connection, [seen(SHOWN, FIRST)]) == set()
    keep(ledger, seen(SHOWN, FIRST), hours(5))
    counted(ledger, THEIRS)
    assert parts(ledger, SHOWN.feed) == {SHOWN.key: {}, "s3://theirs": {0: 5}}
    assert state(ledger, 0, SHOWN.feed) == "open"


def test_counter_skips_feeds_of_other_code_locations(ledger):
    build(ledger, FIRST, hours(10))
    synced(ledger, SHOWN, seen(SHOWN, FIRST))
    counted(ledger, THEIRS)
    assert (parts(ledger, SHOWN.feed), parts(ledger)) == ({SHOWN.key: {}}, {})
    counted(ledger, OURS)
    assert (parts(ledger, SHOWN.feed), parts(ledger)) == ({SHOWN.key: {}}, {EFFECT.key: {0: 10}})


def test_stopped_counter_continues_until_everything_is_counted(ledger):
    for key in ("2019-11-24/men", "2019-11-24/women", "2019-11-25/men"):
        build(ledger, FIRST, hours(10), Partition(EFFECT.feed, key))
    assert not count(ledger, OURS, NOW, lambda: True, limit=1)
    assert len(parts(ledger)) == 1
    while not count(ledger, OURS, NOW, lambda: True, limit=1):
        pass
    assert len(parts(ledger)) == 3
    assert len({*position(ledger)}) == 1


class Killed(BaseException):
    """The end of a process."""


@dataclass
class Dying(Ledger):
    """A ledger whose process is killed before its next transaction once its lives are used."""

    ledger: Ledger
    lives: int
    taken: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__(self.ledger.engine)

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        self._live("read")
        with self.ledger.read() as connection:
            yield connection

    @contextmanager
    def _writing(self, what: str) -> Generator[sa.Connection]:
        self._live(what)
        with self.ledger._writing(what) as connection:
            yield connection

    def _live(self, what: str) -> None:
        self.taken.append(what)
        if len(self.taken) > self.lives:
            raise Killed


@pytest.mark.parametrize("lives", range(7))
def test_counter_killed_before_any_transaction_counts_the_same_later(ledger, lives):
    build(ledger, FIRST, hours(10))
    counted(ledger)
    build(ledger, SECOND, hours(20))
    with suppress(Killed):
        count(Dying(ledger, lives), OURS, NOW, lambda: False)
    build(ledger, THIRD, hours(30))
    assert counted(ledger)
    assert parts(ledger) == {EFFECT.key: {0: 30}}
    with ledger.read() as connection:
        assert connection.execute(sa.select(event_reject)).all() == []


def test_counter_killed_before_saving_its_position_repeats_equal_reports(ledger):
    build(ledger, FIRST, hours(10))
    window_queries.declare(ledger, {EFFECT.feed: HOURLY}, NOW)
    dying = Dying(ledger, 5)
    with pytest.raises(Killed):
        count(dying, OURS, NOW, lambda: False)
    assert dying.taken[-1] == "changes"
    assert parts(ledger) == {EFFECT.key: {0: 10}}
    before = position(ledger)
    assert counted(ledger)
    assert (before[0], position(ledger)[0]) == (0, before[1])
    assert parts(ledger) == {EFFECT.key: {0: 10}}


def test_cost_of_counting_does_not_grow_with_history(ledger):
    """One change takes as many statements after 300 partitions as after one."""
    taken: list[int] = []
    for number in range(300):
        build(ledger, FIRST, hours(10), Partition(EFFECT.feed, f"{number:04d}/men"))
        if number in (2, 299):
            with asked(ledger.engine) as statements:
                counted(ledger)
            taken.append(len(statements))
        elif number in (1, 298):
            counted(ledger)
    assert taken[0] == taken[1]


def test_overwritten_foreign_update_loses_its_count(ledger):
    synced(ledger, SHOWN, seen(SHOWN, FIRST))
    keep(ledger, seen(SHOWN, FIRST), hours(5))
    synced(ledger, SHOWN, seen(SHOWN, FIRST, size=11))
    with ledger.read() as connection:
        assert connection.execute(sa.select(update_table.c.windows)).scalars().all() == [None]

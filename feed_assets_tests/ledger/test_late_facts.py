"""Facts for the decision on late data: sizes at a moment, the cost of a run, and dates of the files that were read."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import File, Partition, Update, update_id
from feed_assets.core.late_policy import Late, Periods
from feed_assets.core.pins import Pin
from feed_assets.ledger import claims, runs, update_changes, updates
from feed_assets.ledger.fact_queries import facts
from feed_assets.ledger.tables import run
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.ledger_records import (
    EFFECT,
    MINUTE,
    NOW,
    SHOWN,
    claim,
    new_run,
    publish,
    scanned,
    statements,
    sync,
)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAILY = Late("5%", check="daily")
PERIODS = Periods(tuple(NOW.replace(hour=0) + DAY * number for number in range(9)))


def wrote(at: Partition, moment: datetime, size: int) -> Update:
    name = update_id(moment)
    return Update(at, name, (File(f"{at.path}/{name}/part", size, str(size), moment),))


def of(ledger, need, now=NOW, run_cost=0.0):
    with ledger.read() as connection:
        return facts(connection, [need], now, 3, run_cost)


def weighed(late: Late, **more):
    return replace(need_of(EFFECT, (SHOWN,), late=late, **more), periods=PERIODS)


MIDNIGHT = NOW.replace(hour=0)
MOMENTS = [MIDNIGHT - 2 * HOUR, MIDNIGHT, MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR]


def test_facts_include_the_newest_update_of_the_last_check(ledger):
    for number, moment in enumerate(MOMENTS):
        sync(ledger, SHOWN, wrote(SHOWN, moment, 100 + number))
    found = of(ledger, weighed(DAILY))
    assert found.newest[SHOWN].size == 103
    assert {key: pin.size for key, pin in found.counted.items()} == {(SHOWN, update_id(MIDNIGHT)): 101}


def test_no_extra_statement_is_needed_when_the_newest_update_counts(ledger):
    sync(ledger, SHOWN, wrote(SHOWN, MIDNIGHT, 100))
    with statements(ledger) as asked:
        of(ledger, weighed(Late("5%")))
    with statements(ledger) as asked_daily:
        found = of(ledger, weighed(DAILY))
    assert (found.counted, len(asked)) == ({}, len(asked_daily))


def test_invalidated_update_does_not_count_for_the_last_check(ledger):
    for number, moment in enumerate(MOMENTS):
        sync(ledger, SHOWN, wrote(SHOWN, moment, 100 + number))
    with ledger.change() as connection:
        update_changes.change(connection, SHOWN, update_id(MIDNIGHT), updates.INVALIDATED, NOW)
    assert [pin.size for pin in of(ledger, weighed(DAILY)).counted.values()] == [100]


def test_snapshot_has_bytes_files_digest_and_the_date_of_the_newest_file(ledger):
    name = update_id(MIDNIGHT)
    files = [File(f"{SHOWN.path}/{name}/{number}", 7, "x", MIDNIGHT - number * HOUR) for number in range(3)]
    sync(ledger, SHOWN, Update(SHOWN, name, tuple(files)))
    pin = of(ledger, weighed(DAILY)).newest[SHOWN]
    claim(ledger, "run", (EFFECT, name), pins=(pin,))
    publish(ledger, "run", EFFECT, name)
    (read,) = of(ledger, weighed(DAILY)).outputs[EFFECT].consumed
    assert (read.size, read.files, read.version, read.modified) == (21, 3, pin.version, MIDNIGHT)


def test_update_without_file_dates_has_no_modified_time(ledger):
    sync(ledger, SHOWN, Update(SHOWN, update_id(NOW), (File("x", 1, "x"),)))
    assert of(ledger, weighed(DAILY)).newest[SHOWN].modified is None


def built(ledger, number: int, seconds: float, size: int, state: str = updates.PUBLISHED) -> None:
    """Record a build of the dataset that took so long and read so much."""
    output, name = Partition(EFFECT.feed, f"p{number}"), update_id(NOW + number * MINUTE)
    with ledger.change() as connection:
        update_changes.insert(connection, output, name, updates.RUN, updates.PUBLISHED, NOW, run=f"r{number}")
        claims.consume(connection, (output, name), Pin(SHOWN, name, "x", size), is_input=True)
        claims.consume(connection, (output, name), Pin(EFFECT, name, "x", 10**9), is_input=False)
        started = NOW + number * MINUTE
        values = {**vars(new_run(f"r{number}", output, started)), "feed": str(output.feed), "partition": output.key}
        values = {name: value for name, value in values.items() if name in run.c}
        ended = {"state": state, "ended": started + timedelta(seconds=seconds)}
        connection.execute(sa.insert(run).values(values | ended))


WORTH = weighed(Late("5%", value_per_gb=1))


def test_a_byte_costs_the_median_of_the_last_20_published_builds(ledger):
    built(ledger, -20_000, 10**6, 1)  # The 21st last build.
    for number in range(1, 20):
        built(ledger, number, seconds=number, size=10)
    built(ledger, 30, 10**6, 1, runs.FAILED)
    built(ledger, 40, 10**6, 1)  # An outlier.
    assert of(ledger, WORTH, run_cost=2).costs == {EFFECT.feed: pytest.approx(2 * 10.5 / 10)}


@pytest.mark.parametrize(
    "need", [pytest.param(WORTH, id="none has run"), pytest.param(weighed(DAILY), id="nobody weighs it")]
)
def test_without_a_build_or_a_price_there_is_no_cost(ledger, need):
    if need is not WORTH:
        built(ledger, 1, 5, 10)
    assert of(ledger, need, run_cost=2).costs == {}


def test_builds_that_read_no_bytes_give_no_cost(ledger):
    built(ledger, 1, 5, 0)
    assert of(ledger, WORTH, run_cost=2).costs == {}


def test_cost_of_a_run_takes_one_statement_and_seeks(sqlite_ledger):
    for number in range(60):
        built(sqlite_ledger, number, 5, 10)
    with statements(sqlite_ledger) as plain:
        of(sqlite_ledger, weighed(Late("5%")))
    with statements(sqlite_ledger) as executed:
        of(sqlite_ledger, WORTH, run_cost=1)
    assert len(executed) == len(plain) + 1
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values) for sql, values in executed]
        steps = [row.detail for plan in plans for row in plan]
    assert not scanned(steps)
    assert any("run_of_feed_by_end (feed=? AND state=? AND ended>?)" in step for step in steps)
    assert not [step for step in steps if "SEARCH update_" in step and step.endswith("(feed=?)")]

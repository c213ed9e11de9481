"""The states of windows follow from the reports alone: not from their order, repetition, or division into calls.

An oracle computes them anew. A wrong control lets the order of arrival decide, and is caught.
"""

from datetime import UTC, date, datetime

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.ledger import log
from feed_assets.ledger.states import count_reports, window_queries
from feed_assets.ledger.states.watermarks import watermarks
from feed_assets.ledger.tables import change, metadata, watermark, window
from feed_assets_tests.ledger.state_oracle import (
    FIVE,
    FOO,
    ZONES,
    World,
    expected_states,
    make_reports,
    rng_of,
    shuffled,
)

NOW = datetime(2026, 4, 5, tzinfo=UTC)
SPRING = World((date(2026, 3, 28), date(2026, 3, 29)))
"""48 hours of four regions: 2,304 windows of 5 minutes, with one change to summer time."""


def fresh(ledger):
    with ledger.write() as connection:
        for table in metadata.sorted_tables:
            connection.execute(sa.delete(table))
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(), Regions(ZONES))}, NOW)
    return ledger


def states(ledger):
    query = sa.select(window.c.sub_partition, window.c.grain, window.c.key, window.c.state)
    with ledger.read() as connection:
        return {tuple(row[:3]): row.state for row in connection.execute(query.where(window.c.state != "open"))}


def everything(ledger):
    """Return the state of the store, without times and order of its changes."""
    kept = [column for column in window.c if column.name not in ("changed", "since", "told")]
    with ledger.read() as connection:
        rows = connection.execute(sa.select(*kept)).all()
        return sorted(map(str, [*rows, *connection.execute(sa.select(watermark)).all()]))


def check_transitions(ledger):
    """Assert that every window moves from state to state without a jump, and ends in its present state."""
    at = {}
    with ledger.read() as connection:
        for row in connection.execute(sa.select(change).where(change.c.kind == log.WINDOW).order_by(change.c.sequence)):
            assert at.get(row.partition, "open") == row.before != row.after
            at[row.partition] = row.after
    found = {f"{grain}@{key}{'/' + sub if sub else ''}": state for (sub, grain, key), state in states(ledger).items()}
    assert {key: state for key, state in at.items() if state != "open"} == found


def check_watermarks(ledger, expected):
    """Check each region's watermark by a walk over its windows of 5 minutes from the first one on."""
    for region in ZONES:
        line = (FOO, f"region={region}", "5min")
        done = {key for sub, grain, key in expected if (sub, grain) == line[1:]}
        with ledger.read() as connection:
            found = watermarks(connection, [line])[line]
            mine = (window.c.sub_partition == line[1]) & (window.c.grain == "5min")
            at = connection.execute(sa.select(sa.func.min(window.c.start)).where(mine)).scalar_one()
        first = at
        while f"{at:%Y-%m-%d-%H:%M}" in done:
            at += FIVE
        assert found.contiguous == (at if at > first else None)
        assert f"{found.latest - FIVE:%Y-%m-%d-%H:%M}" == max(done)


def run(ledger, given, seed):
    fresh(ledger)
    for call in shuffled(given, rng_of(seed)):
        count_reports.report(ledger, call, NOW)


def test_window_states_equal_the_oracle_in_any_order_of_reports(ledger):
    given = make_reports(SPRING, 400, rng_of(1))
    expected = expected_states(given)
    assert {grain for _, grain, _ in expected} == {"5min", "10min", "hour", "day"}
    run(ledger, given, seed=0)
    assert states(ledger) == expected
    check_transitions(ledger)
    before = everything(ledger)
    for seed in (1, 2):
        run(ledger, given, seed)
        assert everything(ledger) == before, seed
        check_transitions(ledger)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
def test_states_of_20000_parts_equal_the_oracle_in_any_order(sqlite_ledger, seed):
    """Each of the 50 cases tries 20 permutations: 1,000 in all."""
    given = make_reports(SPRING, 20_000, rng_of(seed))
    expected = expected_states(given)
    for permutation in range(20):
        run(sqlite_ledger, given, 1000 * seed + permutation)
        assert states(sqlite_ledger) == expected, permutation
        check_transitions(sqlite_ledger)


@pytest.mark.parametrize("seed", range(4))
def test_states_of_2000_parts_equal_the_oracle_in_any_order(sqlite_ledger, seed):
    """The soak's check with a tenth of the parts."""
    given = make_reports(SPRING, 2000, rng_of(seed))
    run(sqlite_ledger, given, seed)
    expected = expected_states(given)
    assert states(sqlite_ledger) == expected
    check_transitions(sqlite_ledger)
    check_watermarks(sqlite_ledger, expected)


def test_control_that_versions_reports_by_arrival_is_caught(sqlite_ledger):
    """Each report's version is the number of its arrival: an old report that arrives late then wins."""
    given = make_reports(SPRING, 2000, rng_of(3))
    fresh(sqlite_ledger)
    number = 0
    for call in shuffled(given, rng_of(3)):
        arrived = []
        for each in call:
            number += 1
            arrived.append(type(each)(**{**vars_of(each), "version": f"{number:020d}"}))
        count_reports.report(sqlite_ledger, arrived, NOW)
    assert states(sqlite_ledger) != expected_states(given)


def vars_of(report):
    return {name: getattr(report, name) for name in type(report).__annotations__}

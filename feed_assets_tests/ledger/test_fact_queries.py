"""Facts for decisions: right on any ledger, and as quick on a long history as on a short one."""

from collections.abc import Iterator
from dataclasses import fields

import pytest
import sqlalchemy as sa
from hypothesis import given, settings

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Facts
from feed_assets.ledger import runs, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.fact_queries import facts
from feed_assets.ledger.tables import metadata
from feed_assets_tests.ledger.facts_by_hand import facts_by_hand
from feed_assets_tests.ledger.held import IDS, Held, Ran, asked, ledgers, stored
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.ledger_records import (
    EFFECT,
    NOW,
    SHOWN,
    attempt,
    claim,
    publish,
    scanned,
    seen,
    statements,
    sync,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Yield one ledger for all random ones: each replaces its content."""
    ledger = open_ledger(f"sqlite:///{tmp_path_factory.mktemp('facts') / 'ledger.db'}")
    ledger.engine.dispose()
    sa.event.listen(ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    yield ledger
    ledger.engine.dispose()


def test_facts_of_random_ledgers_equal_those_of_a_full_search(shared):
    reached: set[str] = set()

    @settings(max_examples=100, derandomize=True, database=None)
    @given(held=ledgers, needs=asked)
    def check(held, needs):
        stored(shared, held)
        with shared.read() as connection:
            found = facts(connection, needs, NOW, 3)
            assert found == facts_by_hand(connection, held, needs)
        reached.update(name for name, fact in vars(found).items() if fact)
        if any(choice.due.slices for choice in found.choices.values()):
            reached.add("slices")

    check()
    of_windows = {"windows", "uncounted", "reporting", "reached"}  # in test_window_facts
    of_windows |= {"counting", "counted_by_nobody"}  # in orchestration/test_counting
    of_windows |= {"checks", "waived", "closed"}  # in orchestration/test_gates
    of_windows |= {"counted", "costs"}  # in test_late_facts
    assert reached == {*(fact.name for fact in fields(Facts)), "slices"} - of_windows


def history(length: int) -> Held:
    """Return two partitions with updates and runs of many days, each update built from the one before."""
    names = [f"{2019 + number // 300}{1 + number // 25 % 12:02}{1 + number % 25:02}.060000" for number in range(length)]
    return Held(
        {(partition, name): (updates.PUBLISHED, name) for partition in (EFFECT, SHOWN) for name in names},
        {(EFFECT, name, SHOWN): (name, name, True) for name in names},
        [
            Ran(EFFECT, runs.FAILED if number == length else updates.PUBLISHED, None, None, began=number)
            for number in range(1, length + 1)
        ],
    )


def test_a_long_history_costs_no_more_statements_than_a_short_one(ledger):
    counts = []
    for length in (1, 1000):
        stored(ledger, history(length))
        with ledger.read() as connection, statements(ledger) as executed:
            found = facts(connection, [need_of(EFFECT, (SHOWN,))], NOW, 3)
        counts.append(len(executed))
        assert (len(found.outputs[EFFECT].consumed), len(found.outputs[EFFECT].attempts)) == (1, 1)
    assert counts[0] == counts[1]


def test_facts_of_many_partitions_take_no_more_statements_than_of_one(ledger):
    needs = [
        need_of(Partition(EFFECT.feed, f"p{number}"), (Partition(SHOWN.feed, f"p{number}"),)) for number in range(900)
    ]
    with ledger.read() as connection, statements(ledger) as asked_alone:
        facts(connection, needs[:1], NOW, 3)
    with ledger.read() as connection, statements(ledger) as executed:
        facts(connection, needs, NOW, 3)
    assert len(executed) == len(asked_alone)


def test_fact_queries_never_scan_a_whole_table(sqlite_ledger):
    stored(sqlite_ledger, history(300))
    with sqlite_ledger.read() as connection, statements(sqlite_ledger) as executed:
        facts(connection, [need_of(EFFECT, (SHOWN,)), need_of(SHOWN, (EFFECT,))], NOW, 3)
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values) for sql, values in executed]
        steps = [row.detail for plan in plans for row in plan]
    assert [
        step
        for step in steps
        if "SCAN" in step and "CONSTANT" not in step and "given" not in step and "wanted" not in step
    ] == []
    searched = {step.split(" (")[0] for step in steps if step.startswith("SEARCH run")}
    assert searched == {"SEARCH run USING INDEX run_of_output", "SEARCH run_1 USING INDEX run_of_output"}


def test_the_newest_update_is_found_by_a_seek(sqlite_ledger):
    stored(sqlite_ledger, history(300))
    with sqlite_ledger.read() as connection, statements(sqlite_ledger) as executed:
        updates.newest(connection, [SHOWN])
    with sqlite_ledger.read() as connection:
        ((sql, values),) = executed
        steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert not scanned(steps)
    assert "SEARCH update__1 USING COVERING INDEX update_by_state (feed=? AND partition=? AND state=?)" in steps


def test_every_table_with_a_history_is_covered_by_these_tests():
    by_events = {"event", "event_reject", "inbox", "marker", "taken"}  # test_inbox checks their statements
    by_states = {"report", "window", "watermark", "dataset"}  # test_state_statements checks them
    by_offsets = {"coverage", "window_offsets"}  # test_offset_checks checks them
    small = {"due", "cursor", "batch", "alert", "alert_said", "quality", "pause", "awaited", "subscription"}
    small |= {"waiver", "closure", "profile", "probe", "allocation"}
    small |= {"delivery", "delivery_owner", "delivery_turn"}  # what is not accepted yet
    small |= {"replica_task", "replica_place", "place_health"}  # what is not copied yet, and a row for each place
    by_key = {"api_key", "idempotency", "intake_file", "forgotten"}  # rows of requests: looked up by key, never scanned
    by_key |= {"replica"}  # only `replicate ls` and the sensor's alerts count them
    followed = {"change"}  # read from a number on
    followed |= {"log_lock"}  # has no rows
    assert {
        table.name for table in metadata.sorted_tables
    } - small - by_key - by_events - by_states - by_offsets - followed == {
        "update_",
        "consumed",
        "run",
    }


def test_facts_come_from_one_state_of_the_ledger(ledger):
    """A publication between two of its statements is visible to none of them."""
    sync(ledger, SHOWN, seen(SHOWN, IDS[0]))
    claim(ledger, "run", (EFFECT, IDS[1]), pins=(Pin(SHOWN, IDS[0], "a"),))

    def publish_in_between(_connection, _cursor, statement, _parameters, _context, _many):
        if "consumed" in statement or not waiting:
            return
        waiting.clear()
        publish(ledger, "run", EFFECT, IDS[1])

    waiting = [True]
    with ledger.read() as connection:
        first = updates.newest(connection, [SHOWN]).get(SHOWN)
        sa.event.listen(connection, "before_cursor_execute", publish_in_between)
        found = facts(connection, [need_of(EFFECT, (SHOWN,))], NOW, 3)
    assert first is not None
    assert (waiting, found.outputs) == ([], {})


def test_refused_run_blocks_consumers_until_a_good_run(ledger):
    need = [need_of(EFFECT, (SHOWN,))]

    def held():
        with ledger.read() as connection:
            return dict(facts(connection, need, NOW, 3).failed)

    attempt(ledger, "bad", updates.REFUSED, SHOWN)
    refused = held()
    attempt(ledger, "crashed", runs.FAILED, SHOWN)
    still = held()
    attempt(ledger, "good", updates.PUBLISHED, SHOWN)
    assert refused == still == {SHOWN: "audit: why bad refused"}
    assert held() == {}

"""What decisions are made from: right on any ledger, and as quick on a long history as on a short one."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.core.readiness import Attempt, Facts, Need
from feed_assets.ledger import runs, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.facts import facts
from feed_assets.ledger.tables import consumed, metadata, quality, run, update
from feed_assets_tests.ledger.records import (
    EFFECT,
    NOW,
    SHOWN,
    attempt,
    claim,
    observe,
    publish,
    seen,
    statements,
)

FEEDS = [Feed.parse("ads/shown/v1.0"), Feed.parse("ads/shown"), Feed.parse("ads/effectiveness/v1.0")]
PARTITIONS = [Partition(feed, key) for feed in FEEDS for key in ("2019-11-24/men", "2019-11-24/women")]
IDS = [f"2019112{number}.060000" for number in range(5, 9)]
UPDATE_STATES = [updates.CLAIMED, updates.PUBLISHED, updates.REFUSED, updates.ABANDONED, updates.INVALIDATED]
SIZE = {"size": 7, "files": 1}
RUN_STATES = [updates.PUBLISHED, runs.UNCHANGED, updates.REFUSED, runs.FAILED, updates.ABANDONED]


@dataclass(frozen=True)
class Held:
    """A ledger as plain values: what the oracle reads."""

    updates: dict[tuple[Partition, str], tuple[str, str]]
    consumed: dict[tuple[Partition, str, Partition], tuple[str, str, bool]]
    runs: list[tuple[Partition, str, str | None, str | None]]
    """Oldest first: output, state, pins, reason."""
    failed: dict[Partition, str]
    """Whose quality is bad, and why."""


partitions, ids, versions = st.sampled_from(PARTITIONS), st.sampled_from(IDS), st.sampled_from(["a", "b", "c"])
texts = st.sampled_from([None, "one", "two"])
ledgers = st.builds(
    Held,
    st.dictionaries(
        st.tuples(partitions, ids), st.tuples(st.sampled_from(UPDATE_STATES), versions), min_size=8, max_size=24
    ),
    st.dictionaries(
        st.tuples(partitions, ids, partitions), st.tuples(ids, versions, st.booleans()), min_size=4, max_size=16
    ),
    st.lists(st.tuples(partitions, st.sampled_from(RUN_STATES), texts, texts), min_size=2, max_size=12),
    st.dictionaries(partitions, st.sampled_from(["empty", "out of range"]), max_size=3),
)
asked = st.lists(
    st.builds(Need, partitions, st.lists(partitions, max_size=3, unique=True).map(tuple)), min_size=1, max_size=4
)


def stored(ledger: Ledger, held: Held) -> None:
    """Put plain values in the place of what is in the ledger."""
    rows = {
        update: [
            {**_of(place), "id": name, "state": state, "version": version, **SIZE, "at": NOW, "changed": number}
            for number, ((place, name), (state, version)) in enumerate(held.updates.items())
        ],
        consumed: [
            {**_of(place), "id": name, **_of(source, "input_"), "position": position, "version": version, **SIZE}
            | {"is_input": is_input}
            for (place, name, source), (position, version, is_input) in held.consumed.items()
        ],
        run: [
            {**_of(place), "id": f"{9999 - number}", "state": state, "pins": pins, "began": number, "finished": number}
            | {"process": "host:1:0.00", "started": NOW + timedelta(minutes=number), "reason": reason}
            for number, (place, state, pins, reason) in enumerate(held.runs)
        ],
    }
    rows[quality] = [
        {**_of(place), "check": "c", "state": "failed", "reason": why, "at": NOW} for place, why in held.failed.items()
    ]
    with ledger.write() as connection:
        for table, values in rows.items():
            connection.execute(sa.delete(table))
            if values:
                connection.execute(sa.insert(table), values)


def _of(partition: Partition, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}feed": str(partition.feed), f"{prefix}partition": partition.key}


def told_by_hand(held: Held, needs: list[Need]) -> Facts:
    """The facts, by going through everything."""
    inputs = {partition for need in needs for partition in need.inputs}
    outputs = {need.output for need in needs}
    newest = {place: name for place, name in sorted(held.updates) if held.updates[place, name][0] == updates.PUBLISHED}
    published = {place: newest[place] for place in outputs if place in newest}
    read: dict[Partition, list[Pin]] = {}
    late: dict[Partition, list[str]] = {}
    for (place, update_id, source), (position, version, is_input) in held.consumed.items():
        if is_input and published.get(place) == update_id:
            read.setdefault(place, []).append(Pin(source, position, version, 7, 1))
            late.setdefault(place, []).extend(
                name
                for (where, name), (state, other) in held.updates.items()
                if where == source and state == updates.PUBLISHED and name > position and other != version
            )
    tried: dict[Partition, list[Attempt]] = {}
    for place, state, pins, reason in held.runs:
        if state in (updates.PUBLISHED, runs.UNCHANGED):
            tried.pop(place, None)
        elif state in (updates.REFUSED, runs.FAILED):
            tried.setdefault(place, []).append(Attempt(pins, state == updates.REFUSED, reason or state))
    return Facts(
        now=NOW,
        newest={p: Pin(p, newest[p], held.updates[p, newest[p]][1], 7, 1) for p in inputs if p in newest},
        held={place: why for place, why in held.failed.items() if place in inputs | outputs},
        published=published,
        consumed={place: tuple(sorted(pins)) for place, pins in read.items()},
        late_since={place: parse_update_id(min(names)) for place, names in late.items() if names},
        attempts={place: tuple(tried[place]) for place in outputs if place in tried},
        max_attempts=3,
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One ledger for all the random ones: each replaces what is in it."""
    ledger = open_ledger(f"sqlite:///{tmp_path_factory.mktemp('facts') / 'ledger.db'}")
    yield ledger
    ledger.engine.dispose()


@settings(
    max_examples=100, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(held=ledgers, needs=asked)
def test_the_facts_of_any_ledger_are_those_found_by_going_through_all_of_it(shared, held, needs):
    stored(shared, held)
    with shared.read() as connection:
        assert facts(connection, needs, NOW, 3) == told_by_hand(held, needs)


def history(length: int) -> Held:
    """Two partitions with updates and runs of many days, each update built from the one before."""
    names = [f"{2019 + number // 300}{1 + number // 25 % 12:02}{1 + number % 25:02}.060000" for number in range(length)]
    return Held(
        {(place, name): (updates.PUBLISHED, name) for place in (EFFECT, SHOWN) for name in names},
        {(EFFECT, name, SHOWN): (name, name, True) for name in names},
        [(EFFECT, runs.FAILED if number == length - 1 else updates.PUBLISHED, None, None) for number in range(length)],
        {},
    )


def test_a_long_history_costs_no_more_statements_than_a_short_one(ledger):
    counts = []
    for length in (1, 1000):
        stored(ledger, history(length))
        with ledger.read() as connection, statements(ledger) as executed:
            found = facts(connection, [Need(EFFECT, (SHOWN,))], NOW, 3)
        counts.append(len(executed))
        assert (len(found.consumed[EFFECT]), len(found.attempts[EFFECT])) == (1, 1)
    assert counts[0] == counts[1]


def test_many_partitions_are_asked_about_in_bulk(ledger):
    needs = [
        Need(Partition(EFFECT.feed, f"p{number}"), (Partition(SHOWN.feed, f"p{number}"),)) for number in range(900)
    ]
    with ledger.read() as connection, statements(ledger) as asked_alone:
        facts(connection, needs[:1], NOW, 3)
    with ledger.read() as connection, statements(ledger) as executed:
        facts(connection, needs, NOW, 3)
    assert len(executed) == len(asked_alone)


def test_no_statement_goes_through_a_whole_table(sqlite_ledger):
    stored(sqlite_ledger, history(300))
    with sqlite_ledger.read() as connection, statements(sqlite_ledger) as executed:
        facts(connection, [Need(EFFECT, (SHOWN,)), Need(SHOWN, (EFFECT,))], NOW, 3)
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
        updates.newest(connection, SHOWN)
    with sqlite_ledger.read() as connection:
        ((sql, values),) = executed
        steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert steps == ["SEARCH update_ USING INDEX update_by_state (feed=? AND partition=? AND state=?)"]


def test_every_table_with_a_history_is_covered_by_these_tests():
    by_events = {"event", "event_reject", "inbox", "marker"}  # test_inbox looks at their statements
    small = {"due", "cursor", "batch", "alert", "quality", "pause", "awaited", "subscription"}
    followed = {"change"}  # read from a number on
    assert {table.name for table in metadata.sorted_tables} - small - by_events - followed == {
        "update_",
        "consumed",
        "run",
    }


def test_facts_are_of_one_state_of_the_ledger(ledger):
    """A publication between two of its statements is seen by none of them."""
    observe(ledger, SHOWN, seen(SHOWN, IDS[0]))
    claim(ledger, "run", (EFFECT, IDS[1]), pins=(Pin(SHOWN, IDS[0], "a"),))

    def publish_in_between(_connection, _cursor, statement, _parameters, _context, _many):
        if "consumed" in statement or not waiting:
            return
        waiting.clear()
        publish(ledger, "run", EFFECT, IDS[1])

    waiting = [True]
    with ledger.read() as connection:
        first = updates.newest(connection, SHOWN)
        sa.event.listen(connection, "before_cursor_execute", publish_in_between)
        found = facts(connection, [Need(EFFECT, (SHOWN,))], NOW, 3)
    assert first is not None
    assert (waiting, found.published, found.consumed) == ([], {}, {})


def test_a_refused_run_holds_consumers_until_a_good_end(ledger):
    need = [Need(EFFECT, (SHOWN,))]

    def held():
        with ledger.read() as connection:
            return dict(facts(connection, need, NOW, 3).held)

    attempt(ledger, "bad", updates.REFUSED, SHOWN)
    refused = held()
    attempt(ledger, "crashed", runs.FAILED, SHOWN)
    still = held()
    attempt(ledger, "good", updates.PUBLISHED, SHOWN)
    assert refused == still == {SHOWN: "why bad refused"}
    assert held() == {}

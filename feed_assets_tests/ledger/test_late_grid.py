"""Late data over the real decision code: 144 cases against a table written by hand, and the article's picture."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.late_policy import Late, Periods
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import State, decide
from feed_assets.ledger import claims, due, late_decisions, log, update_changes, updates
from feed_assets.ledger.due import AffectedOutput
from feed_assets.ledger.fact_queries import facts
from feed_assets.ledger.tables import run
from feed_assets_tests.support.build_needs import need_of

RAW, MADE = Feed.parse("ias/raw/v1.0"), Feed.parse("ias/made/v1.0")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = datetime(2024, 3, 1, 6, tzinfo=UTC)
"""Time of the daily check; the partition of the first of March is still running."""
POLICY = Late("5%", check="0 6 * * *", lookback=7)
READ, BUILT, CAME = (update_id(NOW - hours * HOUR) for hours in (20, 19, 1))
GB = 10**9

GRID = """
    -50 %                    w R R s
    -1 %                     w R R s
    0 %                      c c c c
    4.999 %                  w s s s
    5 %                      w R R s
    5.001 %                  w R R s
    10 %                     w R R s
    1000 %                   w R R s
    from 0 bytes             w R R s
    same size, other content w R R s
    same count, 6 % more     w R R s
    file overwritten         w R R s
"""
"""Verdicts on partitions of today, and of 1, 7 and 8 days ago: wait until the day is over, Re-run, skip, current."""

SIZES = {
    "-50 %": (100_000, 50_000, 10),
    "-1 %": (100_000, 99_000, 10),
    "0 %": (100_000, 100_000, 10),
    "4.999 %": (100_000, 104_999, 11),
    "5 %": (100_000, 105_000, 11),
    "5.001 %": (100_000, 105_001, 11),
    "10 %": (100_000, 110_000, 12),
    "1000 %": (100_000, 1_100_000, 99),
    "from 0 bytes": (0, 1, 1),
    "same size, other content": (100_000, 100_000, 10),
    "same count, 6 % more": (100_000, 106_000, 10),
    "file overwritten": (100_000, 100_000, 10),
}
"""Bytes as read and as they are now, and the number of files now; 10 files were read."""

STATES = {"w": State.WAITS_FOR_LATE_DATA, "R": State.REBUILD, "s": State.SKIPS_LATE_DATA, "c": State.CURRENT}
DAYS_AGO = (0, 1, 7, 8)
RUNS = ("running", "failed", "none")


def by_hand():
    """Return the grid by growth and days ago."""
    lines = [line.rsplit(maxsplit=4) for line in GRID.strip().splitlines()]
    return {
        (name.strip(), days): letter for name, *letters in lines for days, letter in zip(DAYS_AGO, letters, strict=True)
    }


CELLS = [*product(SIZES, DAYS_AGO, RUNS)]


def output(cell) -> Partition:
    growth, days, state = cell
    return Partition(MADE, f"{(NOW - days * DAY):%Y-%m-%d}/{[*SIZES].index(growth)}-{state}")


def raw_of(made: Partition) -> Partition:
    return Partition(RAW, made.key)


def periods_of(day: datetime, count: int = 10) -> Periods:
    end = day.replace(hour=0) + DAY
    return Periods(tuple(end + DAY * number for number in range(count)))


def need(made: Partition, policy: Late):
    day = datetime.fromisoformat(made.key.partition("/")[0]).replace(tzinfo=UTC)
    return replace(need_of(made, (raw_of(made),), late=policy), periods=periods_of(day))


def built(connection: sa.Connection, made: Partition, size: int, files: int = 10, name: str = BUILT) -> None:
    """Record an output that was made of an update of so many bytes."""
    read = READ if name == BUILT else CAME
    pin = Pin(raw_of(made), read, "v1" if name == BUILT else "v2", size, files)
    update_changes.insert(connection, made, name, updates.RUN, updates.PUBLISHED, NOW - HOUR, run=f"run {made} {name}")
    claims.consume(connection, (made, name), pin, is_input=True)


def came(connection: sa.Connection, made: Partition, name: str, version: str, size: int, files: int) -> None:
    values = {"version": version, "size": size, "files": files, "correlation": f"{made} {name}"}
    update_changes.insert(connection, raw_of(made), name, updates.FOREIGN, updates.PUBLISHED, NOW, **values)


def ran(made: Partition, state: str) -> dict:
    """Return the row of a run that goes on, or of one that failed an hour ago."""
    ended = None if state == "running" else NOW - HOUR
    numbers = {"began": 10**6, "finished": None if ended is None else 10**6 + 1}
    key = {"id": str(made), "feed": str(made.feed), "partition": made.key, "state": state, "reason": "OutOfMemory"}
    return {**key, **numbers, "process": "host:1:0.00", "started": NOW - 2 * HOUR, "ended": ended}


@pytest.fixture
def filled(ledger):
    """Return a ledger with all cells, each as its own output."""
    with ledger.change() as connection:
        for cell in CELLS:
            growth, _, state = cell
            before, now, files = SIZES[growth]
            is_other, is_in_place = growth != "0 %", growth == "file overwritten"
            came(connection, output(cell), READ, "v2" if is_in_place else "v1", before, 10)
            if is_other and not is_in_place:
                came(connection, output(cell), CAME, "v2", now, files)
            built(connection, output(cell), before)
            if state != "none":
                connection.execute(sa.insert(run).values(ran(output(cell), state)))
        number = log.last(connection)
        due.wake(connection, [AffectedOutput(output(cell), number, NOW) for cell in CELLS], NOW)
    return ledger


def decided(ledger, policy: Late, cells=CELLS, now=NOW):
    """Return the verdicts on all cells, recorded as a tick does, and the partitions that would then be requested."""
    needs = [need(output(cell), policy) for cell in cells]
    with ledger.read() as connection:
        found = decide(needs, facts(connection, needs, now, 3))
        listed = {each.partition: each for each in due.look(connection, [MADE], now, 1000)}
    late_decisions.record(ledger, found, now)
    due.acknowledge(ledger, [(listed[each.output], each) for each in found], now)
    with ledger.read() as connection:
        requested = {each.partition for each in due.to_rebuild(connection, now, 1000).get(MADE, [])}
    return dict(zip(cells, found, strict=True)), requested


def letters(verdicts):
    by_state = {state: letter for letter, state in STATES.items()}
    return {(growth, days): by_state[each.state] for (growth, days, _), each in verdicts.items()}


def test_144_cases_are_decided_as_the_table_says(filled):
    table = by_hand()
    assert len(CELLS) == 144
    verdicts, requested = decided(filled, POLICY)
    assert {cell: each.state for cell, each in verdicts.items()} == {cell: STATES[table[cell[:2]]] for cell in CELLS}
    again = {output(cell) for cell in CELLS if table[cell[:2]] == "R" and cell[2] != "running"}
    assert requested == again
    assert len(again) == 40


def test_each_late_decision_is_logged_once_with_its_sizes(filled):
    verdicts, _ = decided(filled, POLICY)
    for _ in range(3):
        late_decisions.record(filled, verdicts.values(), NOW)
    with filled.read() as connection:
        found = {each.partition: each for each in late_decisions.decisions(connection, 1000)}
        assert len(late_decisions.decisions(connection, 1000)) == len(found)
    assert found.keys() == {output(cell) for cell in CELLS if cell[0] != "0 %"}
    ten = found[output(("10 %", 1, "none"))]
    assert (ten.outcome, ten.before, ten.after, ten.growth, ten.files) == ("re-run", 100_000, 110_000, 0.1, 2)
    waits = found[output(("10 %", 0, "none"))]
    assert (waits.outcome, waits.until) == ("wait", NOW.replace(hour=6) + DAY)


def test_extended_wait_is_logged_once_with_its_new_end(ledger):
    made, policy = Partition(MADE, "2024-02-29"), Late("5%", max_age=3 * DAY, check="daily")
    with ledger.change() as connection:
        came(connection, made, READ, "v1", 100_000, 10)
        built(connection, made, 100_000)
        came(connection, made, CAME, "v2", 101_000, 11)
    midnight = NOW.replace(hour=0) + DAY
    for now in (NOW, midnight, midnight + HOUR, midnight + DAY, midnight + 2 * DAY):
        with ledger.read() as connection:
            found = decide([need(made, policy)], facts(connection, [need(made, policy)], now, 3))
        late_decisions.record(ledger, found, now)
    with ledger.read() as connection:
        told = [(each.at, each.outcome, each.until) for each in reversed(late_decisions.decisions(connection, 9))]
    assert told == [(NOW, "wait", midnight), (midnight, "wait", midnight + 3 * DAY)]


def articles_operator(growth: str, days: int) -> str:
    """Return the decision of the article's operator, by sizes alone."""
    before, now, _ = SIZES[growth]
    if days not in range(1, 8):
        return "s"
    return "s" if (now - before) / before * 100 < 5 else "R"


def test_the_table_catches_a_rule_that_goes_by_sizes_alone():
    table = by_hand()
    with pytest.raises(ZeroDivisionError):
        articles_operator("from 0 bytes", 1)
    others = [growth for growth in SIZES if growth != "from 0 bytes"]
    wrong = {growth for growth in others if articles_operator(growth, 1) != table[growth, 1]}
    assert wrong == {"-50 %", "-1 %", "same size, other content", "file overwritten", "0 %"}


@pytest.mark.parametrize(
    "policy", [replace(POLICY, lookback=8), replace(POLICY, lookback=6), replace(POLICY, growth="5.0005%")]
)
def test_the_table_catches_a_policy_that_is_off_by_one(filled, policy):
    assert letters(decided(filled, policy)[0]) != by_hand()


ARTICLE = {"2024-02-27": 110 * GB, "2024-02-28": 104 * GB, "2024-02-29": 103 * GB}
"""Bytes present at the check, of days of which 100 GB were processed."""


def days(ledger) -> list[Partition]:
    found = [Partition(MADE, day) for day in ARTICLE]
    with ledger.change() as connection:
        for made in found:
            came(connection, made, READ, "v1", 100 * GB, 10)
            built(connection, made, 100 * GB)
            came(connection, made, CAME, "v2", ARTICLE[made.key], 11)
    return found


def article(ledger, found, policy: Late | None = None):
    needs = [need(each, policy or Late("5%", check="daily")) for each in found]
    with ledger.read() as connection:
        return {each.output.key: each for each in decide(needs, facts(connection, needs, NOW + DAY, 3))}


def test_of_the_articles_three_days_only_the_one_that_grew_by_a_tenth_reruns(ledger):
    found = days(ledger)
    verdicts = article(ledger, found)
    assert {day: each.state for day, each in verdicts.items()} == {
        "2024-02-27": State.REBUILD,
        "2024-02-28": State.SKIPS_LATE_DATA,
        "2024-02-29": State.SKIPS_LATE_DATA,
    }
    assert "(100000000000 to 110000000000 bytes)" in verdicts["2024-02-27"].reason
    assert "(+4.0%) are below the threshold of 5.0%" in verdicts["2024-02-28"].reason
    late_decisions.record(ledger, verdicts.values(), NOW)
    with ledger.read() as connection:
        said = [
            (each.partition.key, each.outcome, each.after // GB) for each in late_decisions.decisions(connection, 9)
        ]
    assert sorted(said) == [("2024-02-27", "re-run", 110), ("2024-02-28", "skip", 104), ("2024-02-29", "skip", 103)]


def test_rerun_makes_a_late_partition_current(ledger):
    found = days(ledger)
    with ledger.change() as connection:
        built(connection, found[0], 110 * GB, 11, update_id(NOW))
    assert article(ledger, found)["2024-02-27"].state is State.CURRENT


class Overtaken:
    """A ledger on which another tick records the same just before this one writes."""

    def __init__(self, ledger, before):
        self.read, self._ledger, self._before = ledger.read, ledger, before

    def change(self):
        self._before()
        return self._ledger.change()


def test_two_ticks_with_the_same_decision_log_it_once(ledger):
    verdicts = [*article(ledger, days(ledger)).values()]
    late_decisions.record(Overtaken(ledger, lambda: late_decisions.record(ledger, verdicts, NOW)), verdicts, NOW)
    with ledger.read() as connection:
        assert len(late_decisions.decisions(connection, 100)) == 3


def test_late_decisions_wake_no_reader_of_the_log(ledger):
    verdicts = [*article(ledger, days(ledger)).values()]
    with ledger.read() as connection:
        before = log.last(connection)
    late_decisions.record(ledger, verdicts, NOW)
    with ledger.read() as connection:
        assert log.last(connection) == before + 3
        assert not log.has_after(connection, before)
        assert log.after(connection, before, before + 3, 100) == ()
        assert max(log.last_of(connection, [each.output for each in verdicts]).values()) <= before

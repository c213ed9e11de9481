"""Offsets that parts and sources report: missing ones keep a window open, and repeated ones are an issue."""

import random
from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import InvalidReport
from feed_assets.core.feeds import Feed
from feed_assets.core.offset_comparison import OffsetProblems
from feed_assets.core.offsets import compared, joined
from feed_assets.core.sub_partitions import Tracked
from feed_assets.ledger.states import count_reports, window_queries
from feed_assets.ledger.tables import coverage, window_offsets
from feed_assets_tests.ledger.offset_reports import W, parsed, part, said, source, state
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW
from feed_assets_tests.support.ledger_records import scanned, statements


def test_offsets_that_no_part_holds_keep_a_window_open(ledger):
    said(ledger, source(W[:1], records=200))
    said(ledger, part("a", W[:1], {"0": [0, 99]}), part("b", W[:1], {"0": [150, 249]}))
    assert state(ledger) == ("open", "offsets 100-149 of partition 0 are in no part")
    said(ledger, part("c", W[1:2], {"0": [100, 149]}))
    assert state(ledger) == ("complete", "")


def test_offsets_that_several_of_its_parts_hold_are_an_issue(ledger):
    said(ledger, source(W[:1], records=200))
    said(ledger, part("a", W[:1], {"0": [0, 99]}), part("b", W[:1], {"0": [50, 149]}))
    assert state(ledger) == ("complete_with_issue", "over-counted: offsets 50-99 of partition 0 are in several parts")
    said(ledger, part("b", W[:1], {"0": [100, 149]}, version=1))
    assert state(ledger) == ("complete", "")


def test_offsets_at_the_broker_that_no_part_holds_keep_a_window_open(ledger):
    said(ledger, source(W[:1], {"0": [0, 199], "1": [7, 7]}))
    said(ledger, part("a", W[:1], {"0": [10, 149]}))
    wrong = ("offsets 0-9 of partition 0 are in no part", "offsets 150-199 of partition 0 are in no part")
    assert state(ledger) == ("open", "; ".join((*wrong, "offset 7 of partition 1 is in no part")))
    said(ledger, part("b", {}, {"0": [0, 9], "1": [0, 7]}), part("c", W[1:2], {"0": [150, 300]}))
    assert state(ledger) == ("complete", "")


def test_records_that_a_transaction_or_compaction_leaves_out_are_no_gap(ledger):
    """A range is what was read, whatever number of records it has."""
    said(ledger, source(W[:1]))
    said(ledger, part("a", {W[0]: 60}, {"0": [0, 499]}), part("b", {W[0]: 40}, {"0": [500, 999]}))
    assert state(ledger) == ("complete", "")


def test_parts_of_other_windows_may_hold_the_same_offsets(ledger):
    """A writer with one file for each hour of event time has two files of one range of offsets."""
    said(ledger, source(W[:2]))
    said(ledger, part("a", W[:1], {"0": [0, 999]}), part("b", W[1:2], {"0": [3, 1003]}))
    assert state(ledger, W[0]) == state(ledger, W[1]) == ("complete", "")


def test_parts_without_offsets_are_compared_by_counts_alone(ledger):
    said(ledger, source(W[:1], {"0": [0, 99]}))
    said(ledger, part("a", W[:1]))
    assert state(ledger) == ("complete", "")


def test_unread_topic_partition_keeps_a_window_open(ledger):
    said(ledger, source(W[:1], {"0": [0, 99], "1": [0, 0]}), part("a", W[:1], {"0": [0, 99]}))
    assert state(ledger) == ("open", "offset 0 of partition 1 is in no part")


def test_withdrawn_part_uncovers_its_offsets(ledger):
    said(ledger, source(W[:3]))
    said(ledger, *(part(f"{n}", W[n : n + 1], {"0": [n * 100, n * 100 + 99]}) for n in range(3)))
    late = part("late", {W[0]: 1}, {"0": [300, 309]})
    said(ledger, late, source([W[0]], records=101, version=1))
    assert state(ledger) == ("complete", "")
    said(ledger, part("1", [], version=1))
    assert state(ledger) == ("open", "offsets 100-199 of partition 0 are in no part")
    said(ledger, part("1", W[1:2], {"0": [100, 199]}, version=2))
    assert state(ledger) == ("complete", "")


def test_offsets_skipped_at_a_rebalance_are_found(ledger):
    """The files are named as in issue 118 of kafka-connect-hdfs; its next file began 15,748 offsets too late."""
    ranges = [(0, 0), (1, 100_000), (100_001, 200_000), (215_749, 215_749), (215_750, 315_749)]
    names = [f"topic1+0+{first:010d}+{last:010d}.avro" for first, last in ranges]
    said(ledger, source(W[:1], records=500))
    said(ledger, *(part(name, W[:1], {"0": [*each]}) for name, each in zip(names, ranges, strict=True)))
    assert state(ledger) == ("open", "offsets 200001-215748 of partition 0 are in no part")


def test_offsets_lost_by_an_overwritten_file_are_found(ledger):
    """Two tasks wrote one object, as in issue 253 of kafka-connect-storage-cloud; the next object began after it."""
    said(ledger, source(W[:1], records=62))
    said(ledger, part("foo+0", {W[0]: 31}, {"0": [0, 30]}), part("foo+31", {W[0]: 31}, {"0": [31, 61]}))
    assert state(ledger) == ("complete", "")
    said(ledger, part("foo+0", {W[0]: 31}, {"0": [0, 20]}, version=1))
    assert state(ledger) == ("open", "offsets 21-30 of partition 0 are in no part")


def test_exclusive_end_offsets_are_reported_as_overlaps(ledger):
    """Spark's `endOffset` is such an offset: each part then seems to hold the first offset of the next."""
    said(ledger, source(W[:1], records=200), *(part(f"{n}", W[:1], {"0": [n * 100, n * 100 + 100]}) for n in range(2)))
    assert state(ledger) == ("complete_with_issue", "over-counted: offset 100 of partition 0 is in several parts")


def test_missing_offsets_keep_larger_windows_open(ledger):
    said(ledger, source(HOUR_15, records=100))
    said(ledger, *(part(f"{n}", [at], {"0": [n * 100, n * 100 + 98]}) for n, at in enumerate(HOUR_15)))
    assert state(ledger, W[0], "hour")[0] == "complete"
    said(ledger, part("x", {W[0]: 0, W[3]: 1}, {"0": [2000, 2001]}), source(W[3:4], records=101, version=1))
    assert state(ledger, W[0])[0] == "complete"
    assert state(ledger, W[0], "hour")[0] == "open"


def test_explanation_names_three_of_many_offset_ranges(ledger):
    said(ledger, source(W[:1]), *(part(f"{n}", {W[0]: 10}, {"0": [n * 10, n * 10 + 8]}) for n in range(10)))
    ranges = [f"offset {n}9 of partition 0 is in no part" for n in ("", "1", "2")]
    assert state(ledger) == ("open", "; ".join((*ranges, "and 6 more ranges")))


def test_changed_declaration_compares_offsets_again(ledger):
    said(ledger, source(W[:1], records=200), source(W[:1], {"0": [0, 500]}, tier="audit", records=200))
    said(ledger, part("a", W[:1], {"0": [0, 99]}), part("b", W[:1], {"0": [50, 149]}))
    assert state(ledger)[0] == "open"
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(tiers=("kafka",)))}, NOW)
    assert state(ledger)[0] == "complete_with_issue"
    said(ledger, part("b", W[1:2], {"0": [50, 149]}, version=1), source(W[:1], version=1))
    assert state(ledger)[0] == "complete"
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=("10min", "hour"), tiers=("kafka",)))}, NOW)
    assert state(ledger, W[0], "10min") == (
        "complete_with_issue",
        "over-counted: offsets 50-99 of partition 0 are in several parts",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (source(W[:2], {"0": [0, 9]}), "offsets: found one field for several windows"),
        (part("a", W[:1], {"0": [0, 2**63 - 1]}), "offsets.0"),
    ],
)
def test_unusable_offsets_are_refused(line, why):
    with pytest.raises(InvalidReport, match=why):
        parsed(line)


class World:
    """Parts and sources as sets of single offsets: an oracle that counts them to find what is wrong with a window."""

    def __init__(self):
        self.reports = {}

    def put(self, line):
        key = line["kind"], line.get("tier"), line.get("part") or tuple(line["at"])
        if key not in self.reports or line.get("version", 0) > self.reports[key].get("version", 0):
            self.reports[key] = line

    def wrong(self, at):
        """Return the offsets of a window, by partition, that no part holds, and those that several parts hold."""
        parts = [line for line in self.reports.values() if line["kind"] == "part"]
        mine = [line for line in self.reports.values() if line["at"].get(at)]
        if not any(line["kind"] == "part" and line.get("offsets") for line in mine):
            return {}, {}
        named, held, twice = {}, {}, {}
        for line in mine:
            for name, (first, last) in (line.get("offsets") or {}).items():
                named.setdefault(name, set()).update(range(first, last + 1))
                if line["kind"] == "part":
                    twice.setdefault(name, Counter()).update(range(first, last + 1))
        for line in parts:
            for name, (first, last) in (line.get("offsets") or {}).items():
                held.setdefault(name, set()).update(range(first, last + 1))
        lacking = {name: {*range(min(some), max(some) + 1)} - held.get(name, set()) for name, some in named.items()}
        doubled = {name: {offset for offset, count in some.items() if count > 1} for name, some in twice.items()}
        return lacking, doubled


def lines_at_random(rng):
    """Return parts that mostly follow each other, corrections, withdrawn parts, and the broker's offsets."""
    lines = []
    for name in ("0", "1"):
        at = 0
        for number in range(rng.randrange(4, 9)):
            first = max(at + rng.choice([0, 0, 0, 0, 3, -2]), 0)
            last = first + rng.randrange(1, 12)
            at = last + 1
            some = {each: rng.choice([0, 1, 5]) for each in rng.sample(W, rng.randrange(1, 3))}
            lines.append(part(f"{name}/{number}", some, {name: [first, last]}))
            if rng.random() < 0.3:
                moved = {name: [first, max(last - rng.randrange(3), first)]}
                lines.append(part(f"{name}/{number}", some if rng.random() < 0.6 else {}, moved, version=1))
            if rng.random() < 0.2:
                lines.append(part(f"{name}/{number}", {}, None, version=2))
    for each in rng.sample(W, 3):
        first = rng.randrange(40)
        lines.append(source([each], {rng.choice(["0", "1"]): [first, first + rng.randrange(15)]}, version=1))
    lines.append(part("no offsets", {W[0]: 1}))
    return lines


def check_against(world, ledger, dataset):
    addresses = {at: window_queries.WindowAddress(dataset, "", "5min", f"{at:%Y-%m-%d-%H:%M}") for at in W}
    with ledger.read() as connection:
        known = window_queries.stored_windows(connection, addresses.values())
    for at, address in addresses.items():
        lacking, doubled = (
            {name: joined((one, one) for one in sorted(some)) for name, some in each.items()}
            for each in world.wrong(at)
        )
        found = known[address].offsets if address in known else OffsetProblems()
        assert found == compared(lacking, doubled), (at, world.reports)


def kept(ledger, dataset):
    """Return everything that the ledger keeps of a dataset's offsets."""
    with ledger.read() as connection:
        queries = [sa.select(table).where(table.c.dataset == str(dataset)) for table in (coverage, window_offsets)]
        return [sorted(tuple(map(str, row))[1:] for row in connection.execute(query)) for query in queries]


def in_an_order(ledger, lines, rng, dataset):
    """Report the lines in random order, cut into calls at random, some of them twice."""
    world, order = World(), [*lines, *rng.sample(lines, 3)]
    rng.shuffle(order)
    while order:
        size = rng.choice((1, 1, 2, 5))
        batch, order = order[:size], order[size:]
        for line in batch:
            world.put(line)
        outcome = count_reports.report(ledger, [each for line in batch for each in parsed(line, dataset)], NOW)
        assert not outcome.rejected, outcome.rejected
        check_against(world, ledger, dataset)
    return kept(ledger, dataset)


def check_orders(ledger, seed, orders=3):
    """Assert that every window always is as the oracle counts it, and that every order ends in the same state."""
    lines = lines_at_random(random.Random(seed))  # noqa: S311
    found = [
        in_an_order(ledger, lines, random.Random(seed * 1000 + number), Feed.parse(f"web/{seed}_{number}"))  # noqa: S311
        for number in range(orders)
    ]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("seed", range(12))
def test_offsets_do_not_depend_on_the_order_of_reports(sqlite_ledger, seed):
    check_orders(sqlite_ledger, seed)


@pytest.mark.parametrize("seed", range(100, 103))
def test_offsets_do_not_depend_on_the_order_of_reports_on_postgresql(postgresql_ledger, seed):
    check_orders(postgresql_ledger, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_offsets_of_300_topics_do_not_depend_on_the_order_of_reports(sqlite_ledger, seed):
    check_orders(sqlite_ledger, seed)


def test_offset_statements_do_not_grow_with_earlier_reports(ledger):
    """The number depends neither on a load from the newest part to the oldest, nor on the gaps that are left."""

    def report_one(number):
        at, first = W[0] - timedelta(minutes=5 * number), 10**9 - number * 100
        lines = [source([at], {"0": [first, first + 98]}), part(f"{number}", [at], {"0": [first, first + 98]})]
        with statements(ledger) as executed:
            said(ledger, *lines)
        return list(executed)

    numbers = [len(report_one(number)) for number in range(40)]
    assert max(numbers[20:]) <= max(numbers[5:20])
    if ledger.engine.dialect.name == "sqlite":
        with ledger.read() as connection:
            for sql, values in report_one(41):
                if sql.startswith(("SELECT", "WITH")):
                    steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
                    tables = ("coverage", "window_offsets")
                    found = [step for step in scanned(steps) if any(f"SCAN {name}" in step for name in tables)]
                    assert not found, sql

"""Ledgers as plain values, drawn at random, and a function that stores one."""

from dataclasses import dataclass, field

import sqlalchemy as sa
from hypothesis import strategies as st

from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer
from feed_assets.ledger import quality, runs, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import batch, consumed, event, metadata, pause, run, subscription, update
from feed_assets.ledger.tables import inbox as inbox_table
from feed_assets.ledger.tables import quality as quality_table
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.ledger_records import MINUTE, NOW

FEEDS = [Feed.parse("ads/shown/v1.0"), Feed.parse("ads/shown"), Feed.parse("ads/effectiveness/v1.0")]
PARTITIONS = [Partition(feed, key) for feed in FEEDS for key in ("2019-11-24/men", "2019-11-24/women")]
LINES = Feed.parse("ads/lines/v1.0")
PARENTS = [Partition(LINES, day) for day in ("2019-11-24", "2019-11-25")]
BATCHES = [Partition(LINES, f"{parent.key}/{name}") for parent in PARENTS for name in ("b1", "b2")]
ORDERS = Partition(Feed.parse("shop/orders"), "2019-11-24/men")
"""Partition of the event table."""
REPORT = Partition(Feed.parse("ads/report/v1.0"), "2019-11-24/men")
READS = (PARTITIONS[0], PARTITIONS[4], ORDERS)
CONSUMER = Consumer(REPORT.feed, frozenset(each.feed for each in READS), {"p": frozenset({FEEDS[0], ORDERS.feed})})
"""A dataset by events, with a feed and a table in one pipeline and a feed in none."""
IDS = [f"2019112{number}.060000" for number in range(5, 8)]
OTHER_STATES = [updates.CLAIMED, updates.REFUSED, updates.ABANDONED, updates.INVALIDATED, updates.PRUNED]
RUN_STATES = [updates.PUBLISHED, runs.UNCHANGED, updates.REFUSED, runs.FAILED, updates.ABANDONED]
SIZE = {"size": 7, "files": 1}


@dataclass(frozen=True)
class Ran:
    """A run that has ended, with the numbers of the last changes at its start and at its end."""

    output: Partition
    state: str
    pins: str | None
    reason: str | None
    began: int = 0
    lasted: int = 0
    made_with: str | None = None

    @property
    def finished(self) -> int:
        return self.began + self.lasted


@dataclass(frozen=True)
class Reported:
    """An event, in the order of recording; `is_left`: the consumer has not consumed it."""

    partition: Partition
    marker: str
    correlation: str
    operation: Operation
    is_left: bool


@dataclass(frozen=True)
class Held:
    """A ledger as the oracle reads it."""

    updates: dict[tuple[Partition, str], tuple[str, str]]
    consumed: dict[tuple[Partition, str, Partition], tuple[str, str, bool]]
    runs: list[Ran]
    """Runs in the order of their start."""
    batches: frozenset[Partition] = frozenset()
    checks: dict[tuple[Partition, str], tuple[str, str | None]] = field(default_factory=dict)
    """State and reason by partition and check."""
    paused: frozenset[Feed] = frozenset()
    events: tuple[Reported, ...] = ()
    position: int = 0
    """Number of the last event of its tables that the consumer has received."""

    def changed(self, partition: Partition, name: str) -> int:
        """Return the number of an update's last change in the log."""
        return [*self.updates].index((partition, name))


partitions = st.sampled_from([*PARTITIONS, *BATCHES, REPORT])
outputs = st.sampled_from([*PARTITIONS[:2], REPORT])
ids, versions = st.sampled_from(IDS), st.sampled_from(["a", "b", "c"])
texts = st.sampled_from([None, "one", "two"])
states = st.sampled_from([updates.PUBLISHED] * 5 + OTHER_STATES)
read = st.tuples(ids, versions, st.booleans())
ledgers = st.builds(
    Held,
    st.dictionaries(st.tuples(partitions, ids), st.tuples(states, versions), min_size=16, max_size=40),
    st.dictionaries(
        st.tuples(outputs, ids, st.sampled_from([*PARTITIONS, *BATCHES, ORDERS])), read, min_size=8, max_size=30
    ),
    st.lists(
        st.builds(Ran, outputs, st.sampled_from(RUN_STATES), texts, texts, st.integers(0, 5), st.integers(0, 3), texts),
        min_size=2,
        max_size=12,
    ),
    st.sets(st.sampled_from(BATCHES)).map(frozenset),
    st.dictionaries(
        st.tuples(partitions, st.sampled_from(["unique", "within"])),
        st.tuples(st.sampled_from([quality.PASSED, quality.FAILED]), texts),
        max_size=6,
    ),
    st.sets(st.sampled_from([*FEEDS, REPORT.feed])).map(frozenset),
    st.lists(
        st.builds(
            Reported, st.sampled_from(READS), ids, st.sampled_from("XYZ"), st.sampled_from(Operation), st.booleans()
        ),
        max_size=8,
        unique_by=lambda reported: (reported.partition, reported.marker, reported.correlation),
    ).map(tuple),
    st.integers(0, 8),
)
plain = st.builds(need_of, outputs, st.lists(st.sampled_from(PARTITIONS), max_size=3, unique=True).map(tuple))
of_batches = st.builds(
    lambda output, parents, more: need_of(output, (*parents, *more), sets=[LINES]),
    outputs,
    st.lists(st.sampled_from(PARENTS), min_size=1, unique=True),
    st.lists(st.sampled_from(PARTITIONS), max_size=1),
)
by_events = st.builds(
    lambda more: need_of(REPORT, (*READS, *more), consumer=CONSUMER, tables=[ORDERS.feed], sets=[LINES]),
    st.lists(st.sampled_from(PARENTS), max_size=1),
)
asked = st.lists(st.one_of(plain, of_batches, by_events), min_size=1, max_size=4, unique_by=lambda need: need.output)


def stored(ledger: Ledger, held: Held) -> None:
    """Replace the content of the ledger by plain values."""
    rows = {
        update: [
            {**_of(partition), "id": name, "origin": "run", "state": state, "version": version, **SIZE}
            | {"at": NOW, "changed": number}
            for number, ((partition, name), (state, version)) in enumerate(held.updates.items())
        ],
        consumed: [
            {**_of(partition), "id": name, **_of(source, "input_"), "position": position, "version": version, **SIZE}
            | {"is_input": is_input}
            for (partition, name, source), (position, version, is_input) in held.consumed.items()
        ],
        run: [
            {**_of(ran.output), "id": f"{9999 - number}", "state": ran.state, "pins": ran.pins, "reason": ran.reason}
            | {"process": "host:1:0.00", "started": NOW + number * MINUTE, "ended": NOW + (number + 1) * MINUTE}
            | {"began": ran.began, "finished": ran.finished, "made_with": ran.made_with}
            for number, ran in enumerate(held.runs)
        ],
        batch: [{"feed": str(LINES), "partition": parent_of(each).key, "key": each.key} for each in held.batches],
        quality_table: [
            {**_of(partition), "check": check, "state": state, "reason": reason, "by": "run", "at": NOW}
            for (partition, check), (state, reason) in held.checks.items()
        ],
        pause: [{"feed": str(feed), "why": f"of {feed}", "at": NOW} for feed in held.paused],
        **_of_events(held),
    }
    with ledger.change() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))
        for table, values in rows.items():
            if values:
                connection.execute(sa.insert(table), values)


def _of_events(held: Held) -> dict[sa.Table, list[dict[str, object]]]:
    reported = list(enumerate(held.events, 1))
    last: dict[Partition, str] = {}
    written: list[dict[str, object]] = []
    for number, each in reported:
        written.append(
            {
                **_of(each.partition),
                "sequence": number,
                "source": "",
                "marker": each.marker,
                "event_marker": each.marker,
            }
            | {"previous": last.get(each.partition), "correlation": each.correlation, "operation": each.operation.value}
            | {"context": "{}", "at": NOW}
        )
        last[each.partition] = max(each.marker, last.get(each.partition, ""))
    left = [number for number, each in reported if each.is_left and number <= held.position]
    return {
        event: written,
        inbox_table: [{**_of(REPORT), "sequence": number} for number in left],
        subscription: [
            {"subscriber": str(REPORT.feed), "feed": str(each.feed), "position": held.position} for each in READS
        ],
    }


def _of(partition: Partition, prefix: str = "") -> dict[str, object]:
    return {f"{prefix}feed": str(partition.feed), f"{prefix}partition": partition.key}


def parent_of(member: Partition) -> Partition:
    """Return the partition that holds a batch."""
    return Partition(member.feed, member.key.rsplit("/", 1)[0])

"""Source counts of topics, over a real broker, into the state store."""

from collections import Counter
from datetime import timedelta

import pytest

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.feeds import Feed
from feed_assets.core.limits import as_text
from feed_assets.kafka import message_counts as kafka_counts
from feed_assets.kafka import topic_identity
from feed_assets.ledger.states import state_views
from feed_assets.sources.report_reader import record
from feed_assets.sources.topic_counts import SourceCounts
from feed_assets_tests.support.counted_topics import START, CountedTopic, minutes, start_of

STEP = timedelta(minutes=5)


@pytest.fixture
def log(broker):
    return CountedTopic(broker)


class Clock:
    """A clock that returns the set time."""

    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


def counts(log, tier, clock):
    return SourceCounts(log.clients, log.topic, "web/clicks", tier, STEP, clock)


@pytest.fixture
def trusted(monkeypatch):
    """Make sources accept timestamps that the tests set; otherwise such a topic is refused."""
    monkeypatch.setattr(kafka_counts, "refusal", lambda *_: None)


def told(reports):
    """Return the records by window, over all reports."""
    return sum((Counter({each["start"]: each["records"] for each in said["windows"]}) for said in reports), Counter())


def offsets_of(report):
    """Return the offsets that a report has, by the minute at which each window starts."""
    return {each["start"].minute: each.get("offsets", {}) for each in report["windows"]}


def recorded(ledger, reports):
    (outcome,) = record(ledger, map(as_text, reports), "test")
    assert outcome.rejected == []
    return outcome.accepted


def test_broker_counts_cover_all_ended_windows_even_empty_ones(log, ledger, trusted):
    log.produce([(0, each) for each in minutes(1, 2, 11)] + [(1, each) for each in minutes(3, 16, 17)])
    clock = Clock(*minutes(21))
    source = counts(log, "broker", clock)
    first = source.read(None)
    ((report,),) = [first.reports]
    assert {each["start"]: each["records"] for each in report["windows"]} == dict(
        zip(minutes(0, 5, 10), (3, 0, 1), strict=True)
    )
    assert offsets_of(report) == {0: {"0": [0, 1], "1": [0, 0]}, 5: {}, 10: {"0": [2, 2]}}
    assert recorded(ledger, first.reports) == 3
    assert source.read(first.position).reports == ()
    log.produce([(1, each) for each in minutes(18, 26)])
    clock.now += 2 * STEP
    second = source.read(first.position)
    assert told(second.reports) == Counter({minutes(15)[0]: 3, minutes(25)[0]: 0})
    assert [*map(offsets_of, second.reports)] == [{15: {"1": [1, 3]}, 20: {}}]
    clock.now -= 2 * STEP
    assert recorded(ledger, source.read(None).reports) == 0, "what was told is known"


def test_the_broker_tells_of_no_window_whose_beginning_it_has_removed(log, trusted):
    log.produce([(0, each) for each in minutes(1, 2, 6, 7)])
    log.remove(0, 1)
    clock = Clock(*minutes(20))
    source = counts(log, "broker", clock)
    first = source.read(None)
    assert told(first.reports) == Counter({minutes(5)[0]: 2})
    log.produce([(0, each) for each in minutes(16, 21)])
    log.remove(0, 5)
    clock.now += 2 * STEP
    with pytest.raises(SourceUnavailable, match=r"so their number is unknown\. `feed-assets reconcile` counts"):
        source.read(first.position)


@pytest.mark.parametrize("tier", ["broker", "reader"])
def test_a_topic_that_was_made_anew_is_not_counted_on(log, trusted, monkeypatch, tier):
    log.send([(0, each) for each in minutes(1, 2, 11)])
    source = counts(log, tier, Clock(*minutes(21)))
    position = source.read(None).position
    assert position is not None
    monkeypatch.setattr(topic_identity, "id_of", lambda *_: "another")
    with pytest.raises(SourceUnavailable, match=rf"{log.topic} was deleted and recreated, .* Declare it with another"):
        source.read(position)


def test_broker_counts_are_refused_for_topics_with_producer_timestamps(log):
    with pytest.raises(SourceUnavailable, match=r"cannot count: .* CreateTime: .*Declare the tier 'reader'"):
        counts(log, "broker", Clock()).read(None)


def test_a_reader_counts_every_window_and_repeated_reports_change_nothing(log, ledger):
    source, position, reports = counts(log, "reader", Clock()), None, []
    for batch in (minutes(1, 2, 11), minutes(1, 7), minutes(59)):
        log.send([(0, each) for each in batch])
        found = source.read(position)
        assert source.read(position) == found, "as after a kill"
        position = found.position
        reports += found.reports
    assert source.read(position).reports == ()
    assert told(reports[-1:]) == Counter(start_of(each) for each in minutes(1, 2, 11, 1, 7, 59))
    # Offsets 3, 6 and 8 are ends of transactions.
    assert offsets_of(reports[0]) == {0: {"0": [0, 1]}, 10: {"0": [2, 2]}}
    assert offsets_of(reports[-1]) == {0: {"0": [0, 4]}, 5: {"0": [5, 5]}, 10: {"0": [2, 2]}, 55: {"0": [7, 7]}}
    assert recorded(ledger, reports) > 0
    assert recorded(ledger, source.read(None).reports) == 0


@pytest.mark.parametrize("tier", ["broker", "reader"])
def test_a_window_of_a_counted_topic_stays_open_while_its_parts_miss_offsets(log, ledger, trusted, tier):
    log.produce([(0, each) for each in minutes(1, 2, 3, 4, 6)] + [(1, each) for each in minutes(2, 7)])
    assert recorded(ledger, counts(log, tier, Clock(*minutes(16))).read(None).reports) > 0
    reported(ledger, part="a", windows=[{"start": START, "records": 5}], offsets={"0": [0, 1]})
    missing = "offsets 2-3 of partition 0 are in no part; offset 0 of partition 1 is in no part"
    assert first_window(ledger) == ("open", missing)
    reported(ledger, part="b", windows=[], offsets={"0": [2, 4], "1": [0, 1]})
    assert first_window(ledger) == ("complete", "")


def reported(ledger, **part):
    assert recorded(ledger, [{"kind": "part", "dataset": "web/clicks", **part}]) == 1


def first_window(ledger):
    """Return the state of the first five minutes, and which offsets they lack."""
    with ledger.read() as connection:
        (found,) = state_views.explained(connection, Feed.parse("web/clicks"), f"5min@{START:%Y-%m-%d-%H:%M}", 1)
    return found.state, found.why.partition("%); ")[2]

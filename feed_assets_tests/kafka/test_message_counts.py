"""Messages by window, over a real broker: by its offsets, and by reading all of them."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from feed_assets.core.chunks import line_before
from feed_assets.core.errors import LogTrimmed
from feed_assets.kafka import message_counts
from feed_assets.kafka.message_counts import by_offsets, by_reading, moment_of, refusal
from feed_assets.kafka.topic_reader import read
from feed_assets_tests.support.counted_topics import START, CountedTopic, minutes, start_of

HOUR = timedelta(hours=1)
LOG_APPEND = {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LOG_APPEND, None),
        ({}, "message.timestamp.type of .* is CreateTime"),
        (LOG_APPEND | {"cleanup.policy": "compact"}, "cleanup.policy of .* is compact"),
    ],
)
def test_offsets_tell_counts_only_where_the_broker_stamps_and_keeps_messages(broker, config, said):
    log = CountedTopic(broker, **config)
    found = refusal(log.clients, log.topic)
    assert re.search(said, found) if said else found is None


@pytest.mark.parametrize("seed", range(3))
def test_windows_by_offsets_are_those_of_the_messages_wherever_one_goes_on(broker, seed):
    log, dice = CountedTopic(broker), Random(seed)  # noqa: S311
    sent = [(part, at) for part in (0, 1) for at in sorted(START + HOUR * dice.random() for _ in range(30))]
    log.produce(sent)
    truth = Counter(start_of(at) for _, at in sent)
    bounds = minutes(*range(0, 65, 5))
    found, ranges, after, cut = {}, {}, {}, dice.randrange(1, len(bounds) - 1)
    for some in (bounds[: cut + 1], bounds[cut:]):
        counted = by_offsets(log.clients, log.topic, after, some)
        found, ranges, after = found | counted.windows, ranges | counted.ranges, counted.after
    assert found == {each: truth[each] for each in bounds[:-1]}
    offsets = ranges_of((part, number % 30, at) for number, (part, at) in enumerate(sent))
    assert ranges == {each: offsets.get(each, {}) for each in bounds[:-1]}
    assert after == {0: 30, 1: 30}


def test_the_ends_of_transactions_are_counted_too_so_offsets_do_for_no_transactional_topic(broker):
    log, now = CountedTopic(broker, **LOG_APPEND), datetime.now(UTC)
    log.send([(0, START)])
    log.send([(0, START)])
    counted = by_offsets(log.clients, log.topic, {}, [now - HOUR, now + HOUR])
    assert sum(counted.windows.values()) == 4


def test_messages_removed_before_they_were_counted_are_an_error(broker):
    log = CountedTopic(broker)
    log.produce([(0, each) for each in minutes(1, 2, 6, 7)])
    after = by_offsets(log.clients, log.topic, {}, minutes(0, 5)).after
    log.remove(0, 2)
    assert by_offsets(log.clients, log.topic, after, minutes(5, 10)).windows == {minutes(5)[0]: 2}
    with pytest.raises(LogTrimmed, match="begins with offset 2: the broker has removed"):
        by_offsets(log.clients, log.topic, {}, minutes(0, 5))
    log.remove(0, 3)
    with pytest.raises(LogTrimmed, match="begins with offset 3"):
        by_offsets(log.clients, log.topic, after, minutes(5, 10))


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_independent_of_read_boundaries_and_exactly_once(broker, seed, monkeypatch):
    monkeypatch.setattr(message_counts, "CELL", 10)
    log, dice = CountedTopic(broker), Random(seed)  # noqa: S311
    sent, cells, after = list[tuple[int, datetime]](), {}, {}
    for _ in range(12):
        if dice.random() < 0.6:
            sent += (some := [(dice.randrange(2), START + HOUR * dice.random()) for _ in range(dice.randint(1, 12))])
            log.send(some)
        changed, last, _ = by_reading(log.clients, log.topic, after, dice.randint(1, 9), 30, start_of)
        if dice.random() < 0.7:  # Else it was killed before the position was kept.
            after = last
        cells |= {(cell.partition, cell.start): cell for cell in changed if keeps(cells, cell)}
    is_complete = False
    while not is_complete:
        changed, after, is_complete = by_reading(log.clients, log.topic, after, 7, 30, start_of)
        cells |= {(cell.partition, cell.start): cell for cell in changed if keeps(cells, cell)}
    whole = sum((Counter(cell.windows) for cell in cells.values()), Counter())
    assert whole == Counter(start_of(at) for _, at in sent)
    anew, _, _ = by_reading(log.clients, log.topic, {}, 10_000, 30, start_of)
    assert {(cell.partition, cell.start): cell for cell in anew} == cells
    assert all(line_before(cell.next_offset - 1, 10) == cell.start for cell in anew)
    read_back = [
        (part, each.offset, moment_of(each))
        for part, each in read(log.clients, log.topic, {}, 10_000, 1 << 20, 30).messages
    ]
    for cell in anew:
        inside = (each for each in read_back if (each[0], line_before(each[1], 10)) == (cell.partition, cell.start))
        assert cell.ranges == {start: ranges[cell.partition] for start, ranges in ranges_of(inside).items()}


def ranges_of(messages):
    """Return the first and last offset of each window by partition, of messages (partition, offset, moment)."""
    ranges = {}
    for partition, offset, moment in messages:
        window = ranges.setdefault(start_of(moment), {})
        window[partition] = window.get(partition, (offset,))[0], offset
    return ranges


def keeps(cells, cell):
    """Return True unless a newer version is known, as for a report of a part."""
    known = cells.get((cell.partition, cell.start))
    return known is None or known.next_offset <= cell.next_offset

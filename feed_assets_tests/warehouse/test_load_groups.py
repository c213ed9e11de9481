"""Signals that are loaded together, and when they are loaded."""

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse.load_groups import Buffer, Signalled, runs


def signal(schema_id, partition=0, first=0, size=1):
    return Signal("t", partition, first, first + size - 1, 1, 0, "d", "p", 1, "s", schema_id)


def signalled(*schemas, partition=0):
    return [Signalled(signal(each, partition, number), number + 1) for number, each in enumerate(schemas)]


def schemas_of(found):
    return [
        (run.schema_id, [(each.signal.partition, each.signal.first_offset) for each in run.signals]) for run in found
    ]


def test_a_run_ends_where_another_schema_begins():
    found = schemas_of(runs(signalled(1, 1, 2, 1)))
    assert found == [(1, [(0, 0), (0, 1)]), (2, [(0, 2)]), (1, [(0, 3)])]


def test_signals_without_a_schema_join_any_group():
    assert schemas_of(runs(signalled(None, 1, None, 2, None))) == [(1, [(0, 0), (0, 1), (0, 2)]), (2, [(0, 3), (0, 4)])]
    assert schemas_of(runs(signalled(None, None))) == [(None, [(0, 0), (0, 1)])]
    assert schemas_of(runs([])) == []


def test_partitions_change_their_schema_together():
    both = [*signalled(1, 2), *signalled(1, 1, 2, partition=1)]
    assert schemas_of(runs(both)) == [(1, [(0, 0), (1, 0), (1, 1)]), (2, [(0, 1), (1, 2)])]


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(1, 3)), max_size=12))
def test_each_signal_is_in_one_run_of_its_schema_and_those_of_a_partition_in_order(given_):
    signals = [
        Signalled(signal(schema, partition, number), number) for number, (partition, schema) in enumerate(given_)
    ]
    found = [*runs(signals)]
    assert all(each.signal.schema_id in (None, run.schema_id) for run in found for each in run.signals)
    flat = [each for run in found for each in run.signals]
    for partition in range(3):
        assert [each for each in flat if each.signal.partition == partition] == [
            each for each in signals if each.signal.partition == partition
        ]


def test_a_buffer_is_due_when_it_is_full_or_its_first_signal_has_waited():
    buffer, (first, second, third) = Buffer(chunks=2, seconds=10), signalled(1, 1, 2)
    assert (buffer.due(99), buffer.room) == ([], 2)
    buffer.add(first, 100)
    assert (buffer.due(109.9), buffer.room) == ([], 1)
    assert schemas_of(buffer.due(110)) == [(1, [(0, 0)])]
    buffer.add(second, 120)
    buffer.add(third, 121)
    assert buffer.room == 0
    assert [run.schema_id for run in buffer.due(121)] == [1, 2]
    assert (buffer.due(999), buffer.signals) == ([], [])

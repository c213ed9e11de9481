"""A message becomes a signalled chunk in as few steps as the limits allow; steps are counted, not seconds."""

import pytest

from feed_assets_tests.kafka.turns import EMPTY, Turns
from feed_assets_tests.support.kafka_topics import POISON

POLL = 0.1
"""Seconds of a poll for which docs/performance.md was measured: a longer poll adds latency."""

TRANSACTION = ["put", "signal", "begin_transaction", "produce", "commit_transaction", "signalled"]
"""Steps from the end of a chunk to its signal."""

HOUR = 3600


def limits(world, **changes) -> None:
    world.settings = world.settings.model_copy(update=changes)


def test_the_message_that_reaches_the_limit_is_signalled_in_the_round_that_reads_it(world):
    limits(world, messages=10, seconds=HOUR)
    world.create()
    turns = Turns(world, [[(0, 10)]])
    assert turns.after("init_transactions") == ["message of 0"] * 10 + TRANSACTION
    assert turns.clock() == turns.times[0], "nothing waits"


def test_a_backlog_is_signalled_chunk_by_chunk_without_a_wait(world):
    limits(world, messages=10, seconds=HOUR)
    world.create()
    turns = Turns(world, [[(0, 30)]], chunks=3)
    assert turns.after("init_transactions") == (["message of 0"] * 10 + TRANSACTION) * 3


@pytest.mark.parametrize("seconds", [1, 0.25])
def test_a_chunk_is_signalled_in_the_round_in_which_its_time_is_over(world, seconds):
    limits(world, messages=10, seconds=seconds)
    world.create()
    turns = Turns(world, [[(0, 3)]])
    rounds = -int(-seconds // POLL)
    assert turns.after("init_transactions") == ["message of 0"] * 3 + [EMPTY] * rounds + TRANSACTION
    assert turns.seconds("message of 0", "signalled") == pytest.approx(rounds * POLL)


def test_the_time_of_a_chunk_begins_with_its_own_first_message(world):
    """The time limit neither starts with the previous chunk nor ends at a multiple of the limit."""
    limits(world, messages=10, seconds=1)
    world.create()
    arrivals = [[(0, 1)], *[[]] * 13, [(0, 1)]]
    turns = Turns(world, arrivals, chunks=2)
    first = ["message of 0", *[EMPTY] * 10, *TRANSACTION]
    assert turns.after("init_transactions") == [*first, *[EMPTY] * 3, *first]


def test_later_messages_do_not_put_off_the_time_of_a_chunk(world):
    limits(world, messages=100, seconds=1)
    world.create()
    arrivals = [[(0, 1)], *[[], [(0, 1)]] * 10]
    turns = Turns(world, arrivals)
    rounds = ["message of 0", *[EMPTY, "message of 0"] * 9, EMPTY]
    assert turns.after("init_transactions") == [*rounds, *TRANSACTION]


def test_chunks_whose_time_is_over_together_are_signalled_in_one_round(world):
    limits(world, messages=10, seconds=1)
    world.create(partitions=2)
    turns = Turns(world, [[(0, 1), (1, 1)]], chunks=2)
    assert turns.steps[turns.steps.index(EMPTY) :] == [*[EMPTY] * 10, *TRANSACTION, *TRANSACTION]


def test_a_partition_that_is_always_busy_does_not_hold_up_another_one(world):
    """Check the time between messages, every 0.05 s of the clock: no poll is ever empty here."""
    limits(world, messages=1000, seconds=1)
    world.create(partitions=2)
    turns = Turns(world, [[(0, 1)], [(1, 200)]], seconds_each=0.01)
    assert turns.after("init_transactions")[-len(TRANSACTION) :] == TRANSACTION
    assert EMPTY not in turns.steps
    assert turns.seconds("message of 0", "signalled") <= 1 + 0.05 + 0.01


def test_dead_letters_cost_no_transaction_of_their_own(world):
    limits(world, messages=10, seconds=HOUR)
    world.create()
    world.send(POISON)
    world.send(POISON)
    turns = Turns(world, [[(0, 8)]], already=2)
    put, signal, begin, produce, commit, signalled = TRANSACTION
    assert turns.after("init_transactions") == [
        *["message of 0"] * 10,
        *[put, signal, begin, produce, produce, produce, commit, signalled],
    ]

"""A partition built from all batches of an appendable input."""

from dataclasses import replace

import pytest

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Partition
from feed_assets.feeds.write import invalidate
from feed_assets.ledger import batch_sets
from feed_assets.runs.phases import Unchanged
from feed_assets.runs.recipe import RecipeInput
from feed_assets_tests.support.build_lake import CLEAN, DAY, RAW, SCHEMA, Lake, rows, stepping

HELD = Partition(RAW, DAY)
APPENDED = (RecipeInput("raw", RAW, "csv", SCHEMA, is_appendable=True),)


def drop(lake: Lake, batch: str, *ids: int):
    return lake.drop(*(f"{number},{DAY} 01:00:00" for number in ids), key=f"{DAY}/{batch}")


def built(lake: Lake, **options):
    return lake.clean(sources=APPENDED, **options)


def ids(lake: Lake) -> list[int]:
    return [row[0] for row in rows(lake)]


def pins(outcome) -> list[tuple[str, str]]:
    return [(pin.partition.key, pin.update_id) for pin in outcome.pins]


def test_the_function_gets_the_rows_of_every_batch_and_each_is_pinned(lake):
    older, newer, other = drop(lake, "a", 1), drop(lake, "a", 1, 2), drop(lake, "b", 3)
    outcome = built(lake)
    assert older.id < newer.id
    assert (ids(lake), pins(outcome)) == ([1, 2, 3], [(f"{DAY}/a", newer.id), (f"{DAY}/b", other.id)])
    assert isinstance(built(lake), Unchanged)
    drop(lake, "c", 4)
    built(lake)
    assert ids(lake) == [1, 2, 3, 4]


def test_many_batches_are_read_as_one_frame_not_as_one_for_each(lake):
    for number in range(12):
        drop(lake, f"b{number}", number)
    plans: list[str] = []

    def watching(raw):
        plans.append(raw._jdf.queryExecution().analyzed().toString())
        return raw

    built(lake, transform=watching)
    assert (plans[0].count("Union"), ids(lake)) == (0, [*range(12)])


def test_a_batch_that_is_gone_or_invalid_is_read_no_more_and_is_named(lake):
    first, spoilt, gone = drop(lake, "a", 1), drop(lake, "b", 2), drop(lake, "c", 3)
    built(lake)
    invalidate(lake.services.board, spoilt.partition, spoilt.id)
    lake.services.board.sweep(gone.partition.path)
    said: list[str] = []
    outcome = built(lake, services=stepping(lake, said.append))
    assert (ids(lake), pins(outcome)) == ([1], [(f"{DAY}/a", first.id)])
    reason = "it has no manifest: still being written, refused by its audit, abandoned or invalidated"
    assert f"b of {HELD} is left out: {spoilt.id}: {reason}" in said
    with lake.services.ledger.read() as connection:
        assert [pin.partition.name for pin in batch_sets.pins_of(connection, [HELD])[HELD]] == ["a"]


def test_a_partition_without_a_valid_batch_is_an_error_with_reasons(lake):
    spoilt = drop(lake, "a", 1)
    invalidate(lake.services.board, spoilt.partition, spoilt.id)
    with pytest.raises(NoValidUpdate, match=f"{HELD} has no batch with a valid update. a: {spoilt.id}: it has no"):
        built(lake)


def test_an_older_set_is_read_as_of_a_named_moment_and_a_batch_by_its_update(lake):
    """Stop the clock, so that ids increase by batch only: the second update of a batch is later than all first ones."""
    first, second, other, third = drop(lake, "a", 1), drop(lake, "a", 2), drop(lake, "b", 3), drop(lake, "b", 4)
    as_of = built(lake, named={HELD: first.id})
    assert (ids(lake), pins(as_of)) == ([1, 3], [(f"{DAY}/a", first.id), (f"{DAY}/b", other.id)])
    by_batch = built(lake, named={HELD.batch("a"): first.id})
    assert (ids(lake), pins(by_batch)) == ([1, 4], [(f"{DAY}/a", first.id), (f"{DAY}/b", third.id)])
    assert second.id == third.id
    with pytest.raises(NoValidUpdate, match="'yesterday' is no update id: expected an id whose time is the moment"):
        built(lake, named={HELD: "yesterday"})


def test_rows_of_batches_that_fan_in_tell_the_partition_and_not_the_batch(lake):
    drop(lake, "a", 1)
    drop(lake, "b", 2)
    source = (replace(APPENDED[0], fans_in=True),)
    lake.clean(sources=source, transform=lambda raw: raw.select("id", "at", "_partition"))
    assert {row[2] for row in rows(lake, CLEAN)} == {DAY}

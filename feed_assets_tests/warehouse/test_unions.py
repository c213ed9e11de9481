"""Unions: several topics are loaded into one table."""

from random import Random

import pytest

from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.warehouse.unions import Union, check_union, produce


@pytest.mark.parametrize("mode", ["disjoint", "key", "newest", "history"])
@pytest.mark.parametrize("histories", seeds(2, 100))
def test_any_order_of_loads_makes_the_table_of_the_oracle(loader, histories, mode):
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        union = Union(loader.place.board, "newest" if mode == "history" else mode, is_history=mode == "history")
        union.add("b")
        union.add("a")
        for number in range(3):
            if number == 1:
                union.add("0")  # A topic that is declared later.
            produce(union, chance)
            for stream in chance.sample(union.topics, chance.randint(1, len(union.topics))):
                new = union.new(union.state(loader), stream)
                union.load(loader, stream, *new[: chance.randint(1, len(new))])
                check_union(loader, union)
        for stream in union.topics:
            if union.new(union.state(loader), stream):
                union.load(loader, stream)
            assert union.new(union.state(loader), stream) == []
        check_union(loader, union)

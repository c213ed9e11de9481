"""What a dataset by events reads: never inputs of different states of one source, and in the end the newest."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from feed_assets.core.choosing import Choice, choose
from feed_assets.core.propagation import due
from feed_assets.core.readiness import State
from feed_assets_tests.core.lake import REPORT, SHAPES, Lake


def chance(seed="0"):
    return Random(seed)  # noqa: S311


CHAIN = SHAPES["chain"]


def lake(shape=CHAIN, **options):
    """After two updates of the source, both taken."""
    made = Lake(shape, **options)
    for rows in ("1", "2"):
        for source in made.sources:
            made.drop(source, f"{source}{rows}")
        made.settle(chance())
    return made


def read(made):
    return [pin.update_id for pin in made.published[-1]]


def newest(made):
    return [made.newest(name).update_id for name in made.shape.reads]


def test_a_roll_back_of_the_source_waits_until_it_has_gone_through_the_pipeline():
    made = lake()
    count = len(made.published)
    made.invalidate("r")
    made.look("a")
    made.look(REPORT)
    assert made.asked == []
    made.look("b")
    made.look(REPORT)
    assert made.asked == []
    made.look("c")
    made.look(REPORT)
    made.begin()
    assert len(made.published) == count + 1
    assert read(made) == newest(made)


def test_a_table_made_by_hand_with_changed_code_waits_for_those_that_are_made_of_it():
    made = lake()
    before = made.published[-1]
    made.change_code("a")
    made.by_hand("a")
    made.look(REPORT)
    assert made.asked == []
    verdict = made.decide(REPORT)
    assert verdict.state is State.WAITS_FOR_PROPAGATION
    assert verdict.pins == before
    made.settle(chance())
    assert read(made) == newest(made)
    assert made.published[-1] != before


def test_a_table_in_between_with_equal_rows_passes_a_re_run_on():
    made = lake(SHAPES["longer chain with equal rows"])
    made.code["b"] = next(code for code in range(1, 99) if rows_of(made, "b", code) == made.last("b").rows)
    made.change_code("a")
    made.by_hand("a")
    made.settle(chance())
    assert read(made) == newest(made)


def rows_of(made, name, code):
    made.code[name] = code
    return made.last(name).rows


def test_what_is_made_by_hand_of_mixed_inputs_is_refused_in_words():
    made = lake()
    made.invalidate("r")
    made.look("a")
    count = len(made.published)
    made.by_hand(REPORT)
    assert len(made.published) == count
    (why,) = made.refused
    a, c = made.newest("a").update_id, made.newest("c").update_id
    first, second = (each.id for each in made.updates["r"])
    assert why == (
        f"a {a} and c {c} do not belong together: they lead back to different updates of r, {first} and {second}"
    )


def test_an_update_that_is_gone_is_not_replaced_by_the_newest_beside_another_propagation():
    made = lake()
    made.drop("r", "r3")
    for name in "abc":
        made.look(name)
    made.invalidate("a")
    verdict = made.decide(REPORT)
    assert verdict.state is State.WAITS_FOR_PROPAGATION
    assert "do not belong together" in verdict.reason
    made.settle(chance())
    assert read(made) == newest(made)


# Random histories against an oracle.


def states(made, pin, memo):
    """Every way in which rows may have been made: by partition the versions that they were made of."""
    key = (pin.partition, pin.version)
    if key not in memo:
        memo[key] = frozenset(
            _joined([frozenset({(pin.partition, pin.version)}), *some])
            for each in made.updates[str(pin.partition.feed)]
            if each.rows == pin.version
            for some in product(*(states(made, below, memo) for below in each.made_of))
        )
    return memo[key]


def _joined(some):
    return frozenset().union(*some)


def is_mixed(made, pins):
    """Whether no way to make the inputs of a pipeline agrees on what they have in common."""
    memo = {}
    groups = made.shape.consumer.needed.values()
    for tables in groups:
        ways = [states(made, pin, memo) for pin in pins if pin.partition.feed in tables]
        if not any(_agree(some) for some in product(*ways)):
            return True
    return False


def _agree(some):
    for one, other in product(some, some):
        shared = {partition for partition, _ in one} & {partition for partition, _ in other}
        if any((partition in shared) for partition, _ in one ^ other):
            return False
    return True


def history(made, random, steps=14):
    """Drops, roll-backs, repairs and re-runs between looks; each published report is judged at once."""
    judged = 0
    datasets = [*made.shape.made_of]
    everybody = [*made.sources, *datasets]
    acts = {
        "drop": lambda: made.drop(source := random.choice(made.sources), f"{source}{random.randrange(4)}"),
        "roll back": lambda: made.invalidate(random.choice(everybody), random.choice((-1, -1, -2))),
        "revalidate": lambda: made.revalidate(random.choice(everybody), random.choice((-1, -2))),
        "code": lambda: made.change_code(random.choice(datasets)),
        "by hand": lambda: made.by_hand(random.choice([*datasets, REPORT])),
        "look": lambda: made.look(random.choice([*datasets, REPORT, REPORT])),
        "begin": lambda: made.begin(0),
    }
    weights = [2, 2, 2, 1, 2, 14, 3]
    for _ in range(steps * 3):
        acts[random.choices([*acts], weights)[0]]()
        for pins in made.published[judged:]:
            assert not is_mixed(made, pins), f"mixed: {pins}"
        judged = len(made.published)
    for source in made.sources:
        if not made.valid(source):
            made.drop(source, f"{source}9")
    made.settle(random)
    for pins in made.published[judged:]:
        assert not is_mixed(made, pins), f"mixed: {pins}"
    assert made.published, "nothing was built"
    assert {pin.version for pin in made.published[-1]} == {made.newest(name).version for name in made.shape.reads}


def tried(name, count, **options):
    for seed in range(count):
        random = chance(f"{name} {seed}")
        try:
            history(Lake(SHAPES[name], **options), random)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("name", SHAPES)
def test_no_report_is_ever_mixed_and_in_the_end_it_reads_the_newest_of_all(name):
    tried(name, 250)


@pytest.mark.soak
@pytest.mark.parametrize("name", SHAPES)
def test_no_report_is_ever_mixed_in_many_thousand_histories(name):
    tried(name, 10_000)


@pytest.mark.parametrize("options", [{"merge": False}, {"on_incomplete": "block"}, {"wait_for": "all"}])
def test_nor_is_one_whose_consumer_takes_updates_in_another_way(options):
    def choosing(consumer, inbox):
        return choose(replace(consumer, **options), inbox)

    for name in ("chain with equal rows", "diamond with equal rows"):
        tried(name, 100, choosing=choosing)


def by_sets_of_tables(consumer, inbox):
    """The rule before lineage was asked: past events of an id count, and the newest stands for what is gone."""
    tables = {key: {table for table, _ in told} for key, told in inbox.seen.items()}
    needed = consumer.needed.values()
    groups = {each: next(tables for tables in needed if each.feed in tables) for each in inbox.inputs}
    complete = [each for each in inbox.events if groups[each.place] <= tables[each.correlation, each.place.key]]
    rest = [each for each in inbox.events if each not in complete]
    found = due(replace(consumer, pipelines={}), complete, inbox.seen)
    slices = {each.place: each.end for each in found.slices}
    pins = {each.place: inbox.consumed.get(each.place) for each in rest}
    for place, end in slices.items():
        newest = inbox.newest.get(place)
        pins[place] = inbox.valid.get((place, end), newest)
    return Choice(found, pins)


def without_a_look_at_the_newest(consumer, inbox):
    """Ids alone complete an update; lineage only refuses."""
    return choose(consumer, replace(inbox, newest=inbox.newest, lineage=_without_newest(inbox)))


def _without_newest(inbox):
    return replace(inbox.lineage, newest={})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("chain", {"choosing": by_sets_of_tables}, "mixed"),
        ("diamond", {"choosing": by_sets_of_tables}, "mixed"),
        ("the source itself", {"choosing": by_sets_of_tables}, "mixed"),
        ("longer chain with equal rows", {"wakes": False}, "assert"),
        ("chain with equal rows", {"choosing": without_a_look_at_the_newest}, "nothing was built|assert"),
    ],
)
def test_a_wrong_way_is_caught(name, options, said):
    with pytest.raises(AssertionError, match=said):
        tried(name, 250, **options)

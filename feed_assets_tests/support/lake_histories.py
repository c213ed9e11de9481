"""Random histories of a lake, an oracle that judges each published report, and a wrong rule that it must catch."""

from dataclasses import replace
from itertools import product
from random import Random

from feed_assets.core.propagation import due
from feed_assets.core.update_choice import Choice
from feed_assets_tests.support.lake_shapes import REPORT


def chance(seed="0"):
    """Return a random generator that is the same for the same seed."""
    return Random(seed)  # noqa: S311


def states(made, pin, memo):
    """Return every way in which rows may have been made: the versions that they were made of, by partition."""
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
    """Return True if no way to make the inputs of a pipeline agrees on the partitions that they share."""
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
    """Run drops, roll-backs, repairs and re-runs between looks. Judge each published report at once."""
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
    made.finish(random)
    for pins in made.published[judged:]:
        assert not is_mixed(made, pins), f"mixed: {pins}"
    assert made.published, "nothing was built"
    last, newest = ({*made.published[-1]}, {made.newest(name) for name in made.shape.reads})
    assert {pin.version for pin in last} == {pin.version for pin in newest}, f"not current: {last}, {newest} is there"


def play_seeds(name, seeds, new):
    """Run the histories of some seeds, each in a new lake."""
    for seed in seeds:
        try:
            history(new(), chance(f"{name} {seed}"))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def by_sets_of_tables(consumer, inbox):
    """Choose by the rule from before lineage: past events of an id count, the newest update replaces a missing one."""
    tables = {key: {table for table, _ in reported} for key, reported in inbox.histories.items()}
    needed = consumer.needed.values()
    groups = {each: next(tables for tables in needed if each.feed in tables) for each in inbox.inputs}
    complete = [each for each in inbox.events if groups[each.partition] <= tables[each.correlation, each.partition.key]]
    rest = [each for each in inbox.events if each not in complete]
    found = due(replace(consumer, pipelines={}), complete, inbox.histories)
    slices = {each.partition: each.end for each in found.slices}
    pins = {each.partition: inbox.consumed.get(each.partition) for each in rest}
    for partition, end in slices.items():
        newest = inbox.newest.get(partition)
        pins[partition] = inbox.valid.get((partition, end), newest)
    return Choice(found, pins)

"""Sequences of increments, deletes, repeats and reloads, merged by key, against a fold in Python; many at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets import merge_by_key

ROWS, GONE = "world int, k string, at int, v string", "world int, k string, at int"
KEY = ["world", "k"]
STEPS, WORLDS = 5, 50

keys, moments = st.sampled_from("abc"), st.none() | st.integers(1, 4)
changes = st.dictionaries(st.tuples(keys, moments), st.sampled_from(["x", "y", None]), max_size=3)
"""Changes by key and time; None is a delete. Two rows with the same key and time would be an error."""
steps = changes | st.sampled_from(["repeat", "reload"])
worlds = st.lists(st.lists(steps, min_size=STEPS, max_size=STEPS), min_size=WORLDS, max_size=WORLDS)


def order(at, is_delete):
    """Return the order of changes: NULL first, and at equal times a delete last."""
    return (at is not None, at or 0, is_delete)


def fold(there, changes):
    """Apply an increment: the last change of each key wins, unless the existing row is newer."""
    last = {}
    for (key, at), value in changes.items():
        last[key] = max(
            last.get(key, ((False,), None, None)), (order(at, value is None), at, value), key=lambda c: c[0]
        )
    for key, (_, at, value) in last.items():
        if key not in there or order(there[key][0], False)[:2] <= order(at, False)[:2]:
            there = {name: row for name, row in there.items() if name != key}
            there |= {} if value is None else {key: (at, value)}
    return there


class World:
    """The merged rows, and all increments so far."""

    def __init__(self, steps):
        self.steps, self.past, self.there = steps, [], {}

    def step(self, number):
        """Return the changes to merge: a new increment, an earlier one again, or everything so far."""
        match self.steps[number]:
            case "repeat":
                changes = self.past[number // 2] if self.past[number // 2 :] else {}
            case "reload":
                self.there, changes = {}, {at: value for each in self.past for at, value in each.items()}
            case changes:
                self.past.append(changes)
        expected = fold(self.there, changes)
        return changes, expected


@settings(max_examples=3)
@given(worlds)
def test_any_sequence_of_merges_equals_a_fold(spark, plans):
    every = [World(steps) for steps in plans]
    for number in range(STEPS):
        played = [world.step(number) for world in every]
        given = [(at, *change, value) for at, (changes, _) in enumerate(played) for change, value in changes.items()]
        there = [(at, key, *row) for at, world in enumerate(every) for key, row in world.there.items()]
        new, gone = [row for row in given if row[3]], [row[:3] for row in given if not row[3]]
        frames = [spark.createDataFrame(rows, schema) for rows, schema in ((there, ROWS), (new, ROWS), (gone, GONE))]
        merged = merge_by_key(frames[0] if number else None, frames[1], KEY, deletes=frames[2], newest_by="at")
        for world, (_, expected) in zip(every, played, strict=True):
            world.there = expected
        rows = [(at, key, *row) for at, world in enumerate(every) for key, row in world.there.items()]
        assert sorted(map(tuple, merged.collect()), key=str) == sorted(rows, key=str)

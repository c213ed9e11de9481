"""Tables of inputs that were, or were not, made of the same data."""

from feed_assets.core.consistency import belong_together, mixed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets_tests.support.each_case import each_case


def pin(text):
    """Return a pin: `a2` is the second update of `a` with new rows; `a2=1` has the rows of the first."""
    name, _, rows = text.partition("=")
    return Pin(Partition(Feed.parse(name[0])), name[1:], rows or name[1:])


def lineage(text):
    """Return the lineage of updates, such as `a2<r2 b2<a2`."""
    pairs = [each.split("<") for each in text.split()]
    return {(pin(of).partition, pin(of).update_id): tuple(map(pin, some.split("+"))) for of, some in pairs}


def newest(text):
    return {pin(each).partition: pin(each) for each in text.split()}


CHAIN = "a1<r1 b1<a1 c1<b1 a2<r2 b2<a2 c2<b2"


@each_case(
    ("pins", "built_from", "last", "is_mixed"),
    [
        ("a2 c2", CHAIN, "r2 a2 b2 c2", False),
        ("a2 c1", CHAIN, "r2 a2 b2 c2", True),
        ("a1 c1", CHAIN, "r2 a2 b2 c2", False),
        ("r2 c1", CHAIN, "r2 a2 b2 c2", True),
        ("r1 c1", CHAIN, "r2 a2 b2 c2", False),
        ("a2", CHAIN, "r2 a2 b2 c2", False),
        ("a2 d1", CHAIN + " d1<s1", "r2 a2 b2 c2 d1", False),
        # Made again with the same rows: what was made of them before is what they are made of now.
        ("a3=2 c2", CHAIN + " a3=2<r3", "r3 a3=2 b2 c2", False),
        ("a3 c2", CHAIN + " a3<r2 b3=2<a3", "r2 a3 b3=2 c2", False),
        ("a3 c2", CHAIN + " a3<r2", "r2 a3 b2 c2", True),
        # Consumed together, although rows like theirs are made of something else by now.
        ("a2 c2", CHAIN + " a3<r3 b3=2<a3", "r3 a3 b3=2 c2", False),
        # A table in between of two ways differs.
        ("c1 d1", "a1<r1 b1<r1 b2<r1 c1<a1+b1 d1<a1+b2", "r1 a1 b2 c1 d1", True),
        ("c1 d1", "a1<r1 b1<r1 c1<a1+b1 d1<a1+b1", "r1 a1 b1 c1 d1", False),
    ],
)
def test_pins_that_lead_back_to_different_data_are_mixed(pins, built_from, last, is_mixed):
    found = mixed(map(pin, pins.split()), lineage(built_from), newest(last))
    assert (found is not None) is is_mixed, found


def test_mixed_inputs_are_named_with_their_origins():
    found = mixed([pin("a2"), pin("c1")], lineage(CHAIN), newest("r2 a2 b2 c2"))
    assert found == "a 2 and c 1 do not belong together: they were made from different updates of r, 2 and 1"


def test_other_partitions_are_other_data():
    other = Pin(Partition(Feed.parse("r"), "yesterday"), "1", "1")
    built_from = lineage(CHAIN) | {(pin("c2").partition, "2"): (other,), (pin("a2").partition, "2"): (pin("r2"),)}
    assert mixed([pin("a2"), pin("c2")], built_from, {}) is None


def slice_of(start, end):
    return Pin(Partition(Feed.parse("t")), end, f"{start}..{end}", start=start or None)


@each_case(("one", "other", "is_mixed"), [(("", "7"), ("5", "7"), False), (("5", "7"), ("7", "9"), True)])
def test_event_tables_are_compared_by_marker(one, other, is_mixed):
    built_from = {(pin(name).partition, "1"): (slice_of(*part),) for name, part in (("a1", one), ("b1", other))}
    assert (mixed([pin("a1"), pin("b1")], built_from, {}) is not None) is is_mixed


@each_case(
    ("pins", "together"), [("a2 c2", True), ("a2 c1", False), ("a2 s1", False), ("a2 c2 s1", False), ("a2", False)]
)
def test_pins_belong_together_if_lineage_shows_it(pins, together):
    assert belong_together(map(pin, pins.split()), lineage(CHAIN), newest("r2 a2 b2 c2")) is together

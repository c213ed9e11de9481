"""Choice of updates for a dataset by events: inputs share one state of each source, and end with the newest."""

from dataclasses import replace

import pytest

from feed_assets.core.readiness import State
from feed_assets.core.update_choice import choose
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.lake_histories import by_sets_of_tables, chance, play_seeds
from feed_assets_tests.support.lake_shapes import REPORT, SHAPES
from feed_assets_tests.support.memory_lake import Lake

CHAIN = SHAPES["chain"]


def lake(shape=CHAIN, **options):
    """Return the lake after two updates of the source, both consumed."""
    made = Lake(shape, **options)
    for rows in ("1", "2"):
        for source in made.sources:
            made.drop(source, f"{source}{rows}")
        made.finish(chance())
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
    made.finish(chance())
    assert read(made) == newest(made)
    assert made.published[-1] != before


def test_a_table_in_between_with_equal_rows_passes_a_re_run_on():
    made = lake(SHAPES["longer chain with equal rows"])
    made.code["b"] = next(code for code in range(1, 99) if rows_of(made, "b", code) == made.last("b").rows)
    made.change_code("a")
    made.by_hand("a")
    made.finish(chance())
    assert read(made) == newest(made)


def rows_of(made, name, code):
    made.code[name] = code
    return made.last(name).rows


def test_a_manual_run_with_mixed_inputs_is_refused():
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
        f"a {a} and c {c} do not belong together: they were made from different updates of r, {first} and {second}"
    )


def test_a_lost_update_is_not_replaced_by_the_newest_of_another_propagation():
    made = lake()
    made.drop("r", "r3")
    for name in "abc":
        made.look(name)
    made.invalidate("a")
    verdict = made.decide(REPORT)
    assert verdict.state is State.WAITS_FOR_PROPAGATION
    assert "do not belong together" in verdict.reason
    made.finish(chance())
    assert read(made) == newest(made)


# Random histories against an oracle.


def tried_in_memory(name, count, **options):
    play_seeds(name, range(count), lambda: Lake(SHAPES[name], **options))


@each_case("name", SHAPES)
def test_reports_never_mix_inputs_and_end_with_the_newest(name):
    tried_in_memory(name, 250)


@pytest.mark.soak
@pytest.mark.parametrize("name", SHAPES)
def test_reports_never_mix_inputs_in_ten_thousand_histories(name):
    tried_in_memory(name, 10_000)


@each_case("options", [{"merge": False}, {"on_incomplete": "block"}, {"wait_for": "all"}])
def test_reports_never_mix_inputs_under_other_consumer_options(options):
    def choosing(consumer, inbox):
        return choose(replace(consumer, **options), inbox)

    for name in ("chain with equal rows", "diamond with equal rows"):
        tried_in_memory(name, 100, choosing=choosing)


def without_a_look_at_the_newest(consumer, inbox):
    """Complete an update by ids only; lineage can only refuse it."""
    return choose(consumer, replace(inbox, newest=inbox.newest, lineage=_without_newest(inbox)))


def _without_newest(inbox):
    return replace(inbox.lineage, newest={})


@each_case(
    ("name", "options", "said"),
    [
        ("chain", {"choosing": by_sets_of_tables}, "mixed"),
        ("diamond", {"choosing": by_sets_of_tables}, "mixed"),
        ("the source itself", {"choosing": by_sets_of_tables}, "mixed"),
        ("longer chain with equal rows", {"wakes": False}, "not current"),
        ("chain with equal rows", {"choosing": without_a_look_at_the_newest}, "nothing was built|not current"),
    ],
)
def test_oracle_of_update_choice_catches_a_wrong_rule(name, options, said):
    with pytest.raises(AssertionError, match=said):
        tried_in_memory(name, 250, **options)

"""Choice of the plan by which a run processes due events."""

from dataclasses import replace

from feed_assets.core.events import Operation
from feed_assets.core.plans import Plan, Rule, RunSpec, choose
from feed_assets.core.propagation import slice_of
from feed_assets_tests.core.arrivals import arrived, consumer, due_of

OVERWRITES = frozenset({Operation.OVERWRITE})
RELOAD, LARGE = Plan("reload", {"all": True}), Plan("incremental", tags={"feed_assets/spark_profile": "large"})


def slices(*reported, size=0):
    found = due_of(consumer("purchases", "exchange_rate"), arrived(*reported)).slices
    return [replace(each, bytes=size) for each in found]


def test_if_exchange_rate_updates_we_need_to_reload_but_of_purchases_only_the_increment():
    rules = [Rule(RELOAD, tables=frozenset({"exchange_rate"}))]
    assert choose(rules, slices(("exchange_rate", "R"))) == RELOAD
    assert choose(rules, slices(("purchases", "X"))) == Plan("incremental")
    assert choose(rules, slices(("purchases", "X"), ("exchange_rate", "R"))) == RELOAD


def test_an_overwrite_among_increments_causes_a_reload():
    rules = [Rule(RELOAD, operations=OVERWRITES)]
    assert choose(rules, slices(("purchases", "X", 1, Operation.OVERWRITE))) == RELOAD
    assert choose(rules, slices(("purchases", "X"))).kind == "incremental"


def test_compute_is_chosen_by_the_size_of_the_slices():
    rules = [Rule(LARGE, at_least=100)]
    assert choose(rules, slices(("purchases", "X"), ("exchange_rate", "R"), size=50)) == LARGE
    assert choose(rules, slices(("purchases", "X"), ("exchange_rate", "R"), size=49)) == Plan()


def test_an_unchanged_table_does_not_cause_a_reload():
    (event,) = arrived(("exchange_rate", "R", 1, Operation.OVERWRITE))
    nothing = slice_of(replace(event, start=event.marker))
    (new,) = slices(("purchases", "X", 1, Operation.UPSERT))
    rules = [
        Rule(RELOAD, tables=frozenset({"exchange_rate"})),
        Rule(RELOAD, operations=OVERWRITES),
    ]
    assert choose(rules, [new, nothing]) == Plan()
    assert choose(rules, [nothing]) == RELOAD


def test_the_first_rule_that_holds_wins():
    rules = [Rule(LARGE, tables=frozenset({"purchases"})), Rule(RELOAD)]
    assert choose(rules, slices(("purchases", "X"))) == LARGE
    assert choose(rules, slices(("exchange_rate", "R"))) == RELOAD


def test_a_function_finds_the_slice_of_a_table_in_its_work():
    (piece,) = slices(("purchases", "X"))
    run_spec = RunSpec({piece.partition: piece})
    assert run_spec.slice("purchases") == piece
    assert run_spec.slice("exchange_rate") is None

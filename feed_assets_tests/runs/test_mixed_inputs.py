"""A manual build of a dataset by events: it reads the newest inputs, and refuses those that do not belong together."""

from datetime import timedelta
from itertools import count

import pytest

from feed_assets.core.errors import MixedInputs
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.ledger import runs
from feed_assets.runs.build import NEWEST, build
from feed_assets.runs.phases import Published
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.services import Services
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.build_lake import NOW

RAW, A, B, REPORT = (Partition(Feed.parse(f"t/{name}/v1.0")) for name in ("raw", "a", "b", "report"))
MADE_OF = {A: [RAW], B: [A], REPORT: [A, B]}


@pytest.fixture
def services(ledger):
    seconds = count()
    return Services(Blackboard.open("memory://"), ledger, PlainMaker, lambda: NOW + timedelta(seconds=next(seconds)))


def drop(services, rows):
    return publish(services.board, RAW, {"part": rows}, services.now()).id


def make(services, output, named=NEWEST):
    inputs = {each.feed.name[2:]: [each] for each in MADE_OF[output]}
    sources = tuple(RecipeInput(name, each.feed) for name, (each,) in inputs.items())
    recipe = Recipe(output.feed, sources, lambda: None, is_by_events=output == REPORT)
    return build(recipe, output, inputs, services, named)


def test_inputs_of_different_data_are_refused_in_words_and_nothing_is_claimed(services):
    drop(services, b"1")
    first = {output: make(services, output).outputs[-1].id for output in MADE_OF}
    again = drop(services, b"2")
    newer = make(services, A).outputs[-1].id
    with pytest.raises(MixedInputs) as refused:
        make(services, REPORT)
    assert str(refused.value).startswith(
        f"t/report/v1.0: t/a/v1.0 {newer} and t/b/v1.0 {first[B]} do not belong together: they were made from "
        "different updates of t/raw/v1.0, "
    )
    assert again in str(refused.value)
    assert services.board.children(REPORT.path) == [first[REPORT]]
    with services.ledger.read() as connection:
        last, attempts = runs.last(connection, REPORT), [*runs.open_attempts(connection, [REPORT])]
    assert (last.state, attempts) == ("abandoned", [])
    assert last.reason.startswith("MixedInputs: ")


def test_mixed_inputs_are_built_once_the_newer_one_has_passed_the_pipeline(services):
    drop(services, b"1")
    for output in MADE_OF:
        make(services, output)
    drop(services, b"2")
    newest = [make(services, output).outputs[-1].id for output in (A, B)]
    assert [pin.update_id for pin in make(services, REPORT).pins] == newest


def test_updates_that_the_run_names_are_built_of_although_they_are_mixed(services):
    drop(services, b"1")
    for output in MADE_OF:
        make(services, output)
    drop(services, b"2")
    named = {A: make(services, A).outputs[-1].id}
    built = make(services, REPORT, named)
    assert isinstance(built, Published)
    assert {pin.partition: pin.update_id for pin in built.pins}[A] == named[A]

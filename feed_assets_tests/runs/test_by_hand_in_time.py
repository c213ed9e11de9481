"""A manual run skips missing inputs only from the time that its dataset declares, by the clock of the run."""

import json
from datetime import timedelta

import pytest

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.waits import Waits
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.ledger import runs, updates
from feed_assets.runs.build import build
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.services import Services
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.build_lake import NOW

RAW, OUT = Feed.parse("t/raw/v1.0"), Partition(Feed.parse("t/out/v1.0"), "2019-11-24")
HOURS = [Partition(RAW, f"2019-11-24-{hour:02}:00") for hour in range(3)]
AFTER = NOW + timedelta(hours=2)
RECIPE = Recipe(OUT.feed, (RecipeInput("raw", RAW),), lambda raw: raw)


def run(ledger, at, *, there):
    """Build at a moment when the first `there` hours exist, of which two are enough. Return the inputs left out."""
    services = Services(Blackboard.open("memory://"), ledger, PlainMaker, lambda: at)
    for each in HOURS[:there]:
        publish(services.board, each, {"part": b"1"}, NOW)
    try:
        build(RECIPE, OUT, {"raw": HOURS}, services, waits=Waits(after=AFTER, least=2, total=3))
    finally:
        with ledger.read() as connection:
            row, last = updates.newest(connection, [OUT]).get(OUT), runs.last(connection, OUT)
    assert last.state == updates.PUBLISHED
    return json.loads(row.without or "[]")


@pytest.mark.parametrize(
    ("at", "there"),
    [(AFTER - timedelta(seconds=1), 2), (AFTER, 1)],
    ids=["a second before", "fewer than are enough"],
)
def test_a_manual_run_before_the_wait_is_over_refuses_missing_inputs(ledger, at, there):
    with pytest.raises(NoValidUpdate, match=f"{HOURS[there].key}"):
        run(ledger, at, there=there)
    with ledger.read() as connection:
        assert updates.newest(connection, [OUT]) == {}
        assert runs.last(connection, OUT).state == "abandoned"


def test_a_manual_run_after_the_wait_records_the_missing_inputs(ledger):
    assert run(ledger, AFTER, there=2) == [str(HOURS[2])]


def test_with_all_inputs_present_a_manual_run_does_not_wait(ledger):
    assert run(ledger, AFTER - timedelta(hours=1), there=3) == []

"""If several gates stop a partition, the first one in the article's order gives the reason."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.gates import GATES, Case
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import decide
from feed_assets.core.waits import Waits
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.each_case import each_case

NOW, HOUR = datetime(2026, 1, 3, tzinfo=UTC), timedelta(hours=1)
OUT, A, B = (Partition(Feed.parse(f"web/{name}/v1.0"), "2026-01-02") for name in ("out", "a", "b"))
PINS = {each: Pin(each, "20260102.010000", "1") for each in (A, B)}
PRUNED = "20260102.020000"

SAID = {
    "closed": "closed by ann",
    "time": "it is not built before",
    "inputs": "no valid update of web/b/v1.0",
    "news": "was built from the newest inputs",
    "quality": "the failed audit of web/a/v1.0",
    "a person": "paused since",
    "attempts": "attempt 1 of 3 failed",
    "history": "are no longer valid, ",
}
"""Gates in order, with the words of their reason."""


def case(stops):
    """Return a partition that exactly these gates stop."""
    need = need_of(OUT, [A, B], waits=Waits(earliest=NOW + HOUR if "time" in stops else None))
    there = {A: PINS[A]} if "inputs" in stops else PINS
    attempts = (Attempt(None, False, "no disk", NOW),) if "attempts" in stops else ()
    built = Built(attempts=attempts)
    if "news" in stops:
        built = replace(built, published="20260102.030000", consumed=tuple(there.values()))
    if "history" in stops:
        consumed = tuple(replace(each, update_id=PRUNED, version="2") for each in PINS.values())
        built = replace(built, published="20260102.030000", consumed=consumed)
    facts = Facts(NOW, {OUT: built}, there, pruned={A: PRUNED} if "history" in stops else {})
    return Case(need, replace(facts, **{name: known for stop, (name, known) in KNOWN.items() if stop in stops}))


KNOWN = {
    "closed": ("closed", {OUT: "closed by ann"}),
    "quality": ("failed", {A: "half of it is lost"}),
    "a person": ("paused", {OUT.feed: "paused since noon"}),
}
NEVER_BOTH = ("news", "history")
"""Gates that exclude each other: unchanged inputs cannot have fallen back."""


@each_case("stops", sorted({*combinations(SAID, 1), *combinations(SAID, 2)} - {NEVER_BOTH}))
def test_the_first_of_two_stopping_gates_is_the_verdict(stops):
    its = case(stops)
    told = [answer.reason for gate in GATES if (answer := gate(its))]
    assert [SAID[stop] in reason for stop, reason in zip(stops, told, strict=True)] == [True] * len(stops), told
    (verdict,) = decide([its.need], its.facts)
    assert verdict.reason == told[0]

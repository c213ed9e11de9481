"""Partitions that can be built now, and the reason why others wait: one literal table."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.late_policy import Late
from feed_assets.core.pins import Pin, pins_digest
from feed_assets.core.readiness import State, decide
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.each_case import each_case

SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
CLICKED = Partition(Feed.parse("ads/clicked/v1.0"), "2019-11-24/men")
EFFECT = Partition(Feed.parse("ads/effectiveness/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 27, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
LONG_AGO = NOW - DAY

S1 = Pin(SHOWN, "20191125.010000", "s1", size=1000)
S1_AGAIN = Pin(SHOWN, "20191126.010000", "s1", size=1001)
S2 = Pin(SHOWN, "20191126.010000", "s2", size=1010)
C1 = Pin(CLICKED, "20191125.020000", "c1", size=100)
BOTH = {SHOWN: S1, CLICKED: C1}
NEWER = {SHOWN: S2, CLICKED: C1}
BUILT = {"published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (C1, S1)}}
PATIENT = Late(growth=0.05, max_age=2 * DAY)

OLD_PINS, NEW_PINS = pins_digest([S1, C1]), pins_digest([S2, C1])
NEED = need_of(EFFECT, (SHOWN, CLICKED))
UNBORN = need_of(EFFECT, (SHOWN, CLICKED), absent=["ads/clicked/v1.0 2019-11-24/women"])
LATE = need_of(EFFECT, (SHOWN, CLICKED), late=PATIENT)
CARELESS = need_of(EFFECT, (SHOWN, CLICKED), careless_of=[SHOWN.feed])
NO_INPUTS = need_of(EFFECT, ())
CLICKS_IF_THERE = need_of(EFFECT, (SHOWN, CLICKED), optional=[CLICKED])


def facts_of(newest=None, batches=None, pruned=None, blocked=None, max_attempts=3, **built):
    """Return facts about `EFFECT` and its inputs."""
    outputs = {EFFECT: Built(**{name: value[EFFECT] for name, value in built.items() if EFFECT in value})}
    known = {"newest": newest or {}, "batches": batches or {}, "pruned": pruned or {}, "failed": blocked or {}}
    return Facts(NOW, outputs, **known, max_attempts=max_attempts)


DEATH = "SparkDied: it needs more memory"


def failed(pins, reason="OutOfMemory", ended=LONG_AGO, made_with=None):
    return Attempt(pins, False, reason, ended, made_with)


def refused(pins, reason="not_empty: found 0", made_with=None):
    return Attempt(pins, True, reason, LONG_AGO, made_with)


@each_case(
    ("need", "known", "state", "reason"),
    [
        pytest.param(
            NEED,
            {"newest": BOTH},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="never built, and ready",
        ),
        pytest.param(
            NEED,
            {"newest": {CLICKED: C1}},
            State.WAITS_FOR_INPUT,
            "no valid update of ads/shown/v1.0 2019-11-24/men",
            id="an input is missing",
        ),
        pytest.param(
            NEED,
            {},
            State.WAITS_FOR_INPUT,
            "no valid update of ads/shown/v1.0 2019-11-24/men, ads/clicked/v1.0 2019-11-24/men",
            id="every input is missing",
        ),
        pytest.param(
            UNBORN,
            {"newest": BOTH},
            State.WAITS_FOR_INPUT,
            "no valid update of ads/clicked/v1.0 2019-11-24/women",
            id="an input's partition does not exist yet",
        ),
        pytest.param(
            NO_INPUTS, {}, State.WAITS_FOR_INPUT, "no valid update of any input", id="nothing to be built from"
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "blocked": {SHOWN: "unique: found 3"}},
            State.WAITS_FOR_QUALITY,
            "the failed audit of ads/shown/v1.0 2019-11-24/men (unique: found 3)",
            id="an input's last audit failed",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "blocked": {SHOWN: "unique: found 3"}, **BUILT},
            State.WAITS_FOR_QUALITY,
            "the failed audit of ads/shown/v1.0 2019-11-24/men (unique: found 3)",
            id="the gate holds late runs as it holds first ones",
        ),
        pytest.param(
            CARELESS,
            {"newest": BOTH, "blocked": {SHOWN: "unique: found 3"}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="an input whose quality it ignores",
        ),
        pytest.param(
            CARELESS,
            {"newest": BOTH, "blocked": {CLICKED: "unique: found 3"}},
            State.WAITS_FOR_QUALITY,
            "the failed audit of ads/clicked/v1.0 2019-11-24/men (unique: found 3)",
            id="it ignores the quality of another input",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (refused(OLD_PINS),)}},
            State.WAITS_FOR_QUALITY,
            "its own audit failed on these inputs: not_empty: found 0",
            id="its own audit failed on these inputs",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (refused(OLD_PINS), failed(OLD_PINS))}},
            State.WAITS_FOR_QUALITY,
            "its own audit failed on these inputs: not_empty: found 0",
            id="a failed run after it does not lift a refusal",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "attempts": {EFFECT: (refused(OLD_PINS),)}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="its own audit failed on other inputs",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS),) * 2}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="failed fewer times than allowed",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS), failed(OLD_PINS), failed(OLD_PINS, "Timeout"))}},
            State.WAITS_FOR_A_PERSON,
            "3 runs failed on these inputs, the last with: Timeout",
            id="failed as often as allowed",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS, DEATH), failed(OLD_PINS, DEATH))}},
            State.WAITS_FOR_A_PERSON,
            "Spark died 2 times on these inputs: SparkDied: it needs more memory",
            id="a run in which Spark died has one more attempt",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS, DEATH), failed(OLD_PINS))}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="Spark died once",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "attempts": {EFFECT: (failed(OLD_PINS),) * 3}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="new inputs give new attempts",
        ),
        pytest.param(
            NEED,
            {"newest": {SHOWN: S1_AGAIN, CLICKED: C1}, "attempts": {EFFECT: (failed(OLD_PINS),) * 3}},
            State.WAITS_FOR_A_PERSON,
            "3 runs failed on these inputs, the last with: OutOfMemory",
            id="another update with the same rows gives none",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(None), failed(None), failed(OLD_PINS))}},
            State.WAITS_FOR_A_PERSON,
            "3 runs failed on these inputs, the last with: OutOfMemory",
            id="runs that failed before they pinned count too",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS, ended=NOW - 9 * SECOND),)}},
            State.WAITS_FOR_ANOTHER_ATTEMPT,
            "attempt 1 of 3 failed, the next may start from 2019-11-27 00:00:01 UTC on: OutOfMemory",
            id="failed a moment ago",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS, "FunctionWrong: a.py:1: NameError: x"),)}},
            State.WAITS_FOR_A_PERSON,
            f"failed: needs a change (after a change in another module run `feed-assets build {EFFECT.feed} "
            "--failed`): FunctionWrong: a.py:1: NameError: x",
            id="no retry can mend it",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS), failed(OLD_PINS, ended=NOW - 119 * SECOND))}},
            State.WAITS_FOR_ANOTHER_ATTEMPT,
            "attempt 2 of 3 failed, the next may start from 2019-11-27 00:00:01 UTC on: OutOfMemory",
            id="failed twice: minutes",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS), failed(OLD_PINS, ended=NOW - 120 * SECOND))}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="the pause is over",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "attempts": {EFFECT: (failed(OLD_PINS, ended=NOW),)}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="no pause on new inputs",
        ),
        pytest.param(
            replace(NEED, made_with="mended"),
            {"newest": BOTH, "attempts": {EFFECT: (failed(OLD_PINS, ended=NOW, made_with="wrong"),) * 3}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="what is mended is a new start",
        ),
        pytest.param(
            replace(NEED, made_with="mended"),
            {
                "newest": BOTH,
                "attempts": {EFFECT: (*[failed(OLD_PINS)] * 2, failed(OLD_PINS, "Timeout", NOW, "mended"))},
            },
            State.WAITS_FOR_ANOTHER_ATTEMPT,
            "attempt 1 of 3 failed, the next may start from 2019-11-27 00:00:10 UTC on: Timeout",
            id="attempts of before it was mended do not count",
        ),
        pytest.param(
            replace(NEED, made_with="mended"),
            {"newest": BOTH, "attempts": {EFFECT: (refused(OLD_PINS, made_with="wrong"),)}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="what was refused is a new start, too",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, **BUILT},
            State.CURRENT,
            "update 20191125.030000 was built from the newest inputs",
            id="current",
        ),
        pytest.param(
            NEED,
            {"newest": {SHOWN: S1_AGAIN, CLICKED: C1}, **BUILT},
            State.CURRENT,
            "update 20191125.030000 was built from the newest inputs",
            id="another update with the same rows is no change",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "blocked": {SHOWN: "unique"}, "attempts": {EFFECT: (failed(OLD_PINS),) * 3}, **BUILT},
            State.CURRENT,
            "update 20191125.030000 was built from the newest inputs",
            id="what is current waits for nothing",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, **BUILT},
            State.REBUILD,
            "ads/shown/v1.0 2019-11-24/men: update 20191125.010000 was consumed, the newest is 20191126.010000 "
            "(1000 to 1010 bytes)",
            id="stale",
        ),
        pytest.param(
            LATE,
            {"newest": NEWER, **BUILT},
            State.WAITS_FOR_LATE_DATA,
            f"late data of {SHOWN.feed} (+1.0%) are below the threshold of 5.0%, and cause a re-run at "
            "2019-11-28 01:00 UTC",
            id="too little late data to be worth a run",
        ),
        pytest.param(
            LATE,
            {"newest": NEWER, "late_since": {EFFECT: {SHOWN: datetime(2019, 11, 25, tzinfo=UTC)}}, **BUILT},
            State.REBUILD,
            f"late data of {SHOWN.feed} (+1.0%) are below the threshold of 5.0%, but have waited for 2 days, 0:00:00",
            id="late data that newer ones have been following for too long",
        ),
        pytest.param(
            LATE,
            {"newest": BOTH},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="a first run is never late",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "attempts": {EFFECT: (refused(NEW_PINS),)}, **BUILT},
            State.WAITS_FOR_QUALITY,
            "its own audit failed on these inputs: not_empty: found 0",
            id="a refused late run is not tried again",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "published": {EFFECT: "20191126.030000"}, "consumed": {EFFECT: (C1, S2)}},
            State.REBUILD,
            "ads/shown/v1.0 2019-11-24/men: update 20191126.010000 was consumed and is no longer valid, "
            "the newest is 20191125.010000 again",
            id="an input was rolled back to an older update",
        ),
        pytest.param(
            NEED,
            {"newest": {CLICKED: C1}, **BUILT},
            State.WAITS_FOR_INPUT,
            "no valid update of ads/shown/v1.0 2019-11-24/men; 20191125.030000, which was built before, is still "
            "served",
            id="an input lost its last valid update",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "pruned": {SHOWN: "20191125.020000"}, **BUILT, "consumed": {EFFECT: (C1, S2)}},
            State.WAITS_FOR_A_PERSON,
            "the newest updates of ads/shown/v1.0 2019-11-24/men are no longer valid, 20191125.020000 before them was "
            "pruned, and only the older 20191125.010000 is left",
            id="an input fell back to an update from before what was pruned",
        ),
        pytest.param(
            NEED,
            {"newest": NEWER, "pruned": {SHOWN: "20191125.020000"}, **BUILT},
            State.REBUILD,
            "ads/shown/v1.0 2019-11-24/men: update 20191125.010000 was consumed, the newest is 20191126.010000 "
            "(1000 to 1010 bytes)",
            id="what was pruned is older than what is there now, as it should be",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "pruned": {SHOWN: "20191125.020000"}, **BUILT},
            State.CURRENT,
            "update 20191125.030000 was built from the newest inputs",
            id="a person has built it from what is left",
        ),
        pytest.param(
            NEED,
            {"newest": BOTH, "pruned": {SHOWN: "20191125.020000"}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="it was never built, and so has nothing to lose",
        ),
        pytest.param(
            need_of(EFFECT, (CLICKED,)),
            {"newest": {CLICKED: C1}, **BUILT},
            State.REBUILD,
            "ads/shown/v1.0 2019-11-24/men: is no longer valid, or no longer an input",
            id="an input is no longer one",
        ),
        pytest.param(
            need_of(EFFECT, (CLICKED, SHOWN)),
            {"newest": BOTH, "published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (C1,)}},
            State.REBUILD,
            "ads/shown/v1.0 2019-11-24/men: was not there before",
            id="it has one input more",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": {SHOWN: S1}},
            State.BUILD,
            "it has no valid update, and every input is there",
            id="an optional partition is not waited for",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": {CLICKED: C1}},
            State.WAITS_FOR_INPUT,
            "no valid update of ads/shown/v1.0 2019-11-24/men",
            id="what is optional does not stand in for what is required",
        ),
        pytest.param(
            need_of(EFFECT, (CLICKED,), optional=[CLICKED]),
            {},
            State.WAITS_FOR_INPUT,
            "no valid update of any input",
            id="nothing is built from nothing, although all of it is optional",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": {SHOWN: S1}, "published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (S1,)}},
            State.CURRENT,
            "update 20191125.030000 was built from the newest inputs",
            id="built without an optional partition that is still not there",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": BOTH, "published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (S1,)}},
            State.REBUILD,
            "ads/clicked/v1.0 2019-11-24/men: was not there before",
            id="an optional partition came after the build",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": {SHOWN: S1}, **BUILT},
            State.REBUILD,
            "ads/clicked/v1.0 2019-11-24/men: is no longer valid, or no longer an input",
            id="an optional partition lost its last valid update",
        ),
        pytest.param(
            CLICKS_IF_THERE,
            {"newest": BOTH, "blocked": {CLICKED: "unique: found 3"}},
            State.WAITS_FOR_QUALITY,
            "the failed audit of ads/clicked/v1.0 2019-11-24/men (unique: found 3)",
            id="the gate holds for optional partitions too",
        ),
    ],
)
def test_each_partition_is_in_exactly_one_state_for_a_reason(need, known, state, reason):
    (verdict,) = decide([need], facts_of(**known))
    assert (verdict.state, verdict.reason) == (state, reason)


def test_a_verdict_names_what_is_read_what_is_published_and_how_often_it_was_tried():
    attempts = (failed(OLD_PINS), failed(NEW_PINS))
    (verdict,) = decide([NEED], facts_of(newest=NEWER, attempts={EFFECT: attempts}, **BUILT))
    assert (verdict.output, verdict.pins) == (EFFECT, (S2, C1))
    assert (verdict.published, verdict.attempt) == ("20191125.030000", 2)


def test_an_optional_partition_is_pinned_if_it_exists():
    without, both = (decide([CLICKS_IF_THERE], facts_of(newest=each))[0].pins for each in ({SHOWN: S1}, BOTH))
    assert (without, both) == ((S1,), (S1, C1))


def test_waiting_for_late_data_ends_by_itself_and_nothing_else_does():
    (late,) = decide([LATE], facts_of(newest=NEWER, **BUILT))
    (missing,) = decide([LATE], facts_of(**BUILT))
    assert (late.look_again, missing.look_again) == (datetime(2019, 11, 28, 1, tzinfo=UTC), None)


def test_the_number_of_attempts_is_a_setting():
    facts = facts_of(newest=BOTH, attempts={EFFECT: (failed(OLD_PINS),)}, max_attempts=1)
    assert [verdict.state for verdict in decide([NEED], facts)] == [State.WAITS_FOR_A_PERSON]


def test_many_are_decided_at_once_and_answered_in_their_order():
    needs = [NEED, need_of(CLICKED, (SHOWN,)), need_of(SHOWN, (EFFECT,))]
    verdicts = decide(needs, facts_of(newest=BOTH))
    assert [(each.output, each.state) for each in verdicts] == [
        (EFFECT, State.BUILD),
        (CLICKED, State.BUILD),
        (SHOWN, State.WAITS_FOR_INPUT),
    ]


def test_a_long_list_of_missing_inputs_is_shortened():
    inputs = tuple(Partition(SHOWN.feed, f"2019-11-24/{number}") for number in range(8))
    (verdict,) = decide([need_of(EFFECT, inputs)], facts_of())
    assert verdict.reason.endswith("2019-11-24/4 and 3 more")


@each_case(
    ("attempts", "blocked", "is_good_again"),
    [
        pytest.param((), {}, False, id="its quality is good"),
        pytest.param((refused(NEW_PINS),), {EFFECT: "empty"}, True, id="other inputs were refused"),
        pytest.param((failed(NEW_PINS),), {EFFECT: "a person said so"}, False, id="somebody reported it"),
        pytest.param((refused(OLD_PINS),), {EFFECT: "empty"}, False, id="these very inputs were refused"),
        pytest.param((refused(NEW_PINS), refused(OLD_PINS)), {EFFECT: "empty"}, False, id="both were refused"),
    ],
)
def test_a_refusal_of_other_inputs_holds_nobody_once_they_are_rolled_back(attempts, blocked, is_good_again):
    (verdict,) = decide([NEED], facts_of(newest=BOTH, attempts={EFFECT: attempts}, blocked=blocked, **BUILT))
    assert (verdict.state, verdict.is_good_again) == (State.CURRENT, is_good_again)


EVENTS = Partition(Feed.parse("ads/events/v1.0"), "2019-11-24")
ONE, TWO = EVENTS.batch("one"), EVENTS.batch("two")
E1, E2 = Pin(ONE, "20191125.010000", "e1", size=100), Pin(TWO, "20191125.020000", "e2", size=100)
APPENDED = need_of(EFFECT, (EVENTS, CLICKED), sets=[EVENTS.feed])


def known(*pins: Pin, batches=(ONE, TWO)) -> dict:
    return {"newest": {pin.partition: pin for pin in (*pins, C1)}, "batches": {EVENTS: batches}}


def test_every_valid_batch_of_an_appendable_input_is_read():
    (verdict,) = decide([APPENDED], facts_of(**known(E1, E2)))
    assert (verdict.state, verdict.pins) == (State.BUILD, (E1, E2, C1))


def test_a_batch_without_a_valid_update_is_no_reason_to_wait():
    (verdict,) = decide([APPENDED], facts_of(**known(E2)))
    assert (verdict.state, verdict.pins) == (State.BUILD, (E2, C1))


@each_case("batches", [(), (ONE, TWO)])
def test_a_partition_without_a_batch_that_has_a_valid_update_is_missing(batches):
    (verdict,) = decide([APPENDED], facts_of(**known(batches=batches)))
    assert (verdict.state, verdict.reason) == (State.WAITS_FOR_INPUT, f"no valid update of {EVENTS}")


@each_case(
    ("consumed", "newest", "state"),
    [
        pytest.param((E1, E2), (E1, E2), State.CURRENT, id="the same set"),
        pytest.param((E1,), (E1, E2), State.REBUILD, id="a new batch"),
        pytest.param((E1, E2), (E1,), State.REBUILD, id="a batch that is no longer valid"),
        pytest.param((E1,), (Pin(ONE, "20191126.010000", "e3", 101),), State.REBUILD, id="a new update of a batch"),
        pytest.param((E1,), (Pin(ONE, "20191126.010000", "e1", 100),), State.CURRENT, id="equal data of a batch"),
    ],
)
def test_a_changed_set_of_batches_makes_an_output_stale(consumed, newest, state):
    built = {"published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (C1, *consumed)}}
    (verdict,) = decide([APPENDED], facts_of(**known(*newest), **built))
    assert verdict.state is state


def test_growth_is_weighed_over_all_batches_of_a_partition():
    patient = need_of(EFFECT, (EVENTS, CLICKED), late=PATIENT, sets=[EVENTS.feed])
    built = {"published": {EFFECT: "20191125.030000"}, "consumed": {EFFECT: (C1, E1)}}
    little = Pin(TWO, "20191126.230000", "e4", size=4)
    (waits,) = decide([patient], facts_of(**known(E1, little), **built))
    (runs,) = decide([patient], facts_of(**known(E1, E2), **built))
    assert (waits.state, runs.state) == (State.WAITS_FOR_LATE_DATA, State.REBUILD)
    assert waits.look_again == datetime(2019, 11, 28, 23, tzinfo=UTC)

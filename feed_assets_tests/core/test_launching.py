"""Equal requests have equal keys and others do not; repeated requests come at growing intervals."""

from dataclasses import replace

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import LONGEST_WAIT, joint_run_key, run_key, wait_after
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import State, Verdict
from feed_assets_tests.support.each_case import each_case

SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
CLICKED = Partition(Feed.parse("ads/clicked/v1.0"), "2019-11-24/men")
EFFECT = Partition(Feed.parse("ads/effectiveness/v1.0"), "2019-11-24/men")
PINS = (Pin(SHOWN, "20191125.060000", "a"), Pin(CLICKED, "20191125.060000", "b"))
REQUEST = Verdict(EFFECT, State.BUILD, "never built", PINS, published=None, attempt=0)


@each_case(
    "request_",
    [
        pytest.param(replace(REQUEST), id="decided again"),
        pytest.param(replace(REQUEST, pins=PINS[::-1]), id="its inputs in another order"),
        pytest.param(replace(REQUEST, reason="in other words", state=State.REBUILD), id="told in other words"),
    ],
)
def test_the_same_request_has_the_same_key(request_):
    assert run_key(request_, 7, 0) == run_key(REQUEST, 7, 0)


@each_case(
    "request_",
    [
        pytest.param(replace(REQUEST, published="20191126.070000"), id="published in between"),
        pytest.param(replace(REQUEST, pins=(PINS[0], Pin(CLICKED, "20191126.060000", "b"))), id="a newer input"),
        pytest.param(replace(REQUEST, pins=PINS[:1]), id="one input less"),
        pytest.param(replace(REQUEST, output=replace(EFFECT, key="2019-11-25/men")), id="another partition"),
        pytest.param(
            replace(REQUEST, output=replace(EFFECT, feed=Feed.parse("ads/effectiveness/v1.1"))), id="another consumer"
        ),
    ],
)
def test_different_requests_have_different_run_keys(request_):
    assert run_key(request_, 7, 0) != run_key(REQUEST, 7, 0)


def test_every_attempt_has_a_key_of_its_own():
    """Repeat a request after a run without a result, and after a change such as an invalidation."""
    assert len({run_key(REQUEST, 7, 0), run_key(REQUEST, 7, 1), run_key(REQUEST, 8, 0)}) == 3


def test_a_key_is_the_same_in_every_process():
    assert run_key(REQUEST, 7, 0) == "ads/effectiveness/v1.0/2019-11-24/men#0f3a8c937dee8bd3"


def test_the_key_of_many_is_that_of_their_keys_whatever_their_order_and_the_process():
    assert joint_run_key(["a#1", "b#2"]) == "a and 1 more#0b279a2d5e5d477a"
    digests = [joint_run_key(keys).rpartition("#")[2] for keys in (["a#1", "b#2"], ["b#2", "a#1"], ["a#1", "b#3"])]
    assert digests[0] == digests[1] != digests[2]
    assert joint_run_key(["a#1"]) == "a#1"


def test_each_request_waits_as_long_again_as_has_passed_and_five_minutes_at_most():
    waits = [wait_after(requested).total_seconds() for requested in range(8)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]
    assert wait_after(10_000) == LONGEST_WAIT

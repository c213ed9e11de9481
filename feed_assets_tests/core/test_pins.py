"""Differences between consumed and newest inputs."""

import pytest

from feed_assets.core.feeds import Feed, Partition, Version
from feed_assets.core.pins import InputChange, Pin, changed, pins_digest
from feed_assets_tests.support.each_case import each_case

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
WOMEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/women")
OLD = Pin(MEN, "20191125.060000", "aaaa", size=100, files=1)
NEW = Pin(MEN, "20191126.060000", "bbbb", size=120, files=2)
SAME_ROWS = Pin(MEN, "20191126.060000", "aaaa", size=101, files=2)
OTHER = Pin(WOMEN, "20191125.060000", "cccc")


@each_case(
    ("newest", "consumed", "expected"),
    [
        pytest.param([OLD], [OLD], (), id="the same update"),
        pytest.param([SAME_ROWS], [OLD], (), id="another update with the same rows"),
        pytest.param([NEW], [OLD], (InputChange(MEN, OLD, NEW),), id="a newer update"),
        pytest.param([OLD], [NEW], (InputChange(MEN, NEW, OLD),), id="rolled back to an older update"),
        pytest.param([OLD, OTHER], [OLD], (InputChange(WOMEN, None, OTHER),), id="one more input"),
        pytest.param([OTHER], [OLD, OTHER], (InputChange(MEN, OLD, None),), id="one input less"),
        pytest.param([OTHER, NEW], [OLD, OTHER], (InputChange(MEN, OLD, NEW),), id="only one of two differs"),
        pytest.param([], [], (), id="nothing at all"),
    ],
)
def test_a_change_is_an_input_whose_data_differ(newest, consumed, expected):
    assert changed(newest, consumed) == expected


def test_changes_come_in_the_order_of_their_partitions():
    assert [change.partition for change in changed([OTHER, NEW], [])] == [MEN, WOMEN]


@each_case(
    ("one", "other", "equal"),
    [
        pytest.param([OLD, OTHER], [OTHER, OLD], True, id="in another order"),
        pytest.param([OLD], [SAME_ROWS], True, id="another update with the same rows"),
        pytest.param([OLD], [NEW], False, id="other rows"),
        pytest.param([OLD], [OLD, OTHER], False, id="one more input"),
        pytest.param([Pin(MEN, OLD.update_id, "cccc")], [Pin(WOMEN, OLD.update_id, "cccc")], False, id="another input"),
    ],
)
def test_a_digest_of_pins_differs_only_with_the_data(one, other, equal):
    assert (pins_digest(one) == pins_digest(other)) is equal


def test_pins_of_a_feed_with_and_without_a_version_have_an_order():
    legacy, versioned = Partition(Feed("ads/shown"), "2019"), Partition(Feed("ads/shown", Version(1, 0)), "2019")
    assert sorted([versioned, legacy]) == [legacy, versioned]
    assert [change.partition for change in changed([Pin(versioned, "b", ""), Pin(legacy, "a", "")], [])] == [
        legacy,
        versioned,
    ]

"""Late data that are worth a re-run, and those that are not."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.late_policy import Late, Periods
from feed_assets.core.late_weighing import Arrivals
from feed_assets.core.late_weighing import weigh as weigh_inputs
from feed_assets.core.pins import InputChange, InputSource, Pin, changed
from feed_assets_tests.support.each_case import each_case

SHOWN = Feed.parse("ads/shown/v1.0")
MEN, WOMEN = Partition(SHOWN, "2019-11-24/men"), Partition(SHOWN, "2019-11-24/women")
ARRIVED = datetime(2019, 11, 26, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FIVE_PERCENT = Late(growth=0.05)
TWO_DAYS = timedelta(days=2)
PATIENT = Late(growth=0.05, max_age=TWO_DAYS)


def weigh(changes, policy, now, since=None):
    """One input whose changes all count; `since` is the time of its first late data."""
    first = {each.partition: since for each in changes} if since else {}
    return weigh_inputs([Arrivals(policy, changes, changes, first)], Periods(), now)


def grown(old: int, new: int, partition: Partition = MEN) -> InputChange:
    return InputChange(
        partition,
        Pin(partition, "20191125.060000", "before", size=old),
        Pin(partition, "20191126.060000", "after", size=new),
    )


@each_case(
    ("old", "new", "reruns"),
    [
        pytest.param(100_000, 100_001, False, id="one byte"),
        pytest.param(100_000, 104_999, False, id="4.999 %"),
        pytest.param(100_000, 105_000, True, id="5 %"),
        pytest.param(100_000, 105_001, True, id="5.001 %"),
        pytest.param(100_000, 1_100_000, True, id="1000 %"),
        pytest.param(7 * 10**15, 735 * 10**13, True, id="5 % of seven petabytes"),
        pytest.param(7 * 10**15, 735 * 10**13 - 1, False, id="a byte less than 5 % of them"),
        pytest.param(0, 1, True, id="from no bytes"),
        pytest.param(0, 0, True, id="still no bytes, but other files"),
        pytest.param(100_000, 100_000, True, id="other content of the same size"),
        pytest.param(100_000, 99_999, True, id="shrunk by a byte"),
        pytest.param(100_000, 50_000, True, id="shrunk to half"),
        pytest.param(100_000, 0, True, id="nothing left"),
    ],
)
def test_growth_below_the_threshold_waits_and_everything_else_is_run_again(old, new, reruns):
    assert weigh([grown(old, new)], FIVE_PERCENT, ARRIVED).rerun is reruns


@each_case(
    "change",
    [
        pytest.param(InputChange(MEN, None, Pin(MEN, "20191126.060000", "x", size=1)), id="an input that is new"),
        pytest.param(InputChange(MEN, Pin(MEN, "20191125.060000", "x", size=1), None), id="an input that is gone"),
        pytest.param(grown(100, 101), id="the least growth"),
    ],
)
def test_without_a_policy_every_change_is_run_again(change):
    assert weigh([change], Late(), ARRIVED).rerun


def test_a_threshold_does_not_hold_back_an_input_that_comes_or_goes():
    pin = Pin(MEN, "20191126.060000", "x", size=1)
    assert weigh([InputChange(MEN, None, pin)], Late(growth=1.0), ARRIVED).rerun
    assert weigh([InputChange(MEN, pin, None)], Late(growth=1.0), ARRIVED).rerun


def test_growth_of_one_input_is_enough():
    assert weigh([grown(100, 101), grown(100, 105, WOMEN)], FIVE_PERCENT, ARRIVED).rerun


def test_growth_of_two_inputs_is_not_added_up():
    assert not weigh([grown(100, 104), grown(100, 104, WOMEN)], FIVE_PERCENT, ARRIVED).rerun


def test_growth_of_many_small_updates_adds_up_against_the_consumed_data():
    sizes = [100_000 + 1_000 * update for update in range(1, 7)]
    reruns = [weigh([grown(100_000, size)], FIVE_PERCENT, ARRIVED).rerun for size in sizes]
    assert reruns == [False, False, False, False, True, True]


@each_case(
    ("now", "reruns", "look_again"),
    [
        pytest.param(ARRIVED, False, ARRIVED + TWO_DAYS, id="just arrived"),
        pytest.param(ARRIVED + TWO_DAYS - SECOND, False, ARRIVED + TWO_DAYS, id="a second before"),
        pytest.param(ARRIVED + TWO_DAYS, True, None, id="to the second"),
        pytest.param(ARRIVED + TWO_DAYS + SECOND, True, None, id="a second after"),
    ],
)
def test_small_late_data_are_taken_when_they_have_waited_long_enough(now, reruns, look_again):
    weighed = weigh([grown(100, 101)], PATIENT, now)
    assert (weighed.rerun, weighed.look_again) == (reruns, look_again)


def test_the_oldest_of_several_inputs_ends_the_waiting():
    later = InputChange(
        WOMEN, Pin(WOMEN, "20191125.060000", "a", size=100), Pin(WOMEN, "20191127.060000", "b", size=101)
    )
    assert weigh([later, grown(100, 101)], PATIENT, ARRIVED).look_again == ARRIVED + TWO_DAYS


def test_a_newer_update_does_not_start_the_waiting_anew():
    first = ARRIVED - timedelta(days=1)
    assert weigh([grown(100, 101)], PATIENT, ARRIVED, since=first).look_again == first + TWO_DAYS


def test_without_a_greatest_age_small_late_data_wait_until_more_comes():
    weighed = weigh([grown(100, 101)], FIVE_PERCENT, ARRIVED + timedelta(days=10_000))
    assert (weighed.rerun, weighed.look_again) == (False, None)


def test_a_greatest_age_of_nothing_never_waits():
    assert weigh([grown(100, 101)], Late(growth=0.05, max_age=timedelta()), ARRIVED).rerun


@each_case(
    ("policy", "now", "reason"),
    [
        (
            Late(),
            ARRIVED,
            "ads/shown/v1.0 2019-11-24/men: update 20191125.060000 was consumed, the newest is 20191126.060000 "
            "(1000 to 1024 bytes)",
        ),
        (
            FIVE_PERCENT,
            ARRIVED,
            f"late data of {MEN} (+2.4%) are below the threshold of 5.0%: they are skipped until more data arrive",
        ),
        (
            PATIENT,
            ARRIVED,
            f"late data of {MEN} (+2.4%) are below the threshold of 5.0%, and cause a re-run at 2019-11-28 06:00 UTC",
        ),
        (
            PATIENT,
            ARRIVED + TWO_DAYS,
            f"late data of {MEN} (+2.4%) are below the threshold of 5.0%, but have waited for 2 days, 0:00:00",
        ),
    ],
)
def test_the_reason_names_the_weighed_data(policy, now, reason):
    assert weigh([grown(1000, 1024)], policy, now).reason == reason


NO_SHARES = [{"growth": each} for each in (-0.01, float("nan"), 5, "5", "500%")]


@each_case("values", [*NO_SHARES, {"max_age": timedelta(seconds=-1)}])
def test_an_invalid_late_policy_is_refused(values):
    with pytest.raises(InvalidDefinition, match=r"expected a (share|time)"):
        Late(**values)


DAY = Partition(Feed.parse("ads/events/v1.0"), "2019-11-24")


def batches(**sizes: int) -> list[Pin]:
    """Return the batches of a day by name; each size is also its version."""
    return [Pin(DAY.batch(name), "20191126.060000", str(size), size=size) for name, size in sizes.items()]


def as_one(batch: Partition) -> InputSource:
    return InputSource(batch.feed, "", is_appendable=True)


@each_case(
    ("consumed", "newest", "reruns"),
    [
        pytest.param(batches(a=900, b=100), batches(a=900, b=100, c=49), False, id="a new batch of 4.9 %"),
        pytest.param(batches(a=900, b=100), batches(a=900, b=100, c=50), True, id="a new batch of 5 %"),
        pytest.param(batches(a=900), batches(a=900, b=30, c=30), True, id="two new batches of 6.6 % together"),
        pytest.param(batches(a=900, b=100), batches(a=900, b=149), False, id="a batch grown by half, the set by 4.9 %"),
        pytest.param(batches(a=900, b=100), batches(a=900, b=99), True, id="a batch shrunk by a byte"),
        pytest.param(batches(a=900, b=100), batches(a=910, b=99), True, id="a batch shrunk, the set grown"),
        pytest.param(batches(a=900, b=1), batches(a=900), True, id="a batch gone"),
        pytest.param(batches(a=900, b=1), batches(a=901), True, id="a batch gone, the set not shrunk"),
        pytest.param([], batches(a=1), True, id="a first batch"),
    ],
)
def test_an_appendable_input_grows_as_a_whole_and_is_restated_by_batch(consumed, newest, reruns):
    changes = changed(newest, consumed, as_one)
    assert weigh(changes, FIVE_PERCENT, ARRIVED).rerun is reruns


def test_the_first_batch_of_an_hour_is_a_partition_that_was_not_there():
    other = Pin(Partition(DAY.feed, "2019-11-25").batch("a"), "20191126.060000", "x", size=10**6)
    (first,) = batches(a=1)
    weighed = weigh(changed([first, other], [other], as_one), FIVE_PERCENT, ARRIVED)
    assert (weighed.rerun, weighed.reason) == (
        True,
        f"{first.partition}: was not there before (all together 1000000 to 1000001 bytes)",
    )
    assert not weigh(changed([first, *batches(b=1), other], [first, other], as_one), FIVE_PERCENT, ARRIVED).rerun


def hours(partner: str, *sizes: int) -> list[Pin]:
    """Return a day of a partner's hours; each size is also its version."""
    at = [Partition(SHOWN, f"2019-11-24-{hour:02}:00/{partner}") for hour, _ in enumerate(sizes)]
    return [Pin(each, "20191126.060000", str(size), size=size) for each, size in zip(at, sizes, strict=True)]


def by_partner(hour: Partition) -> InputSource:
    return InputSource(hour.feed, hour.name)


@each_case(
    ("newest", "reruns"),
    [
        pytest.param(hours("men", 109, *[100] * 23), False, id="an hour by 9 %, the day by 0.4 %"),
        pytest.param(hours("men", *[105] * 23, 104), False, id="nearly all hours by 5 %, the day by a bit less"),
        pytest.param(hours("men", *[105] * 24), True, id="all hours by 5 %"),
        pytest.param(hours("men", 220, *[100] * 23), True, id="an hour to more than the double, the day by 5 %"),
        pytest.param(hours("men", 99, *[200] * 23), True, id="an hour shrunk, the day grown"),
    ],
)
def test_the_hours_that_a_day_reads_grow_as_one(newest, reruns):
    changes = changed(
        [*newest, *hours("women", 10**6)], [*hours("men", *[100] * 24), *hours("women", 10**6)], by_partner
    )
    assert weigh(changes, FIVE_PERCENT, ARRIVED).rerun is reruns


def test_the_growth_of_one_partner_is_judged_separately():
    consumed, newest = [*hours("men", 100), *hours("women", 10**6)], [*hours("men", 105), *hours("women", 10**6 + 1)]
    assert weigh(changed(newest, consumed, by_partner), FIVE_PERCENT, ARRIVED).rerun


def test_a_late_hour_s_reason_includes_the_growth_of_the_day():
    changes = changed(hours("men", 300, 100), hours("men", 100, 100), by_partner)
    assert weigh(changes, FIVE_PERCENT, ARRIVED).reason.endswith("(100 to 300 bytes) (all together 200 to 400 bytes)")


def test_the_reason_of_a_new_batch_says_how_the_set_has_grown():
    weighed = weigh(changed(batches(a=100, b=10), batches(a=100), as_one), FIVE_PERCENT, ARRIVED)
    assert weighed.reason == f"{DAY.batch('b')}: was not there before (all together 100 to 110 bytes)"

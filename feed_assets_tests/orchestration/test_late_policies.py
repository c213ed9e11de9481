"""Late data policies, tick by tick: one re-run for each snapshot, at the check, within the lookback."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Input, Late, feed_asset, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.feeds import write
from feed_assets.ledger import due, late_decisions
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import DAY as FIRST
from feed_assets_tests.support.sum_projects import RAW, harness, outcomes, raw_feed, rows, sums_of

DAYS, HOURS = dg.DailyPartitionsDefinition("2026-01-01"), dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
START = datetime(2026, 1, 3, 1, tzinfo=UTC)
"""Start time, an hour after the end of 2026-01-02."""


def feed(name: str, partitions_def=DAYS) -> dg.AssetSpec:
    return foreign_feed(f"web/{name}/v1.0", partitions_def=partitions_def, schema="n int")


def of_one(in0):
    """Read one feed."""


def of_three(in0, in1, in2):
    """Read three feeds."""


class World:
    """A dataset of some feeds with 1,000 bytes each, by a clock that the test sets."""

    def __init__(
        self, *policies: Late | None, late: Late | None = None, partitions_def=DAYS, keys=("2026-01-02",), of=None
    ):
        self.now, self.keys, self.during = START, keys, lambda: None
        of_def, of_keys = of or (partitions_def, keys)
        feeds = {f"in{number}": feed(f"in{number}", of_def) for number in range(len(policies))}
        reads = {name: Input(each, late=own) for (name, each), own in zip(feeds.items(), policies, strict=True)}

        make = feed_asset("web/made/v1.0", partitions_def=partitions_def, inputs=reads, late=late)
        made = make(of_one if len(policies) == 1 else of_three)
        self.harness = harness(*feeds.values(), made, give=self._give, now=lambda: self.now)
        for name in feeds:
            for key in of_keys:
                self.land(1000, name, key)
        assert self.built() == sorted(keys)

    def _give(self, task) -> Given:
        self.during()
        return Given([{"read": str(sorted(each.path for some in task.updates.values() for each in some))}])

    def land(self, size: int, name: str = "in0", key: str | None = None, files: int = 1) -> None:
        """Publish an update of so many bytes now."""
        parts = {f"part-{number}": b"x" * (size // files + (size % files) * (not number)) for number in range(files)}
        partition = Partition(Feed.parse(f"web/{name}/v1.0"), key or self.keys[0])
        write.publish(self.harness.board, partition, parts, self.now)

    def built(self) -> list[str | None]:
        """Run everything due, and return the built partitions."""
        return sorted(run.partition for run in self.harness.run_until_idle())

    def decided(self) -> list[tuple[str, datetime | None]]:
        """Return the decisions about late data, oldest first."""
        with open_ledger(settings().ledger).read() as connection:
            return [(each.outcome, each.until) for each in reversed(late_decisions.decisions(connection, 100))]

    @property
    def state(self) -> str | None:
        """Return the stored verdict of the first partition."""
        with open_ledger(settings().ledger).read() as connection:
            found = due.listed(connection, Feed.parse("web/made/v1.0"))
        return next((each.state for each in found if each.partition.key == self.keys[0]), None)


@pytest.mark.parametrize("late", [Late(lookback=7), Late(cut_off=DAY)])
def test_lookback_and_cut_off_are_refused_without_time_partitions(late):
    raw = foreign_feed("web/raw/v1.0", schema="n int")
    for options in ({"inputs": {"in0": raw}, "late": late}, {"inputs": {"in0": Input(raw, late=late)}}):
        with pytest.raises(
            InvalidDefinition,
            match="has no time partitions, but `lookback` and `cut_off` of Late count from the end of a",
        ):
            feed_asset("web/made/v1.0", **options)


@pytest.fixture
def begin():
    """Return a function that builds a world with these input policies and moves its clock an hour ahead."""

    def make(*policies, **options):
        found = World(*(policies or (None,)), **options)
        found.now += HOUR
        return found

    return make


def test_late_data_above_the_threshold_cause_one_rerun(begin):
    tested = begin(late=Late("5%"))
    tested.land(1050)
    assert tested.built() == ["2026-01-02"]
    assert [tested.built() for _ in range(3)] == [[]] * 3
    tested.now += HOUR
    tested.land(1080)  # Compared with 1,050, which was already read.
    assert tested.built() == []
    assert (tested.state, tested.decided()) == (State.SKIPS_LATE_DATA, [("re-run", None), ("skip", None)])


def test_small_late_data_are_built_at_their_max_age(begin):
    tested = begin(late=Late("5%", max_age=DAY))
    tested.land(1010)
    arrived = tested.now
    assert tested.built() == []
    tested.now += DAY - MINUTE
    tested.land(1020)
    assert tested.built() == []
    tested.now = arrived + DAY
    assert tested.built() == ["2026-01-02"]
    told = [("wait", arrived + DAY), ("wait", arrived + DAY), ("re-run", None)]
    assert (tested.decided(), tested.state) == (told, None)


def test_combine_all_waits_for_every_threshold(begin):
    tested = begin(late=Late("5%", files=3, combine="all"))
    tested.land(1100, files=2)
    assert tested.built() == []
    tested.now += HOUR
    tested.land(1010, files=9)
    assert tested.built() == []
    tested.now += HOUR
    tested.land(1100, files=4)
    assert tested.built() == ["2026-01-02"]


def test_late_data_after_the_cut_off_are_skipped(begin):
    tested = begin(late=Late(cut_off=2 * DAY))
    tested.now = START + 2 * DAY
    tested.land(5000)
    assert tested.built() == []
    assert (tested.state, tested.decided()) == (State.SKIPS_LATE_DATA, [("skip", None)])


def test_late_data_wait_for_the_daily_check(begin):
    tested = begin(late=Late("5%", check="daily"))
    tested.land(1100)
    midnight = START.replace(hour=0) + DAY
    assert tested.built() == []
    assert (tested.state, tested.decided()) == (State.WAITS_FOR_LATE_DATA, [("wait", midnight)])
    tested.now = midnight - MINUTE
    tested.land(1101)
    assert tested.built() == []
    tested.now = midnight
    assert tested.built() == ["2026-01-02"]
    assert tested.decided()[-1] == ("re-run", None)


def test_late_data_of_days_beyond_the_lookback_are_skipped(begin):
    tested = begin(late=Late("5%", check="daily", lookback=2), keys=("2026-01-02", "2026-01-01"))
    for key in tested.keys:
        tested.land(1100, key=key)
    tested.now = START.replace(hour=0) + DAY
    assert tested.built() == ["2026-01-02"]
    with open_ledger(settings().ledger).read() as connection:
        (skipped,) = [each for each in late_decisions.decisions(connection, 9) if each.outcome == "skip"]
    assert skipped.partition.key == "2026-01-01"
    assert "only the last 2 periods are checked" in skipped.why


def test_each_input_is_weighed_by_its_own_policy(begin):
    tested = begin(Late("5%"), Late("50%", max_age=DAY), None, late=Late("10%"))
    tested.land(1090, "in2")
    tested.land(1400, "in1")
    assert tested.built() == []
    tested.land(1050, "in0")
    assert tested.built() == ["2026-01-02"]
    assert tested.decided()[-1][0] == "re-run"
    tested.now += 2 * DAY
    assert tested.built() == []


def test_late_bytes_are_weighed_against_the_cost_of_earlier_runs(begin, setting):
    setting(run_cost=1e9)  # With this cost no run is worth a few bytes.
    tested = begin(late=Late("5%", value_per_gb=1))
    tested.land(1100)
    assert tested.built() == []
    assert (tested.state, tested.decided()) == (State.SKIPS_LATE_DATA, [("skip", None)])
    setting(run_cost=0)
    tested.land(1101)
    assert tested.built() == ["2026-01-02"]


def test_hourly_partitions_have_an_hourly_check_and_lookback(begin):
    keys = tuple(f"2026-01-02-{hour:02}:00" for hour in (20, 21, 22))
    tested = begin(late=Late("5%", check="hourly", lookback=5), partitions_def=HOURS, keys=keys)
    tested.now = START + 10 * MINUTE  # At the check of 02:00, 20:00 is six hours back.
    for key, size in zip(keys, (1100, 1100, 1040), strict=True):
        tested.land(size, key=key)
    assert tested.built() == []
    tested.now = START + HOUR
    assert tested.built() == [keys[1]]
    assert sorted(outcome for outcome, until in tested.decided() if until is None) == ["re-run", "skip", "skip"]


def test_one_hour_waits_reruns_and_skips_late_data_by_age_size_and_cut_off(begin):
    keys = [f"2026-01-02-{hour}:00" for hour in (21, 22, 23)]
    late, hour = Late("5%", max_age=2 * HOUR, cut_off=8 * HOUR), keys[1]
    tested = begin(late=late, partitions_def=HOURS, keys=keys)
    ended = datetime(2026, 1, 2, 23, tzinfo=UTC)
    told = []
    for after, size, built, decided in (
        (3 * HOUR, 1010, [], ("wait", ended + 5 * HOUR)),
        (4 * HOUR, 1020, [], ("wait", ended + 5 * HOUR)),
        (5 * HOUR - MINUTE, None, [], None),
        (5 * HOUR, None, [hour], ("re-run", None)),  # The first late update is old enough.
        (6 * HOUR, 1060, [], ("wait", ended + 8 * HOUR)),  # Compared with 1,020, which was already read.
        (7 * HOUR, 1080, [hour], ("re-run", None)),
        (8 * HOUR - MINUTE, 1090, [], ("wait", ended + 10 * HOUR - MINUTE)),
        (9 * HOUR, None, [], None),
        (10 * HOUR - MINUTE, None, [hour], ("re-run", None)),  # It arrived before the cut-off, so it still counts.
        (10 * HOUR, 5000, [], ("skip", None)),
        (9 * DAY, None, [], None),
    ):
        tested.now = ended + after
        if size:
            tested.land(size, key=hour)
        told += [decided] if decided else []
        assert (tested.built(), tested.decided()) == (built, told)


HOURS_OF_A_DAY = [f"2026-01-02-{hour:02}:00" for hour in range(24)]
OF_MEN, OF_WOMEN = ([f"{hour}/{who}" for hour in HOURS_OF_A_DAY] for who in ("men", "women"))


PARTNERS = dg.MultiPartitionsDefinition({"hour": HOURS, "partner": dg.StaticPartitionsDefinition(["men", "women"])})


@pytest.mark.parametrize(
    ("partitions_def", "of_men", "of_women"),
    [
        pytest.param(HOURS, HOURS_OF_A_DAY, [], id="hours"),
        pytest.param(
            PARTNERS, *([f"{hour}/{who}" for hour in HOURS_OF_A_DAY] for who in ("men", "women")), id="partners"
        ),
    ],
)
def test_late_hours_of_a_day_are_weighed_together_for_each_partner(begin, partitions_def, of_men, of_women):
    tested = begin(None, late=Late("5%"), of=(partitions_def, [*of_men, *of_women]))
    tested.now += MINUTE
    for hour in of_men[:11]:
        tested.land(1100, key=hour)
    assert tested.built() == []
    tested.land(1100, key=of_men[11])
    assert tested.built() == ["2026-01-02"]


def test_late_hours_that_arrive_one_by_one_rebuild_their_day_once(begin):
    tested = begin(None, late=Late(check="hourly"), of=(HOURS, HOURS_OF_A_DAY))
    for hour in HOURS_OF_A_DAY[:3]:
        tested.now += MINUTE
        tested.land(1100, key=hour)
        assert tested.built() == []
    tested.now = START + 2 * HOUR
    assert tested.built() == ["2026-01-02"]


def test_data_that_land_during_a_rerun_are_weighed_against_its_input(begin):
    tested = begin(late=Late("5%"))
    tested.land(1100)
    landed = iter([1200])

    def lands() -> None:
        tested.now += MINUTE
        for size in landed:
            tested.land(size)

    tested.during = lands
    assert tested.built() == ["2026-01-02"] * 2
    assert [outcome for outcome, _ in tested.decided()] == ["re-run", "re-run"]


def test_small_data_that_land_during_a_rerun_cause_no_other_rerun(begin):
    tested = begin(late=Late("5%"))
    tested.land(1100)
    landed = iter([1110])
    tested.during = lambda: [tested.land(size) for size in landed]
    assert tested.built() == ["2026-01-02"]
    assert tested.state == State.SKIPS_LATE_DATA


def test_two_ticks_at_once_request_and_report_one_rerun(begin):
    tested = begin(late=Late("5%"))
    tested.land(1100)
    for _ in range(2):
        tested.harness.ask()
    assert tested.built() == ["2026-01-02"]
    assert [outcome for outcome, _ in tested.decided()] == ["re-run"]


@pytest.mark.parametrize("before", [Late("90%"), Late("90%", max_age=30 * DAY)])
def test_a_changed_late_policy_decides_skipped_late_data_again(before):
    raw = raw_feed()
    first = harness(raw, sums_of(raw, late=before))
    for size in (9, 10):
        first.drop(RAW, FIRST, rows(*range(1, size)))
        first.run_until_idle()
    same = harness(raw, sums_of(raw, late=before), instance=first.instance)
    assert outcomes(same.run_until_idle()) == []
    softer = harness(raw, sums_of(raw, late=replace(before, growth="80%")), instance=first.instance)
    assert outcomes(softer.run_until_idle()) == []
    with open_ledger(settings().ledger).read() as connection:
        thresholds = [each.why.partition("threshold of ")[2][:5] for each in late_decisions.decisions(connection, 9)]
    assert thresholds == ["80.0%", "90.0%"], "that it is skipped, or waits, by another policy is said once"
    another = harness(raw, sums_of(raw, late=Late("1%")), instance=first.instance)
    assert outcomes(another.run_until_idle()) == [("sums", FIRST, True)]

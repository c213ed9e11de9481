"""History is built after new data, in the order of its time, and within a daily limit."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import dagster as dg
import pytest

from feed_assets import Input, feed_asset
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import Order
from feed_assets.ledger import due, history_budget
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration import by_hand
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.requests import requests_for
from feed_assets.runs.discover import discover_all
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.statement_counter import counted_statements
from feed_assets_tests.support.sum_projects import RAW, SUMS, harness, later, raw_feed, rows, sums_of

pytestmark = pytest.mark.usefixtures("home")

DAY = timedelta(days=1)
MORNING = datetime.combine(utc_now().date(), time(6), UTC)
THEIRS, MADE = "u/raw/v1.0", "u/made/v1.0"


def key(ago: int, today: int = 0) -> str:
    """Return the day that ended `ago` days before a day, which is `today` days after today."""
    return (MORNING + (today - ago - 1) * DAY).date().isoformat()


def keys(*ago: int) -> list[str]:
    return [key(each) for each in ago]


def days(count: int) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition((MORNING - (count + 1) * DAY).replace(hour=0).replace(tzinfo=None))


def world(count: int = 40, raw: str = RAW, made: str = SUMS, **options) -> Harness:
    """Build a feed of `count` days and the sums of each, with a fixed clock."""
    feed = raw_feed(raw, partitions_def=days(count))
    return harness(feed, sums_of(feed, name=made, partitions_def=days(count), **options), now=lambda: MORNING)


def drop(world: Harness, *ago: int, raw: str = RAW, numbers: tuple[int, ...] = (1,)) -> Harness:
    """Drop updates and record all of them at once; a tick would find the newest first."""
    for each in ago:
        world.drop(raw, key(each), rows(*numbers))
    discover_all(Services.of(settings()), [Feed.parse(raw)], set())
    return world


def ran(runs, made: str = "t/sums") -> list[str | None]:
    return [run.partition for run in runs if run.assets[0] == made]


def next_day(world: Harness) -> None:
    later(world, DAY)


def listed(made: str = SUMS) -> dict[str, due.DueOutput]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.partition.key: each for each in due.listed(connection, Feed.parse(made))}


def spent(now: datetime = MORNING) -> tuple[int, int]:
    with open_ledger(settings().ledger).read() as connection:
        found = history_budget.spent(connection, now)
    return found.runs, found.bytes


# Order without a limit


@pytest.mark.parametrize(("order", "expected"), [("oldest", (2, 1, 30, 20, 10)), ("newest", (2, 1, 10, 20, 30))])
def test_new_data_are_requested_first_with_priority_then_history_in_its_order(setting, order, expected):
    setting(history_order=order)
    asked = drop(world(), 20, 1, 30, 2, 10).ask()
    assert [partition for _, partition in asked.targets] == (keys(2, 1) + keys(*expected[2:]))
    assert [each.tags.get("dagster/priority") for each in asked.requests] == ["10", None, None, None]


def test_new_and_historic_neighbours_are_two_runs(setting):
    setting(history_days=5)
    asked = drop(world(), 3, 4, 5, 6, 7).ask()
    assert [partition for _, partition in asked.targets] == keys(4, 3, 7, 6, 5)
    assert [each.tags.get("dagster/priority") for each in asked.requests] == ["10", None]


def test_new_data_go_first_when_a_tick_may_request_one_run(setting):
    setting(max_requests=1, partitions_per_run=1)
    lake = drop(world(), 30, 20, 1)
    assert [ran(lake.tick()) for _ in range(3)] == [keys(1), keys(30), keys(20)]


def test_new_data_go_before_more_history_than_one_tick_can_decide(setting):
    setting(partitions_per_run=1, max_requests=1)
    lake = drop(world(1100), *range(20, 1080))
    lake.ask()
    assert len(listed()) == 1060
    drop(lake, 1)
    assert [partition for _, partition in lake.ask().targets] == keys(1)


# Limit of runs a day


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_three_years_of_history_are_built_in_order_within_the_daily_limit(setting, order):
    """Every 28th day is history. Each day runs in a fresh harness, which knows only the ledger."""
    setting(history_runs_per_day=10, history_order=order)
    old, built = [*range(20, 3 * 365, 28)], list[str | None]()
    drop(world(3 * 365), *old)
    for day in range(len(old) // 10 + 1):
        lake = world(3 * 365)
        later(lake, day * DAY)
        lake.drop(RAW, key(0, day), rows(1))
        first, *rest = ran(lake.run_until_idle())
        assert first == key(0, day)
        assert len(rest) == min(10, len(old) - len(built))
        built += rest
    assert built == keys(*sorted(old, reverse=order == "oldest"))
    assert listed() == {}


@pytest.mark.parametrize(("order", "runs"), [("oldest", (30, 25)), ("newest", (20, 25))])
def test_a_run_of_many_partitions_counts_once_and_keeps_the_order(setting, order, runs):
    setting(history_runs_per_day=1, partitions_per_run=5, history_order=order)
    lake = drop(world(), *range(16, 31))
    for last in runs:
        assert ran(lake.run_until_idle()) == keys(*range(last, last - 5, -1))
        next_day(lake)


def test_history_beyond_the_limit_names_it_and_goes_on_the_next_day(setting):
    setting(history_runs_per_day=1, partitions_per_run=1)
    lake = drop(world(), 30, 20, 10)
    assert ran(lake.run_until_idle()) == keys(30)
    waits = listed()
    assert {each.state for each in waits.values()} == {"waits for time"}
    assert {each.look_at for each in waits.values()} == {datetime.combine(MORNING.date() + DAY, time(), UTC)}
    assert "1 runs a day (UTC) may be requested (FEED_ASSETS_HISTORY_RUNS_PER_DAY)" in str(waits[key(20)].reason)
    later(lake, timedelta(hours=17, minutes=59))
    assert lake.run_until_idle() == []
    later(lake, timedelta(minutes=2))
    assert ran(lake.run_until_idle()) == keys(20)


def test_history_that_waits_for_days_is_reported_to_dagster_once(setting):
    setting(history_runs_per_day=1, partitions_per_run=1)
    lake = drop(world(), 40, 30, 20, 10)
    for _ in range(3):
        lake.run_until_idle()
        next_day(lake)
    wanted = dg.AssetRecordsFilter(dg.AssetKey(["t", "sums"]), asset_partitions=keys(10))
    assert len(lake.instance.fetch_observations(wanted, limit=9).records) == 1


def test_a_raised_history_limit_applies_in_the_next_process(setting):
    setting(history_runs_per_day=1, partitions_per_run=1)
    assert ran(drop(world(), 30, 20, 10).run_until_idle()) == keys(30)
    setting(history_runs_per_day=2)
    assert ran(world().run_until_idle()) == keys(20)
    setting(history_runs_per_day="")
    assert ran(world().run_until_idle()) == keys(10)


def test_a_change_of_waiting_history_is_decided_at_once(setting):
    setting(history_runs_per_day=1, partitions_per_run=1)
    lake = drop(world(), 30, 20)
    lake.run_until_idle()
    lake.invalidate(RAW, key(20), lake.newest(RAW, key(20)))
    discover_all(Services.of(settings()), [Feed.parse(RAW)], set())
    lake.tick()
    assert listed()[key(20)].state == "waits for input"


def test_two_code_locations_share_the_history_limit(setting):
    setting(history_runs_per_day=2, partitions_per_run=1)
    mine, other = drop(world(), 30, 29, 28), drop(world(raw=THEIRS, made=MADE), 30, 29, 28, raw=THEIRS)
    assert (ran(mine.run_until_idle()), ran(other.run_until_idle(), "u/made")) == (keys(30, 29), [])
    for lake in (mine, other):
        next_day(lake)
    assert (ran(other.run_until_idle(), "u/made"), ran(mine.run_until_idle())) == (keys(30, 29), [])
    for lake in (mine, other):
        next_day(lake)
    assert (ran(mine.run_until_idle()), ran(other.run_until_idle(), "u/made")) == (keys(28), keys(28))


def test_a_tick_overtaken_by_another_requests_no_history(setting, monkeypatch):
    setting(history_runs_per_day=1, partitions_per_run=1)
    lake, other = drop(world(), 30), drop(world(raw=THEIRS, made=MADE), 30, raw=THEIRS)
    first, seen = history_budget.spent, []

    def overtaken(*arguments):
        before = first(*arguments)
        if not seen:
            seen.append(None)
            seen[0] = other.ask().targets
        return before

    monkeypatch.setattr(history_budget, "spent", overtaken)
    assert lake.ask().targets == []
    assert [partition for _, partition in seen[0]] == keys(30)
    assert lake.ask().targets == []
    assert spent() == (1, len(rows(1)))
    assert listed()[key(30)].state == "waits for time"


# Limit of bytes a day


def test_history_keeps_to_bytes_a_day_and_a_larger_partition_runs_alone(setting):
    """Sizes in day limits: two of a quarter, one of more than a day, two small ones."""
    small, large = len(rows(1)), len(rows(*[1] * 40))
    setting(history_bytes_per_day=4 * small + 1, partitions_per_run=9)
    assert large > 4 * small + 1
    lake = drop(world(), 30, 29, 27, 26)
    drop(lake, 28, numbers=(1,) * 40)
    by_day = list[list[str | None]]()
    for _ in range(4):
        by_day.append(ran(lake.run_until_idle()))
        next_day(lake)
    assert by_day == [keys(30, 29), keys(28), keys(27, 26), []]


def test_later_history_that_would_fit_does_not_overtake_a_waiting_one(setting):
    setting(history_bytes_per_day=2 * len(rows(1)), partitions_per_run=1)
    lake = drop(world(), 30)
    drop(lake, 20, numbers=(1,) * 40)
    assert ran(lake.run_until_idle()) == keys(30)
    assert ran(drop(lake, 10, 1).run_until_idle()) == keys(1)
    next_day(lake)
    assert ran(lake.run_until_idle()) == keys(20)


def test_a_run_of_many_partitions_ends_where_the_daily_bytes_end(setting):
    setting(history_bytes_per_day=3 * len(rows(1)), partitions_per_run=9)
    lake = drop(world(), *range(20, 28))
    first = lake.run_until_idle()
    assert (ran(first), len({run.id for run in first})) == (keys(27, 26, 25), 1)
    assert spent() == (1, 3 * len(rows(1)))


# Re-runs by the condition


def late(lake: Harness, *ago: int) -> Harness:
    """Build everything, then drop late data for these days."""
    lake.run_until_idle()
    return drop(lake, *ago, numbers=(1, 2))


def evaluated(lake: Harness):
    """Return the requests of the condition's sensor, evaluated as in the code server by the real clock."""
    lake.ask()
    sensor = lake.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(lake.instance, definitions=lake.definitions, sensor_name="late_data") as context:
        return sensor.evaluate_tick(context).run_requests


def test_late_reruns_of_history_go_last_in_order_within_the_daily_limit(setting):
    setting(partitions_per_run=1)
    lake = late(drop(world(), 30, 20, 10, 1), 30, 20, 10, 1)
    setting(history_runs_per_day=2, partitions_per_run=1, history_order="newest")
    assert ran(lake.run_until_idle()) == keys(1, 10, 20)
    assert listed()[key(30)].state == "waits for time"
    next_day(lake)
    drop(lake, 2)
    assert ran(lake.run_until_idle()) == keys(2, 30)


def test_first_runs_and_late_reruns_share_the_history_limit(setting):
    setting(partitions_per_run=1)
    lake = late(drop(world(), 30, 20), 30, 20)
    drop(lake, 25)
    setting(history_runs_per_day=2, history_bytes_per_day=10_000, partitions_per_run=1)
    assert ran(lake.run_until_idle()) == keys(25, 30)
    assert spent() == (2, len(rows(1)) + len(rows(1, 2)))


def test_the_late_data_sensor_gives_new_data_priority_over_history(setting):
    setting(history_runs_per_day=1, partitions_per_run=5)
    lake = late(drop(world(), 1), 1)
    setting(history_runs_per_day="")
    drop(lake, 30, 29, 20).run_until_idle()
    setting(history_runs_per_day=1)
    drop(lake, 30, 29, 20, 1, numbers=(1, 2, 3))
    lake.now = utc_now
    new, old = evaluated(lake)
    assert (new.partition_key, new.tags["dagster/priority"]) == (key(1), "10")
    assert "dagster/priority" not in old.tags
    assert [old.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")] == keys(30, 29)
    assert evaluated(lake) == []


# By hand


def graph(lake: Harness) -> Graph:
    return Graph(lake.definitions.resolve_asset_graph())


def planned(lake: Harness, order: Order | None = None, *outputs: Partition) -> list[by_hand.Planned]:
    asked = outputs or [Partition(Feed.parse(SUMS), each) for each in keys(30, 20, 10, 1)]
    by_hand.look(graph(lake), Services.of(settings()), asked)
    return by_hand.plan(graph(lake), Services.of(settings()), asked, order)


def build(lake: Harness, day: int = 0) -> dict[str, str]:
    """Build four days by hand on a later day, and return the days left unbuilt with the reasons."""

    def run(request: dg.RunRequest) -> bool:
        return lake.runner.execute(request).success

    services = replace(Services.of(settings()), now=lambda: MORNING + day * DAY)
    left = by_hand.build(graph(lake), services, planned(lake), "alice", run)
    return {output.key: why for output, why in left.items()}


@pytest.mark.parametrize(("order", "ago"), [(None, (1, 30, 20, 10)), (Order.NEWEST, (1, 10, 20, 30))])
def test_a_plan_has_new_data_first_and_then_history_in_the_given_order(order, ago):
    found = planned(drop(world(), 30, 20, 10, 1), order)
    assert [each.output.key for each in found] == keys(*ago)


def test_a_dataset_that_reads_its_previous_bucket_is_planned_oldest_first():
    feed = raw_feed(partitions_def=days(40))

    @feed_asset("t/run/v1.0", partitions_def=days(40), inputs={"raw": feed, "before": Input.previous_bucket()})
    def run(raw, before):
        """Read both inputs; it never runs here."""
        return raw

    lake = drop(harness(feed, run, now=lambda: MORNING), *range(20, 24))
    outputs = [Partition(Feed.parse("t/run/v1.0"), each) for each in keys(*range(20, 24))]
    for order in Order:
        assert [each.output.key for each in planned(lake, order, *outputs)] == keys(23, 22, 21, 20)


def test_a_build_by_hand_stops_at_the_limit_and_goes_on_the_next_day(setting):
    setting(history_runs_per_day=1)
    lake = drop(world(), 30, 20, 10, 1)
    left = build(lake)
    assert [*left] == keys(20, 10)
    assert "FEED_ASSETS_HISTORY_RUNS_PER_DAY" in left[key(20)]
    assert ran(lake.runs) == keys(1, 30)
    assert [*build(lake)] == keys(20, 10), "and what is built already is not left"
    assert ([*build(lake, 1)], [*build(lake, 2)]) == (keys(10), [])


def test_rebuilds_by_hand_for_a_new_code_version_count_against_the_limit(setting):
    setting(history_runs_per_day=2)
    drop(world(), 30, 20, 10, 1).run_until_idle()
    changed = world(code_version="2")
    assert [[*build(changed, day)] for day in (1, 2)] == [keys(10), []]


def test_runs_by_hand_and_by_sensors_share_the_history_limit(setting):
    setting(history_runs_per_day=2, partitions_per_run=1)
    lake = drop(world(), 40, 30, 20, 10, 1)
    assert [*build(lake)] == keys(10)
    assert ran(lake.run_until_idle()) == []
    next_day(lake)
    assert ran(lake.run_until_idle()) == keys(40, 10)


def test_by_hand_no_history_overtakes_a_partition_beyond_the_daily_bytes(setting):
    setting(history_bytes_per_day=2 * len(rows(1)))
    lake = drop(world(), 30, 10, 1)
    drop(lake, 20, numbers=(1,) * 40)
    assert [*build(lake)] == keys(20, 10)


# Cost


def statements(lake: Harness, made: str, count: int, now: datetime = MORNING) -> list[str]:
    """Return the ledger's statements for deciding and requesting `count` partitions."""
    ledger, loaded = open_ledger(settings().ledger), graph(lake)
    fan_out_to(loaded, loaded.datasets(), ledger, now, lambda: False)
    with counted_statements(ledger.engine) as found:
        decided = decide_due(loaded, loaded.datasets(), ledger, now, 1000, lambda: False, set())
        requests = requests_for(loaded, ledger, decided.verdicts, set(), now)
    assert (len(decided.verdicts), len(requests), len(listed(made))) == (count, min(count, 2), count)
    return found


def test_more_history_costs_no_more_statements_and_none_reads_no_limit(setting):
    setting(history_runs_per_day=2, partitions_per_run=1)
    with dg.partition_loading_context(MORNING):
        few = statements(drop(world(), 30, 29, 28), SUMS, 3)
        lake = drop(world(raw=THEIRS, made=MADE), *range(10, 40), raw=THEIRS)
        many = statements(lake, MADE, 30, MORNING + DAY)
        none = statements(drop(world(raw="v/raw/v1.0", made="v/made/v1.0"), 1, raw="v/raw/v1.0"), "v/made/v1.0", 1)
    assert len(many) == len(few)
    assert [each for each in none if "cursor" in each] == []

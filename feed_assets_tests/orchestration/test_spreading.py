"""Outputs of bad data are marked down to the last consumer, and good again once rebuilt by hand."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, Input, checks, feed_asset, foreign_feed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import log, quality
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.orchestration.decide.decisions import fan_out_to, verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.execute.asset_function import ASKED_BY
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, RAW, harness, raw_feed, rows

A, B, C = "t/a/v1.0", "t/b/v1.0", "t/c/v1.0"
SERVED = Completeness(grains=("hour", "day"), tiers=("adserver",))
MIDNIGHT = datetime(2020, 1, 1, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(days=9)
WHOLE = tuple((MIDNIGHT + timedelta(hours=hour), 10) for hour in range(24))


def ledger():
    return open_ledger(settings().ledger)


def dataset(name: str, read, **options) -> dg.AssetsDefinition:
    @feed_asset(name, partitions_def=DAYS, inputs={"read": read}, **options)
    def made(read):
        """Read one input."""

    return made


class World:
    """Raw data and datasets made of them. `finds` is the check result of the next runs, by dataset name."""

    def __init__(self, *assets) -> None:
        self.finds: dict[str, int] = {}
        self.rows, self.step = 0, 1
        self.harness: Harness = harness(*assets, give=self.give, now=lambda: NOW)
        self.graph = Graph(self.harness.definitions.resolve_asset_graph())
        self.harness.tick()

    def give(self, task) -> Given:
        name, self.rows = str(task.recipe.feed), self.rows + self.step
        failed = {"not_empty": self.finds[name]} if self.finds.get(name) else {}
        return Given([{"n": self.rows}], failed=failed, windows=WHOLE if task.recipe.grain else None)

    def says(self, state: str, reason: str | None = None, feed: str = RAW, check: str = "seen") -> None:
        """Report a check of a day of a feed."""
        with ledger().change() as connection:
            quality.report(connection, partition_of(feed), check, state, reason, "eve", NOW)

    def verdict(self, feed: str):
        with dg.partition_loading_context(NOW), ledger().read() as connection:
            return verdicts(self.graph, connection, [partition_of(feed)], NOW)[0]

    def by_hand(self, feed: str) -> bool:
        """Materialize a day, as a person does in the UI."""
        outputs = self.graph.node(Feed.parse(feed)).outputs
        request = dg.RunRequest(partition_key=DAY, asset_selection=outputs, tags={ASKED_BY: "eve"})
        return self.harness.runner.execute(request).success


def partition_of(feed: str, day: str = DAY) -> Partition:
    return Partition(Feed.parse(feed), day)


def marks(*feeds: str) -> list[str | None]:
    """Return why a day of each feed is marked. None means that it is not."""
    with ledger().read() as connection:
        marked = quality.failed(connection, map(partition_of, feeds), [quality.MARKED])
    return [marked.get(partition_of(feed)) for feed in feeds]


def last() -> int:
    with ledger().read() as connection:
        return log.last(connection)


def chain() -> World:
    """Build raw -> a -> b -> c."""
    raw = raw_feed()
    a = dataset(A, Input(raw, ignore_quality_issue=True), checks=[checks.not_empty()])
    b = dataset(B, a)
    return World(raw, a, b, dataset(C, b))


def built() -> World:
    world = chain()
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.drop(RAW, NEXT_DAY, rows(1))
    world.harness.run_until_idle()
    return world


SEEN = f"{RAW} {DAY} (seen: half of it is lost)"


def test_outputs_of_a_bad_partition_are_all_marked_in_one_tick():
    world = built()
    world.says("failed", "half of it is lost")
    world.harness.ask()
    assert marks(A, B, C) == [SEEN] * 3
    assert marks(f"{RAW}") == [None]
    world.says("passed")
    world.harness.ask()
    assert marks(A, B, C) == [None] * 3


@pytest.mark.parametrize("check", ["seen", "not_empty"])
def test_a_reader_with_named_checks_ignores_other_failed_checks(check):
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="id int, at timestamp")
    a = dataset(A, raw, checks=[checks.not_empty()], completeness=SERVED, event_time="at")
    world = World(raw, a, dataset(B, Input(a, checks=["not_empty"])))
    told = [Report(Feed.parse(A), "", str(moment), ((moment, n),), "adserver", f"{0:020d}") for moment, n in WHOLE]
    report(ledger(), told, NOW)
    world.harness.drop(RAW, DAY, "id,at\n1,2020-01-01 00:00:00\n")
    world.harness.tick()
    world.says("failed", "half of it is lost", A, check=check)
    world.harness.run_until_idle()
    assert world.verdict(B).state is (State.CURRENT if check == "seen" else State.WAITS_FOR_QUALITY)


def test_a_failed_check_of_a_partition_marks_outputs_of_its_batches():
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="k string, n int", appendable=True)
    a = dataset(A, Input(raw, ignore_quality_issue=True))
    world = World(raw, a, dataset(B, a))
    for batch in ("one", "two"):
        world.harness.drop(RAW, f"{DAY}/{batch}", rows(1))
    world.harness.run_until_idle()
    world.says("failed", "half of it is lost")
    world.harness.ask()
    assert [str(why).endswith("(seen: half of it is lost)") for why in marks(A, B)] == [True, True]
    world.says("passed")
    world.harness.ask()
    assert marks(A, B) == [None] * 2


def test_a_reader_of_batches_goes_on_when_their_partition_passes():
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="k string, n int", appendable=True)
    world = World(raw, dataset(A, raw))
    world.says("failed", "half of it is lost")
    world.harness.drop(RAW, f"{DAY}/one", rows(1))
    assert world.harness.run_until_idle() == []
    assert world.verdict(A).state is State.WAITS_FOR_QUALITY
    world.says("passed")
    assert [run.partition for run in world.harness.run_until_idle()] == [DAY]


def test_other_partitions_are_not_marked_and_nothing_is_written_twice():
    world = built()
    world.says("failed", "half of it is lost")
    world.harness.run_until_idle()
    with ledger().read() as connection:
        assert quality.failed(connection, [partition_of(A, NEXT_DAY), partition_of(B, NEXT_DAY)]) == {}
    before = last()
    world.harness.run_until_idle()
    assert last() == before


def test_a_warning_marks_nothing():
    world = built()
    world.says("warned", "it is small")
    world.harness.ask()
    assert marks(A, B, C) == [None] * 3


def test_an_output_that_ignores_quality_is_marked_and_its_readers_wait():
    world = chain()
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.ask()
    world.says("failed", "half of it is lost")
    world.harness.run_until_idle()
    assert marks(A, B) == [SEEN, None]
    waits = world.verdict(B)
    assert (waits.state, SEEN in waits.reason) == (State.WAITS_FOR_QUALITY, True)


def test_a_mark_is_published_together_with_its_output():
    world = chain()
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.ask()
    world.says("failed", "half of it is lost")
    assert world.by_hand(A)
    assert marks(A) == [SEEN]


def test_outputs_stay_marked_until_they_are_built_from_good_data():
    world = built()
    world.says("failed", "half of it is lost")
    world.harness.ask()
    world.harness.drop(RAW, DAY, rows(1, 2))
    world.says("passed")
    world.harness.ask()
    assert marks(A, B, C) == [SEEN] * 3
    world.harness.run_until_idle()
    assert marks(A, B, C) == [None] * 3


class Killed(BaseException):
    """A simulated kill."""


@pytest.mark.parametrize("upto", range(1, 5))
def test_marking_killed_after_any_transaction_is_finished_by_the_next(upto):
    world = built()
    world.says("failed", "half of it is lost")
    nodes, count = world.graph.datasets(), iter(range(1, 99))

    def out_of_time() -> bool:
        if next(count) == upto:
            raise Killed
        return False

    with pytest.raises(Killed):
        fan_out_to(world.graph, nodes, ledger(), NOW, out_of_time)
    assert fan_out_to(world.graph, nodes, ledger(), NOW, lambda: False)
    assert marks(A, B, C) == [SEEN] * 3


# Datasets with windows of their own


def counted() -> World:
    """Build raw -> a (counted by hours and days) -> b."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="id int, at timestamp")
    a = dataset(A, raw, checks=[checks.not_empty()], completeness=SERVED, event_time="at")
    world = World(raw, a, dataset(B, a))
    told = [Report(Feed.parse(A), "", str(moment), ((moment, n),), "adserver", f"{0:020d}") for moment, n in WHOLE]
    assert not report(ledger(), told, NOW).rejected
    world.harness.drop(RAW, DAY, "id,at\n1,2020-01-01 00:00:00\n")
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    return world


def states() -> tuple[str, str]:
    """Return the state of the day and the distinct states of its hours."""
    day = WindowAddress(Feed.parse(A), "", "day", DAY)
    hours = [WindowAddress(Feed.parse(A), "", "hour", start.strftime("%Y-%m-%d-%H:%M")) for start, _ in WHOLE]
    with ledger().read() as connection:
        known = window_queries.stored_windows(connection, [day, *hours])
    return str(known[day].state), " ".join(sorted({str(known[hour].state) for hour in hours}))


def failed() -> World:
    """Build the same world, and fail a check of its day."""
    world = counted()
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    assert states() == ("invalid", "complete_with_issue")
    return world


def test_a_failed_check_of_a_partition_makes_its_windows_invalid():
    world = failed()
    assert marks(B) == [f"{A} {DAY} (seen: half of it is lost)"]
    world.says("passed", None, A)
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    assert marks(B) == [None]


def test_a_marked_output_is_complete_with_issue():
    world = counted()
    world.says("failed", "half of it is lost")
    world.harness.run_until_idle()
    assert states() == ("complete_with_issue", "complete")
    world.says("passed")
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")


def transitions() -> list[str]:
    with ledger().read() as connection:
        changes = log.after(connection, 0, log.last(connection), 10_000, [Feed.parse(A)])
    return [str(each.after) for each in changes if each.kind == log.WINDOW and each.partition.key == f"day@{DAY}"]


def check_state(feed: str, check: str = "seen") -> str:
    """Return the state of a check of a day of a feed."""
    with ledger().read() as connection:
        return quality.check_states(connection, [partition_of(feed)])[partition_of(feed), check].state


MADE_AGAIN = f"{A} {DAY} (check seen failed before the data were made again, and has not run since: half of it is lost)"


def test_a_bad_day_rebuilt_by_hand_is_good_once_its_check_passes():
    world = failed()
    assert world.by_hand(A)
    world.harness.run_until_idle()
    assert transitions() == ["complete", "invalid", "backfilling", "backfilled"]
    assert states() == ("backfilled", "complete_with_issue")
    assert marks(B) == [MADE_AGAIN]
    assert world.verdict(B).state is State.WAITS_FOR_QUALITY
    world.says("passed", None, A)
    world.harness.run_until_idle()
    assert transitions() == ["complete", "invalid", "backfilling", "backfilled"]
    assert states() == ("backfilled", "complete")
    assert marks(B) == [None]


def test_a_run_passes_no_foreign_check_and_consumers_wait_until_it_passes():
    world = built()
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (check_state(A), check_state(A, "not_empty")) == ("stale", "passed")
    assert marks(B, C) == [MADE_AGAIN] * 2
    assert world.verdict(B).state is State.WAITS_FOR_QUALITY
    world.says("passed", None, A)
    world.harness.run_until_idle()
    assert marks(B, C) == [None] * 2
    assert world.verdict(B).state is State.CURRENT


def test_a_check_that_fails_after_a_rebuild_makes_the_day_invalid_again():
    world = failed()
    assert world.by_hand(A)
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    assert states() == ("invalid", "complete_with_issue")


def test_a_run_without_changes_keeps_foreign_check_results():
    world = built()
    world.says("failed", "half of it is lost", A)
    before = world.harness.newest(A, DAY)
    assert world.by_hand(A)
    assert (check_state(A), world.harness.newest(A, DAY)) == ("failed", before)


def test_a_run_with_equal_rows_keeps_foreign_check_results():
    world = chain()
    world.step = 0
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.run_until_idle()
    world.says("failed", "half of it is lost", A)
    before = world.harness.newest(A, DAY)
    world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (check_state(A), world.harness.newest(A, DAY) != before) == ("failed", True)


@pytest.mark.parametrize(("is_taken_back", "seen"), [(True, "failed"), (False, "stale")])
def test_our_refusal_ends_with_good_data_and_foreign_checks_stay(is_taken_back, seen):
    world = built()
    world.finds[A] = 1
    bad = world.harness.drop(RAW, DAY, rows(1, 1))
    world.harness.run_until_idle()
    world.says("failed", "half of it is lost", A)
    assert (check_state(A, "not_empty"), check_state(A)) == ("failed", "failed")
    world.finds.clear()
    if is_taken_back:
        world.harness.invalidate(RAW, DAY, bad)
    else:
        world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (check_state(A, "not_empty"), check_state(A)) == ("passed", seen)


def test_a_run_of_a_sensor_is_no_backfill():
    """The day had failed, and new data arrive: a sensor's run judges them as usual."""
    world = failed()
    before = world.harness.newest(A, DAY)
    world.harness.drop(RAW, DAY, "id,at\n1,2020-01-01 00:00:00\n2,2020-01-01 01:00:00\n")
    world.harness.run_until_idle()
    assert world.harness.newest(A, DAY) != before
    assert "backfilling" not in transitions()


def test_a_rebuild_of_a_good_day_by_hand_is_no_backfill():
    world = counted()
    assert world.by_hand(A)
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    assert "backfilling" not in transitions()


def test_a_backfill_that_its_audit_refuses_is_given_up():
    world = failed()
    world.finds[A] = 1
    assert not world.by_hand(A)
    world.harness.run_until_idle()
    assert transitions()[-2:] == ["backfilling", "invalid"]

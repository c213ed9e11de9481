"""What is made of bad data is marked, down to what is made of that; and made again by hand it is good again."""

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
        """What was read."""

    return made


class World:
    """Raw data, and datasets made of them; `finds` is what the checks of the next runs find by the dataset's name."""

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
        """Somebody has looked at a day of a feed."""
        with ledger().change() as connection:
            quality.report(connection, at(feed), check, state, reason, "eve", NOW)

    def verdict(self, feed: str):
        with dg.partition_loading_context(NOW), ledger().read() as connection:
            return verdicts(self.graph, connection, [at(feed)], NOW)[0]

    def by_hand(self, feed: str) -> bool:
        """Materialize a day, as somebody does in the UI."""
        outputs = self.graph.node(Feed.parse(feed)).outputs
        request = dg.RunRequest(partition_key=DAY, asset_selection=outputs, tags={ASKED_BY: "eve"})
        return self.harness.runner.execute(request).success


def at(feed: str, day: str = DAY) -> Partition:
    return Partition(Feed.parse(feed), day)


def marks(*feeds: str) -> list[str | None]:
    """What a day of some feeds is marked for; None if it is not."""
    with ledger().read() as connection:
        found = quality.failed(connection, map(at, feeds), [quality.MARKED])
    return [found.get(at(feed)) for feed in feeds]


def last() -> int:
    with ledger().read() as connection:
        return log.last(connection)


def chain() -> World:
    """raw -> a -> b -> c, each of the one before."""
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


def test_what_was_made_of_a_bad_partition_is_marked_down_to_the_last_in_one_tick():
    world = built()
    world.says("failed", "half of it is lost")
    world.harness.ask()
    assert marks(A, B, C) == [SEEN] * 3
    assert marks(f"{RAW}") == [None]
    world.says("passed")
    world.harness.ask()
    assert marks(A, B, C) == [None] * 3


@pytest.mark.parametrize("check", ["seen", "not_empty"])
def test_who_names_checks_of_a_dataset_with_windows_reads_it_in_spite_of_others_that_fail(check):
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


def test_what_is_said_of_a_partition_marks_what_was_made_of_its_batches():
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


def test_who_waits_for_a_partition_with_batches_goes_on_when_that_passes():
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
        assert quality.failed(connection, [at(A, NEXT_DAY), at(B, NEXT_DAY)]) == {}
    before = last()
    world.harness.run_until_idle()
    assert last() == before


def test_a_warning_marks_nothing():
    world = built()
    world.says("warned", "it is small")
    world.harness.ask()
    assert marks(A, B, C) == [None] * 3


def test_who_does_not_mind_is_marked_when_it_is_published_and_whoever_reads_it_waits():
    world = chain()
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.ask()
    world.says("failed", "half of it is lost")
    world.harness.run_until_idle()
    assert marks(A, B) == [SEEN, None]
    waits = world.verdict(B)
    assert (waits.state, SEEN in waits.reason) == (State.WAITS_FOR_QUALITY, True)


def test_a_mark_is_there_as_soon_as_what_it_is_of():
    world = chain()
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.ask()
    world.says("failed", "half of it is lost")
    assert world.by_hand(A)
    assert marks(A) == [SEEN]


def test_it_stays_marked_until_it_is_made_of_what_is_good():
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
    """A kill, as near as one process comes to it."""


@pytest.mark.parametrize("upto", range(1, 5))
def test_it_may_be_killed_after_any_of_its_transactions(upto):
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


# What has windows of its own.


def counted() -> World:
    """raw -> a, by hours and days, -> b."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="id int, at timestamp")
    a = dataset(A, raw, checks=[checks.not_empty()], completeness=SERVED, event_time="at")
    world = World(raw, a, dataset(B, a))
    told = [Report(Feed.parse(A), "", str(at), ((at, n),), "adserver", f"{0:020d}") for at, n in WHOLE]
    assert not report(ledger(), told, NOW).rejected
    world.harness.drop(RAW, DAY, "id,at\n1,2020-01-01 00:00:00\n")
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    return world


def states() -> tuple[str, str]:
    """Of the day and of its hours."""
    day = WindowAddress(Feed.parse(A), "", "day", DAY)
    hours = [WindowAddress(Feed.parse(A), "", "hour", start.strftime("%Y-%m-%d-%H:%M")) for start, _ in WHOLE]
    with ledger().read() as connection:
        known = window_queries.stored_windows(connection, [day, *hours])
    return str(known[day].state), " ".join(sorted({str(known[hour].state) for hour in hours}))


def failed() -> World:
    """The same, whose day was found bad."""
    world = counted()
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    assert states() == ("invalid", "complete_with_issue")
    return world


def test_a_failed_check_of_a_partition_is_one_of_the_windows_that_it_fills():
    world = failed()
    assert marks(B) == [f"{A} {DAY} (seen: half of it is lost)"]
    world.says("passed", None, A)
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    assert marks(B) == [None]


def test_an_output_that_is_marked_is_complete_with_an_issue():
    world = counted()
    world.says("failed", "half of it is lost")
    world.harness.run_until_idle()
    assert states() == ("complete_with_issue", "complete")
    world.says("passed")
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")


def transitions() -> list[str]:
    with ledger().read() as connection:
        found = log.after(connection, 0, log.last(connection), 10_000, [Feed.parse(A)])
    return [str(each.after) for each in found if each.kind == log.WINDOW and each.partition.key == f"day@{DAY}"]


def found(feed: str, check: str = "seen") -> str:
    """The state of a check of a day of a feed."""
    with ledger().read() as connection:
        return quality.check_states(connection, [at(feed)])[at(feed), check].state


MADE_AGAIN = f"{A} {DAY} (check seen failed before the data were made again, and has not run since: half of it is lost)"


def test_what_is_bad_is_backfilled_by_hand_and_good_when_who_found_it_bad_has_looked_again():
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


def test_what_others_have_found_no_run_lets_pass_and_consumers_wait_until_they_look_again():
    world = built()
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (found(A), found(A, "not_empty")) == ("stale", "passed")
    assert marks(B, C) == [MADE_AGAIN] * 2
    assert world.verdict(B).state is State.WAITS_FOR_QUALITY
    world.says("passed", None, A)
    world.harness.run_until_idle()
    assert marks(B, C) == [None] * 2
    assert world.verdict(B).state is State.CURRENT


def test_a_check_that_fails_again_of_what_was_made_again_has_failed():
    world = failed()
    assert world.by_hand(A)
    world.says("failed", "half of it is lost", A)
    world.harness.run_until_idle()
    assert states() == ("invalid", "complete_with_issue")


def test_a_run_that_has_nothing_to_do_leaves_what_others_have_found():
    world = built()
    world.says("failed", "half of it is lost", A)
    before = world.harness.newest(A, DAY)
    assert world.by_hand(A)
    assert (found(A), world.harness.newest(A, DAY)) == ("failed", before)


def test_a_run_that_makes_equal_rows_leaves_what_others_have_found_in_these():
    world = chain()
    world.step = 0
    world.harness.drop(RAW, DAY, rows(1))
    world.harness.run_until_idle()
    world.says("failed", "half of it is lost", A)
    before = world.harness.newest(A, DAY)
    world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (found(A), world.harness.newest(A, DAY) != before) == ("failed", True)


@pytest.mark.parametrize(("is_taken_back", "seen"), [(True, "failed"), (False, "stale")])
def test_a_refusal_of_ours_passes_when_that_is_good_and_nothing_else_does(is_taken_back, seen):
    world = built()
    world.finds[A] = 1
    bad = world.harness.drop(RAW, DAY, rows(1, 1))
    world.harness.run_until_idle()
    world.says("failed", "half of it is lost", A)
    assert (found(A, "not_empty"), found(A)) == ("failed", "failed")
    world.finds.clear()
    if is_taken_back:
        world.harness.invalidate(RAW, DAY, bad)
    else:
        world.harness.drop(RAW, DAY, rows(1, 2))
    world.harness.run_until_idle()
    assert (found(A, "not_empty"), found(A)) == ("passed", seen)


def test_a_run_that_nobody_asked_for_is_no_backfill():
    """It was failed, and new data come: these are judged, as ever."""
    world = failed()
    before = world.harness.newest(A, DAY)
    world.harness.drop(RAW, DAY, "id,at\n1,2020-01-01 00:00:00\n2,2020-01-01 01:00:00\n")
    world.harness.run_until_idle()
    assert world.harness.newest(A, DAY) != before
    assert "backfilling" not in transitions()


def test_what_is_good_is_no_backfill():
    world = counted()
    assert world.by_hand(A)
    world.harness.run_until_idle()
    assert states() == ("complete", "complete")
    assert "backfilling" not in transitions()


def test_a_backfill_that_is_refused_is_given_up():
    world = failed()
    world.finds[A] = 1
    assert not world.by_hand(A)
    world.harness.run_until_idle()
    assert transitions()[-2:] == ["backfilling", "invalid"]

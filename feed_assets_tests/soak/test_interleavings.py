"""The two moments at which a wrong loop loses an update, stepped through by hand, and judged as the soak is."""

from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest

from feed_assets.core.launching import SHORTEST_WAIT
from feed_assets.runs.services import utc_now
from feed_assets.testing import Harness
from feed_assets_tests.soak import oracle
from feed_assets_tests.soak.project import EDGE, KEY, RAW, RIGHT_ONE, definitions

pytestmark = pytest.mark.usefixtures("home", "spark")

P1 = "p1"


@dataclass
class Daemon:
    """Dagster's daemon, one step at a time: cursors and run keys are kept as it keeps them."""

    harness: Harness
    cursor: str | None = None
    seen_by_conditions: Any = None

    def tick_of_feeds(self) -> list[dg.RunRequest]:
        """Store what the sensor tells; what it requests under a key that is new."""
        asked = self.harness.ask(self.cursor)
        for event in asked.events:
            self.harness.instance.report_runless_asset_event(event)
        self.cursor = asked.cursor
        return [each for each in asked.requests if not self._is_known(each)]

    def _is_known(self, request: dg.RunRequest) -> bool:
        same = dg.RunsFilter(tags={"dagster/run_key": request.run_key or ""})
        return bool(self.harness.instance.get_runs(same, limit=1))

    def tick_of_conditions(self) -> list[dg.RunRequest]:
        """What the conditions request, with the cursor of the tick before."""
        definitions = self.harness.definitions
        found = dg.evaluate_automation_conditions(definitions, self.harness.instance, cursor=self.seen_by_conditions)
        self.seen_by_conditions = found.cursor
        wanted: dict[str | None, list[dg.AssetKey]] = {}
        for key in sorted(definitions.resolve_asset_graph().materializable_asset_keys):
            for partition in found.get_requested_partitions(key):
                wanted.setdefault(partition, []).append(key)
        return [dg.RunRequest(partition_key=each, asset_selection=keys) for each, keys in wanted.items()]

    def run(self, requests: list[dg.RunRequest]) -> None:
        """Every run, from its start to its end."""
        for request in requests:
            self._job().execute_in_process(
                **self._options(request), asset_selection=list(request.asset_selection or ())
            )

    def kill(self, requests: list[dg.RunRequest]) -> None:
        """Every run is created, and its worker killed before it did anything."""
        for request in requests:
            options = self._options(request)
            run = self.harness.instance.create_run_for_job(
                self._job(),
                tags=options["tags"] | ({"dagster/partition": request.partition_key} if request.partition_key else {}),
                asset_selection=frozenset(request.asset_selection or ()),
            )
            self.harness.instance.report_run_failed(run, "killed")

    def _options(self, request: dg.RunRequest) -> dict[str, Any]:
        tags = {**request.tags, **({"dagster/run_key": request.run_key} if request.run_key else {})}
        return {"instance": self.harness.instance, "partition_key": request.partition_key, "tags": tags}

    def _job(self) -> dg.JobDefinition:
        return self.harness.definitions.resolve_implicit_global_asset_job_def()

    def until_idle(self) -> None:
        """Until neither asks for anything twice in a row."""
        idle = 0
        for _ in range(20):
            requests = [*self.tick_of_feeds(), *self.tick_of_conditions()]
            self.run(requests)
            idle = 0 if requests else idle + 1
            if idle == 2:
                return
        raise AssertionError("not idle after 20 ticks")


def daemon_of(variant: str) -> Daemon:
    return Daemon(Harness(definitions(variant)))


def drop(daemon: Daemon, number: int) -> dict[str, int]:
    daemon.harness.drop(RAW, P1, f"k,n\na,{number}\n")
    return {P1: number}


def report_in_the_tick_that_sees_the_run_before_end(variant: str) -> list[str]:
    """An update lands after a run has pinned, and is told before the conditions have seen that run's end."""
    daemon = daemon_of(variant)
    with daemon.harness:
        drop(daemon, 1)
        daemon.until_idle()
        drop(daemon, 2)
        daemon.tick_of_feeds()
        daemon.run(daemon.tick_of_conditions())
        last = drop(daemon, 3)
        daemon.run(daemon.tick_of_feeds())
        daemon.until_idle()
        return oracle.judge(last)


def worker_killed_in_a_first_run(variant: str) -> list[str]:
    """The worker of a request is killed before it did anything."""
    daemon = daemon_of(variant)
    with daemon.harness:
        last = drop(daemon, 1)
        daemon.kill(daemon.tick_of_feeds())
        daemon.harness.now = lambda: utc_now() + 2 * SHORTEST_WAIT  # Until then nothing is requested a second time.
        daemon.until_idle()
        return oracle.judge(last)


def test_no_update_is_lost_that_is_told_when_the_run_before_ends():
    assert report_in_the_tick_that_sees_the_run_before_end(RIGHT_ONE) == []


def test_an_edge_triggered_condition_with_newly_updated_as_reset_is_caught():
    found = report_in_the_tick_that_sees_the_run_before_end(EDGE)
    assert [each for each in found if each.startswith("lost")], found


def test_no_partition_is_lost_whose_first_worker_is_killed():
    assert worker_killed_in_a_first_run(RIGHT_ONE) == []


def test_a_run_key_without_attempt_is_caught():
    found = worker_killed_in_a_first_run(KEY)
    assert [each for each in found if each.startswith(("lost", "stale"))], found

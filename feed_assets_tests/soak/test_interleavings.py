"""The two moments at which a wrong loop loses an update, stepped through by hand, with the judge of the soak."""

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
    """Dagster's daemon, one step at a time: it keeps cursors and run keys as the real one does."""

    harness: Harness
    cursor: str | None = None
    seen_by_conditions: Any = None

    def tick_of_feeds(self) -> list[dg.RunRequest]:
        """Report the events of a sensor tick. Return its requests whose run key is new."""
        asked = self.harness.ask(self.cursor)
        for event in asked.events:
            self.harness.instance.report_runless_asset_event(event)
        self.cursor = asked.cursor
        return [each for each in asked.requests if not self._is_known(each)]

    def _is_known(self, request: dg.RunRequest) -> bool:
        same = dg.RunsFilter(tags={"dagster/run_key": request.run_key or ""})
        return bool(self.harness.instance.get_runs(same, limit=1))

    def tick_of_conditions(self) -> list[dg.RunRequest]:
        """Return the requests of the conditions, with the cursor of their previous tick."""
        definitions = self.harness.definitions
        found = dg.evaluate_automation_conditions(definitions, self.harness.instance, cursor=self.seen_by_conditions)
        self.seen_by_conditions = found.cursor
        wanted: dict[str | None, list[dg.AssetKey]] = {}
        for key in sorted(definitions.resolve_asset_graph().materializable_asset_keys):
            for partition in found.get_requested_partitions(key):
                wanted.setdefault(partition, []).append(key)
        return [dg.RunRequest(partition_key=each, asset_selection=keys) for each, keys in wanted.items()]

    def run(self, requests: list[dg.RunRequest]) -> None:
        """Run each request from its start to its end."""
        for request in requests:
            self._job().execute_in_process(
                **self._options(request), asset_selection=list(request.asset_selection or ())
            )

    def kill(self, requests: list[dg.RunRequest]) -> None:
        """Create a run for each request, and fail it as if its worker had been killed before any step."""
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
        """Tick and run until two ticks in a row request nothing."""
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
    """Drop an update after a run has pinned, and report it before the conditions have seen that run's end."""
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
    """Kill the worker of a request before its first step."""
    daemon = daemon_of(variant)
    with daemon.harness:
        last = drop(daemon, 1)
        daemon.kill(daemon.tick_of_feeds())
        daemon.harness.now = lambda: utc_now() + 2 * SHORTEST_WAIT  # Until then nothing is requested again.
        daemon.until_idle()
        return oracle.judge(last)


def test_update_reported_as_the_previous_run_ends_is_not_lost():
    assert report_in_the_tick_that_sees_the_run_before_end(RIGHT_ONE) == []


def test_an_edge_triggered_condition_with_newly_updated_as_reset_is_caught():
    found = report_in_the_tick_that_sees_the_run_before_end(EDGE)
    assert [each for each in found if each.startswith("lost")], found


def test_partition_whose_first_worker_is_killed_is_not_lost():
    assert worker_killed_in_a_first_run(RIGHT_ONE) == []


def test_a_run_key_without_attempt_is_caught():
    found = worker_killed_in_a_first_run(KEY)
    assert [each for each in found if each.startswith(("lost", "stale"))], found

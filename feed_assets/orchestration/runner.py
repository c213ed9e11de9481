"""`run --until-idle`: sensors, automation conditions and the runs they request, in this process, until nothing is left.

Cursors are stored in the Dagster instance, as the daemon does it, because they belong to the reports that are stored
there. Runs have a tag with the process that drives them. With the tag, the next driver can fail the runs of a killed
driver. Otherwise they would stay `STARTED` forever, with their partitions in progress.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from logging import LogRecord
from time import sleep
from types import MappingProxyType
from typing import Any

import dagster as dg

from feed_assets.core.attempts import ABANDONED
from feed_assets.core.errors import DaemonRunning, NotIdle, SourceUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.ledger import alerts, due, runs, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.orchestration.catch_up_job import CATCH_UP
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.requests import joined
from feed_assets.orchestration.decide.resource_requests import in_one_process
from feed_assets.orchestration.decide.unfinished_runs import UNFINISHED
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes
from feed_assets.orchestration.declare.declarations import WATCHED
from feed_assets.orchestration.execute.makers import DRIVER, refuse_what_is_missing, will_start_spark
from feed_assets.orchestration.location import LATE_DATA
from feed_assets.orchestration.run_outcomes import names
from feed_assets.orchestration.ticks.dead_runs import driver_of, fail
from feed_assets.orchestration.ticks.tick import FAILING, PROBLEM
from feed_assets.orchestration.ticks.watch import UNDECIDED
from feed_assets.runs.discover import discover_all
from feed_assets.runs.services import Services, is_dead, this_process, utc_now
from feed_assets.settings import settings

RUN_KEY, SENSOR = "dagster/run_key", "dagster/sensor_name"
LOGS = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration without a console log: the instance has the whole log, and `on_run` reports the end."""

ALIVE_SECONDS = 120
"""Seconds for which a heartbeat counts. A daemon sends one every half minute. Dagster's own limit is half an hour."""

NO_TAGS: Mapping[str, str] = MappingProxyType({})

BY_CONDITION = {"dagster/from_automation_condition": "true"}


STARTING_SPARK = "starting Spark"
"""The text that `on_step` gets before a run that starts Spark."""


def _ignore(_: object) -> None:
    """Ignore a report."""


@dataclass(frozen=True)
class Runner:
    """The driver of one code location's definitions on one Dagster instance.

    `on_run` is called with each run after its end. `on_step` is called with a text about the current step.
    """

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    on_run: Callable[[dg.ExecuteInProcessResult], None] = _ignore
    now: Callable[[], datetime] = utc_now
    """The clock that decides which partitions exist and when late data are due."""
    on_step: Callable[[str], None] = _ignore
    on_problems: Callable[[str, Mapping[str, str]], None] | None = None
    """A function that gets each sensor's failures by subject, after the evaluation.

    With None, only the log has them.
    """
    pause: Callable[[float], object] = sleep
    """A function that waits for some seconds."""
    _steps: Counter[str] = field(default_factory=Counter[str])
    """Counts of ticks, of requested runs, and of started runs."""
    _in_vain: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    """Counts of this driver's runs that ended without a real attempt to build, by `_subject` of their request."""

    def run_once(self) -> int:
        """Tick once. Return the number of effects (runs, reports, moved cursors).

        Raise DaemonRunning if a daemon is alive.
        """
        self._begin()
        return self.tick()

    def run_until_idle(self, max_ticks: int = 1000) -> int:
        """Tick until a tick does nothing. Return the number of ticks. Raise DaemonRunning or NotIdle.

        A tick checks only a few of the known partitions, and the next command may come much later. So all partitions
        are checked after the first idle tick. At that time, partitions whose last run ended without an attempt are also
        requested again. `in_vain` returns the partitions that are still not built.
        """
        self._begin()
        has_looked = False
        for tick in range(1, max_ticks + 1):
            if self.tick():
                continue
            if has_looked and not self._waits_for_room():
                return tick
            if not has_looked:
                self._look_at_everything()
            self._end_waits()
            has_looked = True
        raise NotIdle(
            f"runs are still requested after {max_ticks} ticks: expected none. Check the runs, then run the command "
            "again."
        )

    def _waits_for_room(self) -> bool:
        """Return whether outputs wait for resources that runs of this process may have returned. If so, wait a moment.

        A target may report free resources late. Return False if no run has ended since the last call: then the outputs
        wait for runs of other processes.
        """
        ended = self._steps["run"]
        if self._steps["looked for room"] == ended or not self.waiting(State.WAITS_FOR_RESOURCES):
            return False
        self._steps["looked for room"] = ended
        self.pause(LOOK_AGAIN.total_seconds())
        return True

    def tick(self) -> int:
        """Evaluate every sensor once, then the conditions, and run their requests. Return the number of effects."""
        sensors = [each for each in self._sensors() if not isinstance(each, dg.AutomationConditionSensorDefinition)]
        self._steps["tick"] += 1
        with dg.partition_loading_context(self.now(), self.instance), in_one_process():
            return sum(self._tick_sensor(sensor) for sensor in sensors) + self._tick_conditions()

    def in_vain(self) -> dict[Partition, str]:
        """Return ready partitions that were requested but not built, each with the reason."""
        own = Graph(self.definitions.resolve_asset_graph()).by_feed
        with open_ledger(settings().ledger).read() as connection:
            not_begun = [each for each in due.not_begun(connection) if each.partition.feed in own]
            return {each.partition: _why_in_vain(runs.last(connection, each.partition)) for each in not_begun}

    def failing(self) -> dict[str, str]:
        """Return the failures of the last ticks with their reasons, by sensor and subject."""
        return self._failing([each.name for each in self._sensors()])

    def _failing(self, sensors: Iterable[str]) -> dict[str, str]:
        ledger, prefixes = open_ledger(settings().ledger), [f"{FAILING}:{sensor}:" for sensor in sensors]
        with ledger.read() as connection:
            opened = alerts.open_alerts(connection)
        failing = [(each, prefix) for each in opened for prefix in prefixes if each.name.startswith(prefix)]
        if not failing:  # This is the usual case, and building a graph costs more than the query.
            return {}
        own_alerts = OwnAlerts(Graph(self.definitions.resolve_asset_graph()), ledger, self.now())
        own_failing = [each for each, prefix in failing if own_alerts.has(each.name.removeprefix(prefix))]
        return {each.name.removeprefix(f"{FAILING}:"): each.reason for each in own_failing}

    def undecided(self) -> dict[Feed, str]:
        """Return the datasets with outputs that the last tick could not decide, each with the reason."""
        own = {str(feed): feed for feed in Graph(self.definitions.resolve_asset_graph()).by_feed}
        with open_ledger(settings().ledger).read() as connection:
            opened = {each.name: each.reason for each in alerts.open_alerts(connection)}
        return {feed: opened[name] for text, feed in own.items() if (name := f"{UNDECIDED}:{text}") in opened}

    def waiting(self, state: State) -> dict[Partition, str]:
        """Return the partitions whose last verdict has this state, each with the reason."""
        own = Graph(self.definitions.resolve_asset_graph()).by_feed
        with open_ledger(settings().ledger).read() as connection:
            listed = due.in_state(connection, state.value)
        return {each.partition: each.reason or "" for each in listed if each.partition.feed in own}

    def refused(self) -> dict[Partition, str]:
        """Return partitions that wait because their own audit (not an input's) failed, each with the reason."""
        waiting = self.waiting(State.WAITS_FOR_QUALITY)
        with open_ledger(settings().ledger).read() as connection:
            last = runs.last_attempts(connection, waiting)
        return {output: why for output, why in waiting.items() if last.get(output) == updates.REFUSED}

    def _look_at_everything(self) -> None:
        graph = Graph(self.definitions.resolve_asset_graph())
        if polled := graph.polled():
            discover_all(Services.of(settings(), elsewhere=graph.elsewhere), polled, graph.appendable())

    def _sensors(self) -> Iterable[dg.SensorDefinition]:
        """Return all sensors except `catch_up`. That sensor is off unless somebody uses it in place of a service."""
        return [each for each in self.definitions.get_repository_def().sensor_defs if each.name != CATCH_UP]

    def _tick_sensor(self, sensor: dg.SensorDefinition) -> int:
        """Evaluate a sensor. Return the number of effects.

        The cursor moves last. If requests are repeated after a kill, their run keys show that they were run already.
        """
        self.on_step(f"tick {self._steps['tick']}: sensor {sensor.name}")
        before = self._cursor(sensor.name)
        context = dg.build_sensor_context(
            instance=self.instance, cursor=before, definitions=self.definitions, sensor_name=sensor.name
        )
        done = 0
        with context, suppress(SourceUnavailable):  # `failing` reports it; other sensors continue
            for result in self._evaluated(sensor, context):
                for event in result.asset_events or ():
                    self.instance.report_runless_asset_event(event)
                done += sum(map(self._add_partitions, result.dynamic_partitions_requests or ()))
                done += self._run_all(result.run_requests or (), sensor.name)
                done += len(result.asset_events or ()) + (result.cursor is not None and result.cursor != before)
                self._put_cursor(sensor.name, result.cursor)
        return done

    def _evaluated(
        self, sensor: dg.SensorDefinition, context: dg.SensorEvaluationContext
    ) -> "Iterator[dg.SensorResult]":
        """Evaluate a sensor and return its results.

        Pass the sensor's problems to `on_problems`, even if the sensor raises an error.
        """
        if not self.on_problems:
            return _results(sensor(context))
        context.log.addFilter(_is_no_problem)
        try:
            return _results(sensor(context))
        finally:
            self.on_problems(sensor.name, self._failing([sensor.name]))

    def _add_partitions(self, request: dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest) -> int:
        """Add dynamic partitions as the daemon does: after the events, before the runs."""
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        return 1

    def _tick_conditions(self) -> int:
        """Evaluate the automation conditions, and run their requests, joined for neighbouring partitions.

        The conditions need no cursor.
        """
        self.on_step(f"tick {self._steps['tick']}: late data")
        with without_dagsters_notes():
            evaluation = dg.evaluate_automation_conditions(self.definitions, self.instance, evaluation_time=self.now())
        graph = Graph(self.definitions.resolve_asset_graph())
        requests = [
            dg.RunRequest(partition_key=partition, asset_selection=node.outputs, tags=BY_CONDITION)
            for node in graph.by_feed.values()
            if node.role == "dataset"
            for partition in sorted(evaluation.get_requested_partitions(node.key), key=str)
        ]
        return self._run_all(joined(graph, open_ledger(settings().ledger), requests, self.now()), LATE_DATA)

    def _run_all(self, requests: Iterable[dg.RunRequest], sensor: str) -> int:
        """Run requests one after the other. Return the number of runs."""
        requests = [*requests]
        self.expect(len(requests))
        return sum(self._run(request, sensor) for request in requests)

    def _run(self, request: dg.RunRequest, sensor: str) -> int:
        """Run a request now. Return the number of runs.

        Skip the request if its run key was used before, or if its runs ended too often without an attempt to build.
        Otherwise such a request might be run forever: if a tick takes longer than the longest wait between two
        requests, each tick repeats the request.
        """
        whose = _subject(request)
        if self._in_vain[whose] >= settings().max_attempts:
            return self._leave_out()
        tags = {SENSOR: sensor}
        if request.run_key:
            tags[RUN_KEY] = request.run_key
            same_key = dg.RunsFilter(tags={RUN_KEY: request.run_key, SENSOR: sensor})
            if self.instance.get_runs(same_key, limit=1):
                return self._leave_out()
        result = self.execute(request, tags)
        self._in_vain[whose] += not result.success and self._is_in_vain(result.run_id)
        return 1

    def expect(self, count: int) -> None:
        """Add `count` to the number of requested runs, which the texts for `on_step` show."""
        self._steps["requested"] += count

    def _leave_out(self) -> int:
        """Subtract a request that is skipped from the number of requested runs. Return 0, because it causes no run."""
        self._steps["requested"] -= 1
        return 0

    def _tell(self, request: dg.RunRequest) -> None:
        """Report which run starts. If the run has to start Spark, report that first, because it takes a while."""
        if will_start_spark(self.instance):
            self.on_step(STARTING_SPARK)
        self._steps["run"] += 1
        of = f" of {self._steps['requested']}" if self._steps["requested"] else ""
        span = request.partition_key_range
        keys = request.partition_key or (f"{span.start}...{span.end}" if span else "")
        runs_what = request.job_name or ", ".join(names(request.asset_selection or ()))
        self.on_step(f"run {self._steps['run']}{of}: {runs_what} {keys}".rstrip())

    @cached_property
    def _job(self) -> dg.JobDefinition:
        """Return the job for all assets, without the checks that sensors report.

        A failing run would make these checks fail.
        """
        definitions = self.definitions
        run_checks = [
            each for each in definitions.asset_checks or () if not {key.name for key in each.check_keys} & {*WATCHED}
        ]
        return dg.Definitions(
            assets=definitions.assets,
            asset_checks=run_checks,
            resources=definitions.resources,
            executor=definitions.executor,
            loggers=definitions.loggers,
        ).resolve_implicit_global_asset_job_def()

    def execute(self, request: dg.RunRequest, tags: Mapping[str, str] = NO_TAGS) -> dg.ExecuteInProcessResult:
        """Execute the run of a request to its end: of some assets, or of a job that a sensor names."""
        refuse_what_is_missing(self.instance, settings())
        self._tell(request)
        job = self.definitions.resolve_job_def(request.job_name) if request.job_name else self._job
        result = job.execute_in_process(
            instance=self.instance,
            partition_key=request.partition_key,
            run_config={**request.run_config, **LOGS},  # `dg.RunConfig` always has `loggers`, often an empty mapping.
            asset_selection=None if request.job_name else list(request.asset_selection or ()),
            tags={**request.tags, **tags, DRIVER: this_process()},
            raise_on_error=False,
        )
        self.on_run(result)
        return result

    def _is_in_vain(self, dagster_run: str) -> bool:
        """Return whether a Dagster run ended without an attempt to build.

        It began no build, or all its builds were abandoned.
        """
        with open_ledger(settings().ledger).read() as connection:
            begun = runs.of_dagster(connection, dagster_run)
        return all(run.state == ABANDONED for run in begun)

    def _cursor(self, sensor: str) -> str | None:
        key = f"feed_assets/{sensor}"
        return self.instance.daemon_cursor_storage.get_cursor_values({key}).get(key)

    def _put_cursor(self, sensor: str, value: str | None) -> None:
        if value is not None:
            self.instance.daemon_cursor_storage.set_cursor_values({f"feed_assets/{sensor}": value})

    def _begin(self) -> None:
        self._refuse_a_daemon()
        self._release_dead_runs()
        self._end_waits()
        due.end_pauses(open_ledger(settings().ledger), self.now())

    def _end_waits(self) -> None:
        due.end_waits(open_ledger(settings().ledger), self.now())

    def _refuse_a_daemon(self) -> None:
        """Raise DaemonRunning if a daemon is alive. The daemon and this driver would request the same late re-runs."""
        alive = alive_daemons(self.instance)
        if alive:
            raise DaemonRunning(
                f"the Dagster daemon ({', '.join(alive)}) runs on this instance and already does this work: expected "
                "no daemon. Leave the work to the daemon, or stop it and wait two minutes."
            )

    def _release_dead_runs(self) -> None:
        """Fail the runs of killed drivers, so that their partitions can be built again."""
        for run in self.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
            if (driver := driver_of(run)) and is_dead(driver):
                fail(self.instance, run.run_id, driver)


def _why_in_vain(last: runs.Run | None) -> str:
    if last and last.state == runs.RUNNING:
        return (
            f"run {last.dagster_run or last.id} in process {last.process} has been building the partition since "
            f"{last.started:%Y-%m-%d %H:%M} UTC: wait for this run, or cancel it in the web UI if its machine is gone"
        )
    return last.reason if last and last.state == ABANDONED and last.reason else "no run of the partition has started"


def alive_daemons(instance: dg.DagsterInstance) -> list[str]:
    """Return the sorted names of Dagster's daemons with a recent heartbeat on an instance."""
    beats = {name: status.last_heartbeat for name, status in instance.get_daemon_statuses().items()}
    oldest = utc_now().timestamp() - ALIVE_SECONDS
    return sorted(name for name, beat in beats.items() if beat and beat.timestamp > oldest)


def _subject(request: dg.RunRequest) -> tuple[str, ...]:
    """Return what a request is for: assets and a partition, or a job and its tags, such as the dataset to compact."""
    if request.job_name:
        return request.job_name, *(f"{name}={value}" for name, value in sorted(request.tags.items()))
    return str(request.asset_selection), request.partition_key or str(request.partition_key_range)


def _is_no_problem(record: LogRecord) -> bool:
    return not hasattr(record, PROBLEM)


def _results(returned: Any) -> Iterator[dg.SensorResult]:
    """Yield a sensor's results. A sensor may return or yield results, requests, or a reason to skip."""
    is_one = isinstance(returned, (dg.SensorResult, dg.RunRequest, dg.SkipReason))
    items: Iterable[Any] = [returned] if is_one else returned or ()
    for item in items:
        if isinstance(item, dg.SensorResult):
            yield item
        elif isinstance(item, dg.RunRequest):
            yield dg.SensorResult(run_requests=[item])

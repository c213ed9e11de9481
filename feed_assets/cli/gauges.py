"""Figures for `feed-assets metrics`: of the ledger, of Dagster's daemon and sensors, and of services in this home."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from feed_assets.core.isolation import failing_alone
from feed_assets.home import home, say

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.scheduler.instigation import InstigatorTick

ENDED_WITHIN = timedelta(hours=1)
"""The time before now in which ended runs are counted. So a count reads only an index, however long the history is."""


@dataclass(frozen=True)
class Figure:
    """A gauge: its name, its help, the names of its labels, and its values by the labels' texts."""

    name: str
    text: str
    labels: tuple[str, ...]
    values: tuple[tuple[tuple[str, ...], float], ...]


def figures(now: datetime) -> list[Figure]:
    """Return the figures of each part. A part that cannot be read is missing, and has 0 in `feed_assets_up`."""
    read, problems = list[Figure](), dict[str, str]()
    parts = {"ledger": _of_ledger, "targets": _of_targets, "dagster": _of_dagster, "services": _of_services}
    for name, part in parts.items():
        with failing_alone(problems, name):
            read += [*part(now)]
    for name, problem in problems.items():
        say(f"metrics: no figures of {name}: {problem}", level="warning")
    ups = tuple(((name,), float(name not in problems)) for name in parts)
    return [*read, Figure("up", "Whether the figures of a part could be read", ("part",), ups)]


def _of_ledger(now: datetime) -> Iterator[Figure]:
    from feed_assets.cli.loaded_location import ledger_of_settings
    from feed_assets.ledger import alerts, due_counts, runs

    with ledger_of_settings(makes=False).read() as connection:
        waits = due_counts.waits(connection)
        running, ended = len(runs.running(connection)), runs.ends_since(connection, now - ENDED_WITHIN)
        opened = len(alerts.open_alerts(connection))
    by = ("feed", "state")
    counts = tuple(((each.feed, each.state or "not decided"), float(each.count)) for each in waits)
    ages = tuple(((each.feed, each.state or "not decided"), (now - each.since).total_seconds()) for each in waits)
    yield Figure("waiting_partitions", "Partitions on the due list, by the state of their last verdict", by, counts)
    yield Figure("waiting_seconds", "Seconds since the first of these partitions became due", by, ages)
    yield Figure("runs_running", "Builds in progress", (), _only(running))
    ends = tuple(((state,), float(count)) for state, count in sorted(ended.items()))
    yield Figure("runs_ended_last_hour", "Builds that ended in the last hour, by their state", ("state",), ends)
    yield Figure("alerts_open", "Open alerts", (), _only(opened))


def _of_targets(now: datetime) -> Iterator[Figure]:
    """Yield the figures of compute targets, by their last answers. Yield nothing if no target is configured."""
    from feed_assets.cli.loaded_location import ledger_of_settings
    from feed_assets.ledger import allocations, resource_queue, target_probes
    from feed_assets.settings import settings

    names = sorted(settings().targets.get_secret_value())
    if not names:
        return
    with ledger_of_settings(makes=False).read() as connection:
        probes = target_probes.last_answers(connection, names, now)
        grants, queue = allocations.grants(connection), resource_queue.waiting(connection, now)
    by = ("target",)
    granted = tuple(((name,), float(sum(each.amount.cores for each in grants.get(name, ())))) for name in names)
    free = tuple(((name,), float(each.free.cores)) for name, each in probes.items() if not each.offline)
    total = tuple(((name,), float(each.total.cores)) for name, each in probes.items() if not each.offline)
    silent = tuple(((name,), float(each.offline is not None)) for name, each in probes.items())
    yield Figure("target_cores", "Cores of a compute target, by its last answer", by, total)
    yield Figure("target_cores_free", "Free cores of a compute target, by its last answer", by, free)
    yield Figure("target_cores_given", "Cores of a compute target that our runs have", by, granted)
    yield Figure("target_offline", "Whether a compute target is offline", by, silent)
    longest = max((now - each.since for each in queue), default=timedelta()).total_seconds()
    yield Figure("resource_requests_waiting", "Runs that wait for resources", (), _only(len(queue)))
    yield Figure("resource_requests_seconds", "Seconds that the first of them has waited", (), _only(longest))


def _of_dagster(now: datetime) -> Iterator[Figure]:
    """Yield the figures of Dagster's daemon. Yield nothing if Dagster was never used in this home."""
    from feed_assets.cli.loaded_location import found_instance

    if (opened := found_instance(home())) is None:
        return
    with opened as instance:
        beats = {name: each.last_heartbeat for name, each in instance.get_daemon_statuses().items()}
        ticks = [*_last_ticks(instance)]
    ages = tuple(((name,), now.timestamp() - beat.timestamp) for name, beat in sorted(beats.items()) if beat)
    yield Figure("daemon_heartbeat_seconds", "Seconds since the last sign of life of a daemon", ("daemon",), ages)
    by = ("sensor",)
    begun = tuple(((name,), now.timestamp() - tick.timestamp) for name, tick in ticks)
    took = tuple(((name,), tick.end_timestamp - tick.timestamp) for name, tick in ticks if tick.end_timestamp)
    failed = tuple(((name,), float(tick.is_failure)) for name, tick in ticks)
    yield Figure("sensor_tick_age_seconds", "Seconds since the last tick of a sensor began", by, begun)
    yield Figure("sensor_tick_duration_seconds", "Seconds that the last tick of a sensor took", by, took)
    yield Figure("sensor_tick_failed", "Whether the last tick of a sensor failed", by, failed)


def _last_ticks(instance: "dg.DagsterInstance") -> "Iterator[tuple[str, InstigatorTick]]":
    """Yield the last tick of each sensor that has one. Sensors of several code locations may have one name."""
    from dagster._core.definitions.run_request import InstigatorType

    ticks = {
        state.instigator_name: tick
        for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    }
    yield from sorted(ticks.items())


def _of_services(now: datetime) -> Iterable[Figure]:
    """Return the signs of life of services without a port, and their own figures."""
    from feed_assets.heartbeats import signs

    by, alive = ("service", "host"), signs(home())
    ages = tuple(((each.service, each.host), now.timestamp() - each.at) for each in alive)
    names = sorted({name for each in alive for name in each.figures if name.isidentifier()})
    return [
        Figure("service_heartbeat_seconds", "Seconds since the last sign of life of a service", by, ages),
        *(
            Figure(
                f"service_{name}",
                "As the service itself reports it",
                by,
                tuple(((each.service, each.host), each.figures[name]) for each in alive if name in each.figures),
            )
            for name in names
        ),
    ]


def _only(value: float) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Return the value of a gauge without labels."""
    return (((), float(value)),)

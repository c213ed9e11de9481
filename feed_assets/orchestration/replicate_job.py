"""The sensor and the job `replicate`, which copy updates into the data centers of the settings.

A run of the job serves one data center. Its priority is that of builds, because others wait for the data.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import dagster as dg
from pydantic import Field

from feed_assets.core.feeds import Feed
from feed_assets.core.isolation import failing_alone
from feed_assets.ledger import alerts
from feed_assets.orchestration.decide.unfinished_runs import has_unfinished
from feed_assets.orchestration.ticks.tick import PROBLEM
from feed_assets.replication import place_looks, place_overview, replica_tasks, turn
from feed_assets.replication.places import open_place
from feed_assets.replication.replicator import replicate
from feed_assets.replication.transitions_read import fill
from feed_assets.runs.services import Services, elsewhere_of
from feed_assets.settings import settings

REPLICATE, OP = "replicate", "copy_updates"
"""Names of the sensor and the job, and of the job's op."""

TAG = "feed_assets/data_center"
"""The run tag with the data center."""


class Replicate(dg.Config):
    """Run configuration of the job `replicate`."""

    data_center: str = Field(description="The data center that gets the copies, by its name in the settings.")


def replicate_job(elsewhere: Mapping[Feed, str]) -> dg.JobDefinition:
    """Return the job `replicate`. `elsewhere` has feeds with the names of their blackboards.

    Feeds on blackboards of other teams are not copied.
    """

    @dg.op(name=OP)
    def copy_updates(context: dg.OpExecutionContext, config: Replicate) -> None:
        """Copy what waits for a data center. An update that cannot be copied holds only its partition."""
        services = Services.of(settings(), elsewhere=elsewhere_of(settings(), elsewhere))
        place = open_place(settings(), config.data_center, *services.boards())
        result = replicate(services, place)
        context.log.info(f"{place.name}: {result.done} tasks are done, {result.failed} have failed")
        with services.ledger.read() as connection:
            failed = [each for each in replica_tasks.waiting(connection, place.name) if each.error]
        for each in failed:
            context.log.warning(f"{place.name}: {each.action} of {each.partition} {each.id}: {each.error}")

    graph = dg.GraphDefinition(REPLICATE, node_defs=[copy_updates])
    described = "Copies updates into a data center, verified and in order. Readers there get only whole updates."
    return dg.JobDefinition(graph_def=graph, description=described)


def replicate_sensor(elsewhere: Mapping[Feed, str]) -> dg.SensorDefinition:
    """Return the sensor `replicate`."""

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, elsewhere)

    return dg.SensorDefinition(
        name=REPLICATE,
        evaluation_fn=tick,
        job_name=REPLICATE,
        minimum_interval_seconds=1,  # the daemon ticks every five seconds, or slightly earlier
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Requests the job `replicate` for data centers that lack an update. Alerts if copies fail.",
    )


def _tick(context: dg.SensorEvaluationContext, elsewhere: Mapping[Feed, str]) -> dg.SensorResult:
    """Request a run for each data center with a due task. One that fails does not stop the others."""
    problems, requests, late = dict[str, str](), list[dg.RunRequest](), dict[str, str]()
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        now = loading.effective_dt
    services = replace(Services.of(settings(), elsewhere=elsewhere), now=lambda: now)
    names = sorted(settings().data_centers.get_secret_value())
    for name, why in place_looks.look(services, settings(), names).items():
        late[f"{name}|{name}"] = f"the data center {name} gets no runs: {why}"
    for name in names:
        with failing_alone(problems, name):
            late |= _late(services, name, now)
            requests += _requests(context.instance, services, name, now)
    late |= {f"{name}|{name}": f"the data center {name}: {problem}" for name, problem in problems.items()}
    alerts.keep(services.ledger, place_overview.LATE, late, now)
    for subject, problem in late.items():
        context.log.warning(problem, extra={PROBLEM: subject})
    return dg.SensorResult(run_requests=requests, skip_reason=None if requests else "No copy is due.")


def _late(services: Services, name: str, now: datetime) -> dict[str, str]:
    """Make tasks of new transitions, and return the reasons of the alerts of a data center."""
    center = settings().data_center(name)
    fill(services.ledger, open_place(settings(), name, *services.boards()), now, services.of_others())
    with services.ledger.read() as connection:
        return place_overview.late(place_overview.waiting_copies(connection, name, now), center.deadline)


def _requests(instance: dg.DagsterInstance, services: Services, name: str, now: datetime) -> list[dg.RunRequest]:
    with services.ledger.read() as connection:
        is_due = replica_tasks.is_due(connection, name, now) and turn.why_paused(connection, name) is None
    if not is_due or has_unfinished(instance, REPLICATE, TAG, name):
        return []
    config = dg.RunConfig(ops={OP: Replicate(data_center=name)})
    return [dg.RunRequest(job_name=REPLICATE, run_config=config, tags={TAG: name})]

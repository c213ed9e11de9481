"""The sensor and the job `compact`, which merge the small files of datasets with the option `compact`.

A run of the job serves one dataset. Its priority is lower than that of builds, and all its runs share one pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg
from pydantic import Field

from feed_assets.compaction import batches
from feed_assets.compaction.due_partitions import due
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.compact import UNSORTED, Compact
from feed_assets.core.errors import AlreadyRunning, InvalidDefinition, NotCompacted, PartitionClosed, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.overlapping_windows import windows_within
from feed_assets.orchestration.decide.unfinished_runs import has_unfinished
from feed_assets.orchestration.declare.declarations import Dataset, Declaration
from feed_assets.orchestration.execute.makers import maker_of
from feed_assets.orchestration.ticks.tick import PROBLEM, graph_of
from feed_assets.runs.services import Services
from feed_assets.settings import settings

COMPACT, OP, POOL = "compact", "compact_partitions", "compact"
"""Names of the sensor and the job, of the job's op, and of its concurrency pool."""

TAG = "feed_assets/compact"
"""The run tag with the dataset."""

LOOK_SECONDS = 60
"""Seconds between ticks."""

_PRIORITY = {"dagster/priority": "-10"}
"""The tag that lets runs of this job wait in Dagster's queue until all builds have begun."""

_MOST_PARTITIONS = 100
"""Partitions that one run compacts. The next tick requests a run for the others."""


class CompactDataset(dg.Config):
    """Run configuration of the job `compact`."""

    dataset: str = Field(description="The dataset whose partitions are compacted.")
    partitions: list[str] = Field(description="Their keys in the feed, such as 2019-11-24/men.")


def _datasets(declarations: Sequence[Declaration]) -> dict[Feed, Dataset]:
    return {each.feed: each for each in declarations if isinstance(each, Dataset) and each.compact}


def _policy(dataset: Dataset) -> Compact:
    return dataset.compact or UNSORTED


def due_partitions(graph: Graph, services: Services, dataset: Dataset) -> list[Partition]:
    """Return the partitions of a dataset whose compaction is due now, in order."""
    node = graph.node(dataset.feed)
    with services.ledger.read() as connection:
        return due(
            connection,
            dataset.feed,
            _policy(dataset),
            windows_of=lambda partition: windows_within(node, partition),
            now=services.now(),
            is_appendable=dataset.appendable,
        )


def compact_job(declarations: Sequence[Declaration]) -> dg.JobDefinition:
    """Return the job `compact` for the datasets with the option `compact`."""
    datasets = _datasets(declarations)

    @dg.op(name=OP, pool=POOL)
    def compact_partitions(context: dg.OpExecutionContext, config: CompactDataset) -> None:
        """Compact partitions of a dataset. If one cannot be compacted, continue with the others."""
        dataset = datasets.get(Feed.parse(config.dataset))
        if dataset is None:
            expected = ", ".join(map(str, datasets))
            raise InvalidDefinition(f"{config.dataset} has no `compact`: expected one of {expected}.")
        services = Services.of(settings(), maker_of(context.run, context.instance, settings()))
        problems = dict[str, str]()
        for key in config.partitions:
            with failing_alone(problems, key):
                for line in _compact(services, dataset, Partition(dataset.feed, key), context.run_id):
                    context.log.info(line)
        if problems:
            described = (f"{dataset.feed} {key}: {problem}" for key, problem in problems.items())
            raise dg.Failure("; ".join(described), allow_retries=False)

    graph = dg.GraphDefinition(COMPACT, node_defs=[compact_partitions])
    described = "Merges small files of a dataset's partitions, with the same rows. No consumer runs because of it."
    return dg.JobDefinition(graph_def=graph, description=described)


def _compact(services: Services, dataset: Dataset, partition: Partition, dagster_run: str) -> list[str]:
    """Compact one partition, and return a line for each new update. A build in progress goes first."""
    policy = _policy(dataset)
    try:
        if dataset.appendable:
            ranges = batches.compact(
                services, partition, policy.files, apply=True, policy=policy, by_size=True, dagster_run=dagster_run
            )
            return [f"{each.partition}: {len(each.batches)} batches became {each.into}" for each in ranges]
        done = compact_partition(services, partition, policy, dagster_run)
    except (AlreadyRunning, UpdateChanged, NotCompacted, PartitionClosed) as error:
        return [f"{error} It is compacted later."]
    return [f"{partition}: {done.files_before} files of {done.before} became {done.files_after}"] if done else []


def compact_sensor(declarations: Sequence[Declaration]) -> dg.SensorDefinition:
    """Return the sensor `compact` for the datasets with the option `compact`."""
    datasets = _datasets(declarations)

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, datasets)

    return dg.SensorDefinition(
        name=COMPACT,
        evaluation_fn=tick,
        job_name=COMPACT,
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Requests the job `compact` for datasets with partitions whose small files are to be merged.",
    )


def _tick(context: dg.SensorEvaluationContext, datasets: Mapping[Feed, Dataset]) -> dg.SensorResult:
    """Request a run for each dataset with a due partition. A dataset that fails does not stop the others."""
    graph, problems, requests = graph_of(context), dict[str, str](), list[dg.RunRequest]()
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        now = loading.effective_dt
    services = replace(Services.of(settings()), now=lambda: now)
    for feed, dataset in sorted(datasets.items()):
        with failing_alone(problems, str(feed)):
            if not has_unfinished(context.instance, COMPACT, TAG, str(feed)):
                requests += _requests(due_partitions(graph, services, dataset)[:_MOST_PARTITIONS])
    for subject, problem in problems.items():
        context.log.warning(f"{subject}: {problem}", extra={PROBLEM: subject})
    return dg.SensorResult(run_requests=requests, skip_reason=None if requests else "No compaction is due.")


def _requests(partitions: Sequence[Partition]) -> list[dg.RunRequest]:
    """Return the request of one run for some partitions of a dataset. Return [] for no partition."""
    if not partitions:
        return []
    dataset = str(partitions[0].feed)
    config = dg.RunConfig(ops={OP: CompactDataset(dataset=dataset, partitions=[each.key for each in partitions])})
    return [dg.RunRequest(job_name=COMPACT, run_config=config, tags={TAG: dataset, **_PRIORITY})]

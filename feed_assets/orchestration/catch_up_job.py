"""The job `catch_up` and its sensor. They write chunks of Kafka topics by runs, not by a service."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from feed_assets.core.isolation import failing_alone
from feed_assets.core.topics import Topic
from feed_assets.kafka import check_installed
from feed_assets.orchestration.decide.unfinished_runs import has_unfinished
from feed_assets.orchestration.declare.declarations import Declaration
from feed_assets.orchestration.declare.topic_tables import declared_topics
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.kafka.lag import Lag

CATCH_UP = "catch_up"
"""The name of the job and of its sensor."""

TOPIC = "feed_assets/topic"
"""The run tag with the topic's name."""

AGAIN_SECONDS = 600
"""Seconds after which a run is requested again if the last run wrote no signal."""

LOOK_SECONDS = 30
"""Seconds between ticks. If chunks are needed sooner than that, run the service `feed-assets connector run` instead."""


class CatchUp(dg.Config):
    """Run configuration of the job `catch_up`."""

    topic: str = Field(description="The Kafka topic whose messages are written as chunks.")


def catch_up_jobs(declarations: Sequence[Declaration]) -> list[dg.JobDefinition]:
    """Return the job `catch_up` for the declared Kafka topics. Return [] if none are declared."""
    topics = _topics(declarations)
    return [_job(topics)] if topics else []


def catch_up_sensors(declarations: Sequence[Declaration]) -> list[dg.SensorDefinition]:
    """Return the sensor `catch_up` for the declared Kafka topics. Return [] if none are declared."""
    topics = _topics(declarations)
    return [_sensor(topics)] if topics else []


def _topics(declarations: Sequence[Declaration]) -> dict[str, Topic]:
    return {name: each.topic for name, each in declared_topics(declarations).items() if each.topic}


def _job(topics: Mapping[str, Topic]) -> dg.JobDefinition:
    @dg.op(name="take_lag")
    def take_lag(context: dg.OpExecutionContext, config: CatchUp) -> None:
        """Write chunks of all messages that the topic has now."""
        if config.topic not in topics:
            expected = ", ".join(sorted(topics))
            raise dg.Failure(
                f"the topic {config.topic!r} is not declared: expected one of {expected}.", allow_retries=False
            )
        for line in catch_up(config.topic, topics[config.topic]):
            context.log.info(line)

    graph = dg.GraphDefinition(CATCH_UP, node_defs=[take_lag])
    described = (
        "Writes chunks of all messages in a Kafka topic, then ends. Uses Spark for more than a million messages. Ends "
        "a connector that reads the topic."
    )
    return dg.JobDefinition(graph_def=graph, description=described)


def catch_up(name: str, topic: Topic) -> list[str]:
    """Write chunks of all messages of a topic that are in no chunk yet. Return a line for each chunk.

    If there are very many messages, Spark writes the chunks. Its executors get the settings of this process. Raise the
    errors of the connector, the part that reads topics and writes chunks.
    """
    check_installed()
    from feed_assets.kafka.catch_up import catch_up as take
    from feed_assets.kafka.spark_job import Executors
    from feed_assets.runs.chunking import chunking_of
    from feed_assets.spark.session import session

    config = settings()
    chunking = chunking_of(config)
    with closing(chunking.schemas):
        chunks = take(chunking, name, topic, Executors(lambda: session(config), partial(chunking_of, config)))
    return [f"{name}/{each.partition} {each.first_offset} to {each.last_offset}: {each.path}" for each in chunks]


def _sensor(topics: Mapping[str, Topic]) -> dg.SensorDefinition:
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, topics)

    return dg.SensorDefinition(
        name=CATCH_UP,
        evaluation_fn=tick,
        job_name=CATCH_UP,
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Writes chunks by runs instead of a service: requests the job `catch_up` once a message or time "
        "limit of a topic is reached. Use either this sensor or `feed-assets connector run`: each ends the other.",
    )


def _tick(context: dg.SensorEvaluationContext, topics: Mapping[str, Topic]) -> dg.SensorResult:
    """Request runs for all topics that can be checked. Raise dg.Failure with the reasons if no topic can be checked."""
    problems, requests = dict[str, str](), list[dg.RunRequest]()
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        now = loading.effective_dt
    for name, topic in sorted(topics.items()):
        with failing_alone(problems, name):
            requests += _requests(context.instance, name, topic, now)
    messages = [f"{name}: {problem}" for name, problem in problems.items()]
    for each in messages:
        context.log.warning(each)
    if len(problems) == len(topics):
        raise dg.Failure("; ".join(messages))
    return dg.SensorResult(run_requests=requests)


def _requests(instance: dg.DagsterInstance, name: str, topic: Topic, now: datetime) -> list[dg.RunRequest]:
    """Return the run request for a topic once a limit is reached, unless a run is in progress.

    Dagster runs each run key only once. The key contains the offsets up to which the topic has signals, so progress
    allows the next run at once. It also contains the time in steps of AGAIN_SECONDS, so a failed run is repeated in the
    next step.
    """
    check_installed()
    from feed_assets.kafka.lag import lag
    from feed_assets.sources.topic_events import clients_for

    if has_unfinished(instance, CATCH_UP, TOPIC, name):
        return []
    lags = lag(clients_for(name), name)
    if not any(is_due(each, topic, now) for each in lags):
        return []
    at = ",".join(str(each.signalled) for each in lags)
    key = f"{name}|{at}|{int(now.timestamp()) // AGAIN_SECONDS}"
    config = dg.RunConfig(ops={"take_lag": CatchUp(topic=name)})
    return [dg.RunRequest(run_key=key, job_name=CATCH_UP, run_config=config, tags={TOPIC: name})]


def is_due(lag: "Lag", topic: Topic, now: datetime) -> bool:
    """Return whether a chunk of a topic's partition is due, by the number of messages or the age of the first one.

    A first message with a time in the future makes the chunk due, too.
    """
    is_over = lag.since is not None and not lag.since <= now < lag.since + timedelta(seconds=topic.seconds)
    return lag.behind >= topic.messages or is_over

"""The sensor that has runs cut chunks: when it requests one, and the result of the run, over a real broker."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets.core.topics import Topic
from feed_assets.kafka.lag import Lag
from feed_assets.orchestration.catch_up_job import AGAIN_SECONDS, CATCH_UP, TOPIC, is_due
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.topic_projects import TABLE, chunk, kafka_world, loop

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        made.create()
        yield made


@each_case(
    ("behind", "seconds_ago", "due"),
    [(0, None, False), (9, 0, False), (9, 59, False), (10, 0, True), (1, 60, True), (1, 61, True), (1, -3600, True)],
)
def test_a_run_is_due_at_the_message_or_time_limit_or_for_future_timestamps(behind, seconds_ago, due):
    since = None if seconds_ago is None else NOW - timedelta(seconds=seconds_ago)
    limits = Topic(key=("id",), messages=10, seconds=60)
    assert is_due(Lag(0, 100, 100 - behind, behind, since), limits, NOW) is due


def sensor_of(loop_):
    return loop_.definitions.get_repository_def().get_sensor_def(CATCH_UP)


def requests_at(loop_, now=None):
    """Return the requests of a tick at a moment."""
    context = dg.build_sensor_context(instance=loop_.instance, definitions=loop_.definitions, sensor_name=CATCH_UP)
    with context, dg.partition_loading_context(now, loop_.instance):
        return sensor_of(loop_).evaluate_tick(context).run_requests


def run(loop_, request):
    job = loop_.definitions.resolve_job_def(request.job_name)
    return job.execute_in_process(
        instance=loop_.instance, run_config=request.run_config, tags=dict(request.tags), raise_on_error=False
    )


def test_at_a_limit_a_run_cuts_chunks_that_materialize_the_topic(topic):
    loop_ = loop(topic, seconds=3600.0)
    topic.produce(9)
    assert requests_at(loop_) == []
    topic.produce(3)
    (request,) = requests_at(loop_)
    assert run(loop_, request).success
    topic.check()
    assert [each.next_offset for each in topic.signals()] == [10, 12]
    assert requests_at(loop_) == []
    loop_.run_until_idle()
    assert [int(each.version) for each in loop_.reported(TABLE)] == [12, 10]


def test_a_run_keeps_its_key_for_a_while_until_signals_move(topic):
    loop_ = loop(topic, seconds=3600.0)
    topic.produce(10)
    (first,), (again,) = requests_at(loop_, NOW), requests_at(loop_, NOW + timedelta(seconds=AGAIN_SECONDS - 1))
    assert first.run_key == again.run_key
    (later,) = requests_at(loop_, NOW + timedelta(seconds=AGAIN_SECONDS))
    assert later.run_key != first.run_key, "one that was killed or failed is tried again"
    chunk(topic)
    topic.produce(10)
    (on,) = requests_at(loop_, NOW)
    assert on.run_key not in (first.run_key, later.run_key)


def test_no_second_catch_up_run_is_requested_beside_one_in_progress(topic):
    loop_ = loop(topic, seconds=0.001)
    topic.produce(1)
    going = dg.DagsterRun(job_name=CATCH_UP, tags={TOPIC: topic.name}, status=dg.DagsterRunStatus.STARTED)
    loop_.instance.add_run(going)
    assert requests_at(loop_) == []
    loop_.instance.report_run_failed(going, "gone")
    assert len(requests_at(loop_)) == 1


def test_the_catch_up_sensor_is_off_by_default_and_ignored_by_run(topic):
    loop_ = loop(topic, seconds=0.001)
    topic.produce(1)
    assert sensor_of(loop_).default_status is dg.DefaultSensorStatus.STOPPED
    loop_.run_until_idle()
    assert (topic.signals(), loop_.instance.get_runs()) == ([], [])


def test_missing_kafka_settings_fail_the_catch_up_tick(topic, setting):
    loop_ = loop(topic)
    setting(kafka="{}")
    with pytest.raises(Exception, match="FEED_ASSETS_KAFKA names no broker"):
        requests_at(loop_)

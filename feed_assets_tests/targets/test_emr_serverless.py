"""What an application of EMR Serverless answers: its capacity, less what its jobs ask for."""

from datetime import UTC, datetime
from time import monotonic

import pytest
from pydantic import TypeAdapter, ValidationError

from feed_assets.core.resources import Amount, Resources
from feed_assets.core.targets import EmrServerless, Target
from feed_assets.targets import emr_serverless
from feed_assets.targets.json_answers import NoAnswer
from feed_assets_tests.support.emr_doubles import emr_double
from feed_assets_tests.support.slow_servers import dripping

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
GIB = 1 << 30
SMALL = (
    "--conf spark.executor.instances=2 --conf spark.executor.cores=1 --conf spark.executor.memory=1g"
    " --conf spark.driver.cores=1 --conf spark.driver.memory=4g"
)
"""A job with two workers of 1 vCPU and 2 GB, and a driver of 1 vCPU and 5 GB."""


@pytest.fixture
def emr(monkeypatch):
    monkeypatch.setattr(emr_serverless, "_SECONDS", 300)  # of a busy machine
    with emr_double(monkeypatch) as double:
        yield double


def look(emr, **more):
    return emr_serverless.look(EmrServerless(**emr.target(**more)), NOW)


def test_an_application_has_what_its_jobs_leave_of_its_capacity(emr):
    probe = look(emr)
    assert (probe.total, probe.free, probe.queued) == (Amount(16, 64 * GIB), Amount(16, 64 * GIB), 0)
    emr.start(SMALL)
    emr.start(SMALL, state="PENDING")
    emr.start(SMALL, state="SUCCESS")
    emr.start(SMALL, state="FAILED")
    probe = look(emr)
    assert (probe.total, probe.free, probe.queued) == (Amount(16, 64 * GIB), Amount(10, 46 * GIB), 1)


@pytest.mark.parametrize("parameters", ["", "--class a.B", "--conf spark.executor.memory=lots"])
def test_a_job_that_names_no_size_has_the_one_of_the_guide(emr, parameters):
    emr.start(parameters)
    assert look(emr).free == Amount(16 - 16, 64 * GIB - 4 * 16 * GIB)


def test_jobs_beyond_the_number_that_is_asked_count_as_jobs_without_a_size(emr, monkeypatch):
    monkeypatch.setattr(emr_serverless, "MOST_JOBS", 1)
    emr.start(SMALL)
    emr.start(SMALL)
    assert look(emr).free == Amount(16 - 3 - 16, (64 - 9 - 64) * GIB)


OFFLINE = {
    "stopped without auto-start": ({"state": "STOPPED", "auto_start_configuration": {"enabled": False}}, "is STOPPED"),
    "terminated": ({"state": "TERMINATED"}, "its application is TERMINATED, expected STARTED"),
    "being created": ({"state": "CREATING"}, "its application is CREATING"),
    "without a capacity": ({"maximum_capacity": None}, "no maximumCapacity"),
    "another form": ({"maximum_capacity": {"cpu": "x", "memory": "3 GB"}}, "no maximumCapacity"),
}


@pytest.mark.parametrize("case", OFFLINE)
def test_an_application_that_takes_no_job_is_offline(emr, case):
    changes, why = OFFLINE[case]
    for name, value in changes.items():
        setattr(emr.application, name, value)
    with pytest.raises(NoAnswer, match=why):
        look(emr)


@pytest.mark.parametrize("state", ["CREATED", "STARTING", "STARTED", "STOPPED"])
def test_an_application_that_aws_starts_for_a_job_is_free(emr, state):
    emr.application.state = state
    assert look(emr).free == Amount(16, 64 * GIB)


def test_an_error_of_aws_is_its_code_alone_and_a_silent_one_is_given_up_in_time(emr, monkeypatch):
    with pytest.raises(NoAnswer, match=r"^AWS refuses: ResourceNotFoundException$"):
        look(emr, application_id="none")
    monkeypatch.setattr(emr_serverless, "_SECONDS", 0.2)
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", f"http://127.0.0.1:{server.port}")
        with pytest.raises(NoAnswer, match="no answer in"):
            look(emr)
    with pytest.raises(TimeoutError):  # What its thread does next.
        emr_serverless._probe(EmrServerless(**emr.target()), NOW, ends=monotonic())


SIZES = {
    "the least worker": (Resources(cores=2, memory="1g"), Amount(2, 4 * GIB), "1"),
    "the most of one core": (Resources(cores=2, memory="14g"), Amount(2, 16 * GIB), "1"),
    "more than one core holds": (Resources(cores=2, memory="16g"), Amount(4, 18 * GIB), "2"),
    "a step of 4 GB": (Resources(cores=1, memory="33g"), Amount(8, 40 * GIB), "8"),
    "more than any": (Resources(cores=1, memory="200g"), Amount(16, 120 * GIB), "16"),
}


@pytest.mark.parametrize("case", SIZES)
def test_a_run_needs_workers_that_aws_has_and_a_driver(emr, case):
    resources, workers, cores = SIZES[case]
    target = EmrServerless(**emr.target())
    assert target.needs(resources) == workers + Amount(1, 5 * GIB)
    assert target.spark(resources)["spark.executor.cores"] == cores
    assert emr_serverless._of_parameters(conf(target.spark(resources))) == target.needs(resources)


def conf(values):
    return " ".join(f"--conf {key}={value}" for key, value in values.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application_id", "../x"),
        ("execution_role_arn", "role/etl"),
        ("bucket", "s3://b/c"),
        ("entry_point", "http://h/job.py"),
        ("module", "some.project; rm"),
        ("region", "eu west"),
    ],
)
def test_a_declaration_that_aws_would_not_take_is_refused(emr, name, value):
    with pytest.raises(ValidationError, match=name):
        TypeAdapter(Target).validate_python(emr.target(**{name: value}))

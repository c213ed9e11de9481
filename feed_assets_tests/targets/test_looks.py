"""What each kind of target answers, and which answers are none: in bounded time, of bounded size, without secrets."""

from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from feed_assets.core.resources import Amount
from feed_assets.core.targets import Connect, Standalone, Yarn
from feed_assets.targets import connect_server, json_answers, standalone, yarn
from feed_assets.targets.json_answers import LARGEST, NoAnswer
from feed_assets_tests.support.servers import free_ports
from feed_assets_tests.support.slow_servers import dripping
from feed_assets_tests.support.target_doubles import METRICS, http_double, master, queue, scheduler, worker

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
MIB, GIB = 1 << 20, 1 << 30


def spark_at(url):
    return Standalone(kind="standalone", master="spark://h:7077", url=url)


def test_a_master_of_spark_counts_only_workers_that_can_start_an_executor():
    workers = [worker(8, 3, 16384, 4096), worker(4, 4), worker(4, 0, 2048, 1800), worker(99, state="DEAD")]
    with http_double(**{"/json/": master(*workers, waiting=2)}) as double:
        probe = standalone.look(spark_at(double.url), NOW)
    assert (probe.total, probe.free) == (Amount(16, (16384 + 15360 + 2048) * MIB), Amount(5, 12288 * MIB))
    assert (probe.queued, probe.at, double.calls) == (2, NOW, {"/json/": 1})


def yarn_at(answer, name="default"):
    with http_double(**{"/ws/v1/cluster/metrics": METRICS, "/ws/v1/cluster/scheduler": answer}) as double:
        return yarn.look(Yarn(kind="yarn", url=f"{double.url}/", queue=name), NOW)


def test_a_resource_manager_without_queues_of_capacity_answers_for_its_whole_cluster():
    for other in ("fifoScheduler", "fairScheduler"):
        probe = yarn_at({"scheduler": {"schedulerInfo": {"type": other, "rootQueue": {"queueName": "root"}}}})
        assert (probe.total, probe.free, probe.queued) == (Amount(8, 25600 * MIB), Amount(7, 17408 * MIB), 3)


WHOLE, HALF = Amount(8, 25600 * MIB), Amount(4, 12800 * MIB)
QUEUES = {
    "no limit": ([queue("default")], "default", WHOLE, Amount(7, 17408 * MIB)),
    "half of it": ([queue("default", most=50.0)], "default", HALF, HALF),
    "half, a part used": ([queue("default", most=50.0, used=3)], "default", HALF, Amount(1, 9728 * MIB)),
    "over its limit": ([queue("default", most=50.0, used=9)], "default", HALF, Amount(0, 3584 * MIB)),
    "the limit of a user": ([queue("default", share=25.0, userLimitFactor=2.0)], "default", HALF, HALF),
    "no limit of a user": ([queue("default", share=25.0, userLimitFactor=-1.0)], "default", WHOLE, None),
    "a single-precision share": ([queue("default", most=49.999998)], "default", Amount(4, 13421772263), None),
    "full of applications": ([queue("default", numApplications=267)], "default", WHOLE, Amount(0, 0)),
    "below a parent": ([queue("a", queue("etl"), most=50.0, used=1)], "root.a.etl", HALF, Amount(3, 11776 * MIB)),
    "a path without root": ([queue("b", queue("etl")), queue("a", queue("etl"), most=50.0)], "a.etl", HALF, HALF),
    "a name alone": ([queue("b", queue("b1"), most=50.0)], "b1", HALF, HALF),
}


@pytest.mark.parametrize("case", QUEUES)
def test_a_queue_of_yarn_offers_at_most_what_it_and_its_parents_may_use(case):
    queues, name, total, free = QUEUES[case]
    probe = yarn_at(scheduler(*queues), name)
    assert (probe.total, probe.queued) == (total, 1)
    assert free in (None, probe.free)


NO_QUEUE = {
    "none of the name": ([queue("default")], "etl", "it has no leaf queue etl"),
    "no leaf": ([queue("etl", queue("a"))], "etl", "it has no leaf queue etl"),
    "stopped": ([queue("default", state="STOPPED")], "default", "its queue default is STOPPED, expected RUNNING"),
    "below one that drains": ([queue("a", queue("b"), state="DRAINING")], "b", "its queue a is DRAINING"),
}


@pytest.mark.parametrize("case", NO_QUEUE)
def test_a_queue_of_yarn_that_takes_no_application_is_offline(case):
    queues, name, why = NO_QUEUE[case]
    with pytest.raises(NoAnswer, match=why):
        yarn_at(scheduler(*queues), name)


LARGE = b'{"status": "ALIVE", "workers": [], "more": "' + b"x" * LARGEST + b'"}'
NO_JSON = {
    "not found": ((404, b""), "/json/ answers with 404, expected 200"),
    "moved": ((302, b""), "/json/ answers with 302, expected 200"),
    "no JSON": (b"<html>", "another answer than expected"),
    "another JSON": ({"status": "ALIVE", "workers": [{"state": "ALIVE", "cores": -1}]}, "another answer than expected"),
    "too large": (LARGE, "the answer of http://127.0.0.1:[0-9]+/json/ is larger than 1 MiB"),
    "standby": (master(worker(), status="STANDBY"), "its master is not the active one"),
    "no worker": (master(), "its master has no worker"),
}


@pytest.mark.parametrize("case", NO_JSON)
def test_an_answer_that_cannot_be_used_is_none_and_says_why(case):
    answer, why = NO_JSON[case]
    with http_double(**{"/json/": answer, "/other/": master(worker())}) as double:
        double.answers["elsewhere"] = f"{double.url}/other/"
        with pytest.raises(NoAnswer, match=why):
            standalone.look(spark_at(double.url), NOW)
        assert double.calls == {"/json/": 1}


def test_a_master_that_drips_or_is_not_there_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(json_answers, "PROBE_SECONDS", 0.2)
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n") as server:
        with pytest.raises(NoAnswer, match=r"no answer from http://127.0.0.1:.* in 0 s"):
            standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
        assert server.gone.wait(30)
    (port,) = free_ports(1)
    with pytest.raises(NoAnswer, match=rf"no answer from http://127.0.0.1:{port}/json/ \(ConnectionError\)"):
        standalone.look(spark_at(f"http://127.0.0.1:{port}"), NOW)


def test_a_connect_server_that_answers_has_the_size_of_the_settings(monkeypatch):
    grpc = pytest.importorskip("grpc")
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    target = Connect(kind="connect", remote=SecretStr(f"sc://127.0.0.1:{port}/;token=secret"), cores=4, memory="8g")
    try:
        probe = connect_server.look(target, NOW)
    finally:
        server.stop(None).wait()
    assert (probe.total, probe.free) == (Amount(4, 8 * GIB), Amount(4, 8 * GIB))
    with pytest.raises(NoAnswer, match="no answer in"):
        connect_server.look(target, NOW)

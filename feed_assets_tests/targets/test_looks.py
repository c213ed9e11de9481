"""What each kind of target answers, and which answers are none: in bounded time, of bounded size, without secrets."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import grpc
import pytest
import trustme
from pydantic import SecretStr
from pyspark.sql.connect.client import DefaultChannelBuilder

from feed_assets.core.resources import Amount
from feed_assets.core.targets import Connect, Standalone, Yarn
from feed_assets.targets import connect_server, json_answers, standalone, yarn
from feed_assets.targets.json_answers import LARGEST, NoAnswer
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import free_ports
from feed_assets_tests.support.slow_servers import dripping, flooding
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
    assert len(probe.workers) == 3
    with http_double(**{"/json/": master(*workers[:1] * (standalone.MOST_MACHINES + 1))}) as double:
        assert standalone.look(spark_at(double.url), NOW).workers == (), "as many as these would hold up the queue"


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
    monkeypatch.setattr(json_answers, "PROBE_SECONDS", 0.4)  # longer than the pauses between the bytes
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n") as server:
        with pytest.raises(NoAnswer, match=r"no answer from http://127.0.0.1:.* in 0 s"):
            standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
        assert server.gone.wait(30)
    is_resolved, resolve = threading.Event(), socket.getaddrinfo
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n") as server, monkeypatch.context() as slow_dns:
        slow_dns.setattr(socket, "getaddrinfo", lambda *args, **kw: is_resolved.wait() and resolve(*args, **kw))
        with pytest.raises(NoAnswer, match=r"no answer from http://127.0.0.1:.* in 0 s"):
            standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
        is_resolved.set()
        assert server.gone.wait(30), "the connection opened after the time was over, and stays"
    (port,) = free_ports(1)
    with pytest.raises(NoAnswer, match=rf"no answer from http://127.0.0.1:{port}/json/ \(ConnectionError\)"):
        standalone.look(spark_at(f"http://127.0.0.1:{port}"), NOW)


@contextmanager
def connect_double(address, credentials=None):
    """Run a gRPC server without services. Yield its port."""
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        at = f"{address}:0"
        port = server.add_secure_port(at, credentials) if credentials else server.add_insecure_port(at)
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


def connect_look(remote):
    return connect_server.look(Connect(kind="connect", remote=SecretStr(remote), cores=4, memory="8g"), NOW)


FLOODS = {
    "a chunk's length": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        r"no answer from .* \(ChunkedEncodingError\)",
    ),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: /other\r\n\r\n", "answers with 302, expected 200"),
}


@pytest.mark.parametrize("case", FLOODS)
def test_a_master_that_answers_without_end_fills_no_memory(monkeypatch, case):
    head, why = FLOODS[case]
    monkeypatch.setattr(json_answers, "PROBE_SECONDS", 30)
    with flooding(b"GET", head, b"0" * 65536) as server, pytest.raises(NoAnswer, match=why):
        standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
    assert server.sent < 32 << 20


def test_a_connect_server_that_answers_has_the_size_of_the_settings(monkeypatch):
    with connect_double("127.0.0.1") as port:
        for options in ("", "/", "/;token=secret", "/;x_use_ssl=true", "/;use_ssl=false;token=secret"):
            probe = connect_look(f"sc://127.0.0.1:{port}{options}")
            assert (probe.total, probe.free) == (Amount(4, 8 * GIB), Amount(4, 8 * GIB))
    monkeypatch.setattr(connect_server, "PROBE_SECONDS", 0.2)
    with pytest.raises(NoAnswer, match=f"no answer from 127.0.0.1:{port} in"):
        connect_look(f"sc://127.0.0.1:{port}")


def test_a_connect_server_is_asked_by_tls_as_pyspark_s_client_does(monkeypatch):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.2")
    pair = certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    trusted, by_system = authority.cert_pem.bytes(), grpc.ssl_channel_credentials
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda: by_system(root_certificates=trusted))
    with connect_double("127.0.0.2", grpc.ssl_server_credentials([pair])) as port:
        for options in ("/;token=secret", "/;use_ssl=true", "/;user_id=etl;USE_SSL=x;use_ssl=True"):
            assert connect_look(f"sc://127.0.0.2:{port}{options}").total.cores == 4
        monkeypatch.setattr(connect_server, "PROBE_SECONDS", 0.2)
        with pytest.raises(NoAnswer, match="no answer from"):
            connect_look(f"sc://127.0.0.2:{port}")
        monkeypatch.setattr(connect_server, "PROBE_SECONDS", 2.0)
        monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "secret")
        assert connect_look(f"sc://127.0.0.2:{port}").total.cores == 4


REMOTES = ["sc://h", "sc://h:1", "sc://[::1]:1", "sc://[::1]/;token=a", "sc://h/;token=a", "sc://h:2/;use_ssl=true"]


@each_case("remote", [*REMOTES, "sc://h/;x_use_ssl=true", "sc://localhost/;use_ssl=TRUE", "sc://H/;user_id=a;token=b"])
def test_address_and_tls_of_a_connect_server_are_those_of_pyspark_s_client(remote):
    builder = DefaultChannelBuilder(remote)
    assert (connect_server._address(remote), connect_server._has_tls(remote)) == (builder.endpoint, builder.secure)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="without IPv6 nobody can listen on [::1]")
def test_a_connect_server_with_an_address_of_ipv6_answers():
    with connect_double("[::1]") as port:
        assert connect_look(f"sc://[::1]:{port}").total.cores == 4

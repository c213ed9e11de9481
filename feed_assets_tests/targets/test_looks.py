"""What each kind of target answers, and which answers are none: in bounded time, of bounded size, without secrets."""

from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from feed_assets.core.resources import Amount
from feed_assets.core.targets import Connect, Kubernetes, Standalone, Yarn
from feed_assets.targets import connect_server, json_answers, kubernetes, standalone, yarn
from feed_assets.targets.json_answers import LARGEST, NoAnswer
from feed_assets_tests.support.servers import free_ports
from feed_assets_tests.support.slow_servers import dripping, flooding
from feed_assets_tests.targets.http_doubles import (
    METRICS,
    NO_ITEMS,
    QUOTAS,
    http_double,
    master,
    node,
    pod,
    worker,
)

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
MIB, GIB = 1 << 20, 1 << 30


def spark_at(url):
    return Standalone(kind="standalone", master="spark://h:7077", url=url)


def cluster_at(url, **more):
    return Kubernetes.model_construct(
        kind="kubernetes", url=url, namespace="etl", **{"token_file": None, "ca_file": None, **more}
    )


def test_a_master_of_spark_counts_only_workers_that_can_start_an_executor():
    workers = [worker(8, 3, 16384, 4096), worker(4, 4), worker(4, 0, 2048, 1800), worker(99, state="DEAD")]
    with http_double(**{"/json/": master(*workers, waiting=2)}) as double:
        probe = standalone.look(spark_at(double.url), NOW)
    assert (probe.total, probe.free) == (Amount(16, (16384 + 15360 + 2048) * MIB), Amount(5, 12288 * MIB))
    assert (probe.queued, probe.at, double.calls) == (2, NOW, {"/json/": 1})


def test_a_resource_manager_answers_for_its_whole_cluster():
    with http_double(**{"/ws/v1/cluster/metrics": METRICS}) as double:
        probe = yarn.look(Yarn(kind="yarn", url=f"{double.url}/"), NOW)
    assert (probe.total, probe.free, probe.queued) == (Amount(8, 25600 * MIB), Amount(7, 17408 * MIB), 3)


def test_a_namespace_with_a_quota_has_what_is_left_of_it(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    pending = {**NO_ITEMS, "items": [pod({"cpu": "1"}, phase="Pending")]}
    answers = {"/api/v1/namespaces/etl/resourcequotas": QUOTAS, "/api/v1/namespaces/etl/pods": pending}
    with http_double(**answers) as double:
        probe = kubernetes.look(cluster_at(double.url, token_file=tmp_path / "token"), NOW)
    assert (probe.total, probe.free, probe.queued) == (Amount(10, 40 * GIB), Amount(7, 30 * GIB), 1)
    assert double.headers["Authorization"] == "Bearer secret"


def test_a_namespace_without_a_quota_has_what_no_pod_has_requested_of_the_nodes():
    answers = {
        "/api/v1/namespaces/etl/resourcequotas": NO_ITEMS,
        "/api/v1/nodes": {"items": [node(), node("3920m", "15Gi"), node(ready="False"), node(cordoned=True)]},
        "/api/v1/pods": {"items": [pod({"cpu": "250m", "memory": "1Gi"}, {}), pod({"cpu": "2", "memory": "1e9"})]},
        "/api/v1/namespaces/etl/pods": NO_ITEMS,
    }
    with http_double(**answers) as double:
        probe = kubernetes.look(cluster_at(double.url), NOW)
    total = 16393492 * 1024 + 15 * GIB
    assert (probe.total, probe.free) == (Amount(7, total), Amount(5, total - GIB - 10**9))


LARGE = b'{"status": "ALIVE", "workers": [], "more": "' + b"x" * LARGEST + b'"}'
NO_JSON = {
    "not found": ((404, b""), "it answers with 404, expected 200"),
    "moved": ((302, b""), "it answers with 302, expected 200"),
    "no JSON": (b"<html>", "another answer than expected"),
    "another JSON": ({"status": "ALIVE", "workers": [{"state": "ALIVE", "cores": -1}]}, "another answer than expected"),
    "too large": (LARGE, "its answer is larger than 1 MiB"),
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
        with pytest.raises(NoAnswer, match="no answer in"):
            standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
        assert server.gone.wait(30)
    (port,) = free_ports(1)
    with pytest.raises(NoAnswer, match=r"no answer \(ConnectionError\)"):
        standalone.look(spark_at(f"http://127.0.0.1:{port}"), NOW)


FLOODS = {
    "a chunk's length": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        r"no answer \(ChunkedEncodingError\)",
    ),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: /other\r\n\r\n", "it answers with 302, expected 200"),
}


@pytest.mark.parametrize("case", FLOODS)
def test_a_master_that_answers_without_end_fills_no_memory(monkeypatch, case):
    head, why = FLOODS[case]
    monkeypatch.setattr(json_answers, "PROBE_SECONDS", 30)
    with flooding(b"GET", head, b"0" * 65536) as server, pytest.raises(NoAnswer, match=why):
        standalone.look(spark_at(f"http://127.0.0.1:{server.port}"), NOW)
    assert server.sent < 32 << 20


def test_a_token_that_cannot_be_read_or_is_refused_is_no_answer(tmp_path):
    with http_double(**{"/api/v1/namespaces/etl/resourcequotas": (403, b"{}")}) as double:
        with pytest.raises(NoAnswer, match="it answers with 403"):
            kubernetes.look(cluster_at(double.url), NOW)
        with pytest.raises(NoAnswer, match=r"token_file cannot be read \(FileNotFoundError\)"):
            kubernetes.look(cluster_at(double.url, token_file=tmp_path / "none"), NOW)
    with pytest.raises(ValueError, match="a token is sent to https:// only"):
        Kubernetes(kind="kubernetes", url="http://h", token_file=tmp_path / "token")


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

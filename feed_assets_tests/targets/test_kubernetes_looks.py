"""What the API server of Kubernetes answers for a namespace: quotas, nodes and pods as real clusters have them."""

import ssl
from datetime import UTC, datetime

import pytest
import trustme

from feed_assets.core.resources import Amount
from feed_assets.core.targets import Kubernetes
from feed_assets.targets import json_answers, kubernetes
from feed_assets.targets.json_answers import NoAnswer
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kubernetes_answers import (
    NO_QUOTAS,
    as_list,
    container,
    in_pages,
    node,
    pod,
    quota,
)
from feed_assets_tests.support.target_doubles import http_double

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
GIB = 1 << 30
QUOTAS, NODES, PODS = "/api/v1/namespaces/etl/resourcequotas", "/api/v1/nodes", "/api/v1/pods"
PENDING = "/api/v1/namespaces/etl/pods"
BOTH = {"requests.cpu": "10", "requests.memory": "40Gi", "pods": "40"}
USED = {"requests.cpu": "2500m", "requests.memory": "10240Mi", "pods": "3"}
OBJECTS = quota({"configmaps": "10"}, {"configmaps": "1"})


def cluster_at(url, **more):
    fields = {"kind": "kubernetes", "url": url, "namespace": "etl", "token_file": None, "ca_file": None}
    return Kubernetes.model_construct(**{**fields, **more})


def answers(quotas=NO_QUOTAS, nodes=(), pods=(), pending=()):
    """Return what the API server answers. The lists of nodes and pods come in pages."""
    listed = {NODES: in_pages("Node", *nodes), PODS: in_pages("Pod", *pods), PENDING: in_pages("Pod", *pending)}
    return {QUOTAS: quotas, **listed}


def looked(**more):
    with http_double(**answers(**more)) as double:
        return kubernetes.look(cluster_at(double.url), NOW)


def test_a_namespace_with_a_quota_has_what_is_left_of_it(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    waiting = [pod({"cpu": "1"}, phase="Pending", on="")]
    with http_double(**answers(as_list("ResourceQuota", quota(BOTH, USED), OBJECTS), pending=waiting)) as double:
        probe = kubernetes.look(cluster_at(f"{double.url}/", token_file=tmp_path / "token"), NOW)
    assert (probe.total, probe.free, probe.queued) == (Amount(10, 40 * GIB), Amount(7, 30 * GIB), 1)
    assert (double.headers["Authorization"], double.calls[NODES]) == ("Bearer secret", 0)
    assert "PartialObjectMetadataList" in double.headers["Accept"]


FOUR = [node("4", "16Gi")]


@each_case(
    ("quotas", "total", "free"),
    [
        ([quota({"requests.memory": "8Gi"}, {"requests.memory": "2Gi"})], Amount(4, 8 * GIB), Amount(3, 6 * GIB)),
        ([quota({"cpu": "3"}, {"cpu": "1"})], Amount(3, 16 * GIB), Amount(2, 15 * GIB)),
        ([quota(BOTH, USED), quota({"limits.cpu": "4"}, {})], Amount(4, 40 * GIB), Amount(4, 30 * GIB)),
        ([quota(BOTH, USED, scopes=["BestEffort"])], Amount(4, 16 * GIB), Amount(3, 15 * GIB)),
        ([quota(BOTH, USED, scopes=["NotBestEffort"])], Amount(10, 40 * GIB), Amount(7, 30 * GIB)),
        (
            [quota(BOTH, USED, scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass"}]})],
            Amount(4, 16 * GIB),
            Amount(3, 15 * GIB),
        ),
    ],
)
def test_quotas_that_count_our_pods_limit_what_they_name_and_the_nodes_limit_the_rest(quotas, total, free):
    probe = looked(quotas=as_list("ResourceQuota", *quotas), nodes=FOUR, pods=[pod({"cpu": "500m", "memory": "1Gi"})])
    assert (probe.total, probe.free) == (total, free)


def test_a_namespace_without_a_quota_has_what_no_pod_has_requested_of_the_nodes_that_take_its_pods():
    nodes = [
        node(),
        node("3920m", "15Gi", name="m"),
        node(name="unready", ready="Unknown"),
        node(name="cordoned", effect="NoSchedule"),
        node(name="preferred", cpu="1", memory="1Gi", effect="PreferNoSchedule"),
    ]
    pods = [
        pod({"cpu": "250m", "memory": "1Gi"}, {}),
        pod({"cpu": "2", "memory": "1e9"}, on="m"),
        pod({"cpu": "1"}, on="cordoned"),
        pod({"cpu": "100m", "memory": "1e3"}, on=""),
    ]
    probe = looked(nodes=nodes, pods=pods)
    total = 16393492 * 1024 + 16 * GIB
    assert (probe.total, probe.free) == (Amount(8, total), Amount(6, total - GIB - 10**9 - 1000))


@each_case(
    ("spec", "cores"),
    [
        ({"initContainers": [container({"cpu": "3"})]}, 3),
        ({"initContainers": [container({"cpu": "1"})]}, 2),
        ({"initContainers": [container({"cpu": "1"}, restartPolicy="Always")]}, 3),
        ({"initContainers": [container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "3"})]}, 4),
        ({"overhead": {"cpu": "1", "memory": "120Mi"}}, 3),
        ({"resources": {"requests": {"cpu": "4"}}}, 4),
        ({"initContainers": None, "overhead": None}, 2),
    ],
)
def test_a_pod_takes_what_kubernetes_keeps_for_it_with_its_sidecars_its_start_and_its_overhead(spec, cores):
    probe = looked(nodes=[node("8", "16Gi")], pods=[pod({"cpu": "2"}, **spec)])
    assert probe.free.cores == 8 - cores


def test_a_large_cluster_is_read_in_pages_and_waiting_pods_are_counted_to_a_hundred():
    large = {"images": [{"names": ["i" * 15_000], "sizeBytes": 1}]}
    nodes = [node("1", "1Gi", name=f"n{number}") for number in range(100)]
    nodes = [{**each, "status": {**each["status"], **large}} for each in nodes]
    waiting = [pod({"cpu": "1"}, phase="Pending", on="") for _ in range(150)]
    with http_double(**answers(nodes=nodes, pods=[pod({"cpu": "1"}, on="n1")] * 90, pending=waiting)) as double:
        probe = kubernetes.look(cluster_at(double.url), NOW)
    assert (probe.total.cores, probe.free.cores, probe.queued) == (100, 10, 100)
    assert double.calls == {QUOTAS: 1, NODES: 3, PODS: 3, PENDING: 1}


@each_case("path", [NODES, PODS])
def test_a_cluster_that_is_too_large_to_be_read_says_that_its_namespace_needs_a_quota(path):
    with http_double(**answers(nodes=FOUR)) as double, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_answers, "monotonic", lambda: double.calls.total() / 10)  # Each answer takes 0.1 s.
        item = node() if path == NODES else pod()
        double.answers[path] = lambda _: as_list("Item", item, more="again")  # The list never ends.
        hint = f"no answer from {double.url}{path} in 2 s: give the namespace etl a ResourceQuota for requests.cpu"
        with pytest.raises(NoAnswer, match=hint):
            kubernetes.look(cluster_at(double.url), NOW)
        assert double.calls.total() == 21
    with http_double(**answers(nodes=FOUR)) as double:
        double.answers[path] = b"x" * (1 + json_answers.LARGEST)
        with pytest.raises(NoAnswer, match="is larger than 1 MiB: give the namespace etl a ResourceQuota"):
            kubernetes.look(cluster_at(double.url), NOW)
        double.answers[path] = b'{"kind": "List", "items": [%b{}]}' % (b"{}," * (1 + json_answers.MOST_VALUES))
        with pytest.raises(NoAnswer, match="has more than 50,000 values: give the namespace etl a ResourceQuota"):
            kubernetes.look(cluster_at(double.url), NOW)
        double.answers[path] = b'{"kind": "List", "items": [%b{}]}' % (b"{}," * 1000)  # A page asks for 100 at most.
        with pytest.raises(NoAnswer, match="another answer than expected"):
            kubernetes.look(cluster_at(double.url), NOW)


@each_case("cpu", ["8Ei", "1e30", "-1", "many", "99999999999999999999"])
def test_an_amount_that_is_none_is_no_answer(cpu):
    with pytest.raises(NoAnswer, match="another answer than expected"):
        looked(quotas=as_list("ResourceQuota", quota({"requests.cpu": cpu}, {})))


@each_case(
    ("text", "number"), [("1500m", 1), ("1e1", 10), ("1E1", 10), ("30e-1", 3), ("+2", 2), ("3.", 3), ("2k", 2000)]
)
def test_all_forms_of_a_quantity_are_read(text, number):
    assert looked(quotas=as_list("ResourceQuota", quota({**BOTH, "requests.cpu": text}, {}))).total.cores == number


def test_a_token_or_certificate_that_cannot_be_read_or_is_refused_is_no_answer(tmp_path):
    with http_double(**{QUOTAS: (403, b"{}")}) as double:
        with pytest.raises(NoAnswer, match="/resourcequotas answers with 403"):
            kubernetes.look(cluster_at(double.url), NOW)
        with pytest.raises(NoAnswer, match=r"token_file cannot be read \(FileNotFoundError\)"):
            kubernetes.look(cluster_at(double.url, token_file=tmp_path / "none"), NOW)
        with pytest.raises(NoAnswer, match="its ca_file is missing"):
            kubernetes.look(cluster_at(double.url, ca_file=tmp_path / "none"), NOW)
    with pytest.raises(ValueError, match="a token is sent to https:// only"):
        Kubernetes(kind="kubernetes", url="http://h", token_file=tmp_path / "token")


def test_the_certificate_of_the_cluster_counts_whatever_the_environment_trusts(tmp_path, monkeypatch):
    authority, other = trustme.CA(), trustme.CA()
    for name, each in (("cluster.pem", authority), ("other.pem", other)):
        each.cert_pem.write_to_path(str(tmp_path / name))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with http_double(context, **answers(nodes=FOUR)) as double:
        probe = kubernetes.look(cluster_at(double.url, ca_file=tmp_path / "cluster.pem"), NOW)
        with pytest.raises(NoAnswer, match="SSLError"):
            kubernetes.look(cluster_at(double.url), NOW)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cluster.pem"))
        with pytest.raises(NoAnswer, match="SSLError"):
            kubernetes.look(cluster_at(double.url, ca_file=tmp_path / "other.pem"), NOW)
    assert probe.total == Amount(4, 16 * GIB)

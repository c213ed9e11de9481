"""Answers are shared through the ledger: many who ask cost one request, and a lost target rests for a while."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.resources import Amount
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import Kubernetes, Local, Standalone, Yarn
from feed_assets.ledger import target_probes
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.targets import looks, probes
from feed_assets_tests.support.kubernetes_answers import as_list
from feed_assets_tests.support.target_doubles import METRICS, http_double, master, worker

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path):
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.engine.dispose()


@pytest.fixture
def double():
    with http_double(**{"/json/": master(worker(8, 2))}) as running:
        yield running


def targets_at(double):
    return {"etl-a": Standalone(kind="standalone", master="spark://h:7077", url=double.url)}


def free(ledger, double, now):
    found = probes.answers(ledger, targets_at(double), now).get("etl-a")
    return found and found.free.cores


def test_hundreds_of_looks_of_several_sensors_cost_one_request_per_lifetime(ledger, double):
    def look(number):
        return free(ledger, double, NOW + timedelta(milliseconds=number))

    with ThreadPoolExecutor(8) as pool:
        seen = [*pool.map(look, range(200))]
    assert {each for each in seen if each is not None} == {6}
    assert double.calls["/json/"] == 1
    free(ledger, double, NOW + LOOK_AGAIN / 2)
    assert double.calls["/json/"] == 1
    free(ledger, double, NOW + 2 * LOOK_AGAIN)
    assert double.calls["/json/"] == 2


def test_a_process_that_dies_while_it_asks_is_replaced(ledger, double):
    assert target_probes.answers(ledger, ["etl-a"], NOW) == ({}, ["etl-a"])
    assert free(ledger, double, NOW + timedelta(seconds=1)) is None
    assert free(ledger, double, NOW + target_probes.ASKED_WITHIN) == 6


def test_an_outage_has_one_beginning_and_ends_with_the_next_answer(ledger, double):
    for minute in range(3):
        double.answers["/json/"] = (503, b"")
        found = probes.answers(ledger, targets_at(double), NOW + timedelta(minutes=minute))["etl-a"]
        why = f"{double.url}/json/ answers with 503, expected 200"
        assert (found.offline, found.since) == (why, NOW)
    double.answers["/json/"] = master(worker())
    assert free(ledger, double, NOW + timedelta(minutes=3)) == 8
    rooms = probes.rooms(targets_at(double), {"etl-a": found}, {}, {})
    assert rooms["etl-a"].closed == f"offline since 12:00 UTC ({why})"


def test_a_target_that_a_run_has_lost_rests_and_comes_back(ledger, double):
    target_probes.lose(ledger, "etl-a", NOW)
    found = probes.answers(ledger, targets_at(double), NOW)["etl-a"]
    assert (found.offline, found.since) == (target_probes.LOST, NOW)
    later = probes.answers(ledger, targets_at(double), NOW + target_probes.LOST_FOR)["etl-a"]
    assert later.offline is None


def test_an_answer_of_a_wrong_clock_is_asked_again(ledger, double):
    target_probes.keep(ledger, {"etl-a": Probe(NOW + timedelta(days=1), Amount(1, 1), Amount(1, 1))})
    assert free(ledger, double, NOW) == 6


def test_a_target_whose_size_is_set_has_that_of_the_own_settings_whatever_another_process_asked(ledger):
    mine = {"here": Local(kind="local", cores=2, memory="2g")}
    probes.answers(ledger, {"here": Local(kind="local", cores=64, memory="1t")}, NOW)
    assert probes.answers(ledger, mine, NOW)["here"].total == Amount(2, 2 << 30)
    target_probes.lose(ledger, "here", NOW)
    assert probes.answers(ledger, mine, NOW)["here"].offline == target_probes.LOST


QUOTA_PATH = "/api/v1/namespaces/etl/resourcequotas"
PODS_PATH = "/api/v1/namespaces/etl/pods"


def quota(**hard):
    return as_list("ResourceQuota", {"status": {"hard": hard, "used": {}}})


HUGE = {"totalMB": 1 << 50}
HOSTILE = {
    "sums": (Standalone, {"/json/": master(*[worker(1 << 40, 0, 1 << 40)] * 20)}, r"numbers up to 2\^62"),
    "quantities": (Kubernetes, {QUOTA_PATH: quota(cpu="9e99"), PODS_PATH: as_list("Pod")}, r"\(a quantity\)"),
    "one number": (Yarn, {"/ws/v1/cluster/metrics": {"clusterMetrics": METRICS["clusterMetrics"] | HUGE}}, "expected"),
    "names": (Kubernetes, {QUOTA_PATH: quota(**{"a\0b" * 9: 1})}, r"expected from .* \(items\.0\.status\.hard\)$"),
    "nesting": (Standalone, {"/json/": b"[" * 100_000}, "another answer than expected"),
}


def target_of(kind, url):
    more = {"master": "spark://h:7077"} if kind is Standalone else {"namespace": "etl"} if kind is Kubernetes else {}
    more |= {"token_file": None, "ca_file": None} if kind is Kubernetes else {}
    return kind.model_construct(kind=kind.__name__.lower(), url=url, **more)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_answer_counts_as_offline_and_leaves_the_answers_of_others(ledger, case):
    kind, answers, why = HOSTILE[case]
    with http_double(**answers) as double:
        targets = {"bad": target_of(kind, double.url), "good": Local(kind="local", cores=2, memory="4g")}
        found = probes.answers(ledger, targets, NOW)
    assert re.search(why, found["bad"].offline)
    assert found["good"].free.cores == 2
    assert target_probes.answers(ledger, [*targets], NOW + timedelta(seconds=1)) == (found, [])


def test_a_look_that_fails_by_a_mistake_of_ours_counts_as_offline_too(ledger, double, monkeypatch, caplog):
    monkeypatch.setitem(looks._LOOKS, Standalone, lambda *_: 1 // 0)
    assert probes.answers(ledger, targets_at(double), NOW)["etl-a"].offline == "the probe failed (ZeroDivisionError)"
    assert "division" in caplog.text


def test_a_target_on_which_others_have_more_than_it_has_is_full_and_not_offline(ledger, double, monkeypatch):
    monkeypatch.setitem(looks._LOOKS, Standalone, lambda _, now: Probe(now, Amount(8, 8), Amount(-4, -4)))
    found = probes.answers(ledger, targets_at(double), NOW)["etl-a"]
    assert (found.offline, found.free) == (None, Amount(-4, -4))

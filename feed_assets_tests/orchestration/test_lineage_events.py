"""Reads and writes of runs as an OpenLineage endpoint receives them; each event is valid by OpenLineage's schemas."""

import json
import os
import shutil
import signal
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import pytest
import sqlalchemy as sa
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.errors import SinkUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.deliveries.outbox import LONGEST_PAUSE
from feed_assets.ledger import quality
from feed_assets.ledger.alerts import open_alerts as alerts_of
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import subscription
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.lineage_events import namespace_and_prefix
from feed_assets.orchestration.ticks.publishing import publish_events
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.sources import openlineage
from feed_assets.sources.openlineage import OpenLineageSink
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.openlineage_receiver import endpoint, errors_of
from feed_assets_tests.support.slow_servers import dripping
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    chain,
    harness,
    later,
    picked_of,
    raw_feed,
    rows,
    short,
    sums_of,
    without_place,
)

REJECTS = "t/sums_rejects/v1.0"


@pytest.fixture
def received(setting):
    with endpoint() as found:
        setting(events_to=found.url)
        yield found


def open_alerts():
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts_of(connection)}


def by_name(datasets):
    return {each["name"].rpartition("/blackboard/")[2]: each for each in datasets}


def subset(dataset):
    facets = dataset.get("inputFacets", {}) | dataset.get("outputFacets", {})
    condition = facets["subset"].get("inputCondition") or facets["subset"]["outputCondition"]
    return [(each["dimensions"], each.get("identifier")) for each in condition["partitions"]]


def test_every_run_sends_start_and_complete_events_that_are_valid_openlineage(received):
    world = chain()
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    world.tick()
    assert received.told == [("START", SUMS), ("COMPLETE", SUMS), ("START", PICKED), ("COMPLETE", PICKED)]
    assert {*received.paths} == {"/api/v1/lineage"}
    assert [errors_of(event) for event in received.events] == [[]] * 4
    runs = [event["run"]["runId"] for event in received.events]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert all(UUID(each) for each in runs)


@each_case(
    ("url", "namespace", "prefix"),
    [
        ("file:///data/a%20b/", "file", "/data/a b"),
        ("s3://lake", "s3://lake", ""),
        ("s3://lake/raw/a%20b/", "s3://lake", "raw/a b"),
    ],
)
def test_a_dataset_has_openlineages_name_of_its_store(url, namespace, prefix):
    assert namespace_and_prefix(url) == (namespace, prefix)


def test_an_event_names_the_exact_updates_read_and_written(received, home):
    world = chain()
    update = world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    world.tick()
    _, sums, _, picked = received.events
    (raw,) = sums["inputs"]
    assert (raw["namespace"], raw["name"]) == ("file", f"{home}/blackboard/{RAW}")
    ((dimensions, read),) = subset(raw)
    assert dimensions == {"partition": DAY}
    assert raw["facets"]["version"]["datasetVersion"] == f"{DAY}/{read}"
    assert read in str(update)
    assert [(each["name"], each["type"]) for each in raw["facets"]["schema"]["fields"]] == [
        ("k", "string"),
        ("n", "int"),
    ]
    assert raw["inputFacets"]["inputStatistics"]["fileCount"] == 1
    written = by_name(sums["outputs"])
    assert {*written} == {SUMS, REJECTS}
    assert written[SUMS]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert [each["name"] for each in written[SUMS]["facets"]["schema"]["fields"]] == ["k", "n"]
    assert written[SUMS]["facets"]["version"] == picked["inputs"][0]["facets"]["version"]
    assert picked["inputs"][0]["facets"]["schema"] == written[SUMS]["facets"]["schema"]
    facets = sums["run"]["facets"]
    assert facets["nominalTime"]["nominalStartTime"] == "2020-01-01T00:00:00+00:00"
    assert facets["nominalTime"]["nominalEndTime"] == "2020-01-02T00:00:00+00:00"
    assert facets["parent"]["job"]["name"] == "__ASSET_JOB"
    assert world.instance.get_run_by_id(facets["parent"]["run"]["runId"])


def test_a_failed_audit_sends_a_fail_event_with_its_check_results(received):
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    world.tick()
    assert received.told == [("START", SUMS), ("FAIL", SUMS)]
    failed = received.events[1]
    tests = {each["name"]: each["status"] for each in failed["run"]["facets"]["test"]["tests"]}
    assert tests == {"not_empty": "pass", "within_n": "fail"}
    assert "within" in failed["run"]["facets"]["errorMessage"]["message"]
    assert [(each["name"].endswith(SUMS), "version" in each.get("facets", {})) for each in failed["outputs"]] == [
        (True, False)
    ]
    assert errors_of(failed) == []


def test_a_run_that_raises_sends_one_fail_event(received):
    world = short()
    world.drop(RAW, DAY, rows(13))
    world.run_until_idle()
    world.tick()
    assert received.told == [("START", SUMS), ("FAIL", SUMS)]
    message = received.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert without_place(message) == "RuntimeError: 13 is unlucky"


def test_a_refused_event_is_an_alert_and_sent_again(received):
    world = short()
    received.answers += [201, *[503] * 99]
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert received.told == [("START", SUMS)]
    (reason,) = open_alerts().values()
    assert "503" in reason
    received.answers.clear()
    later(world, LONGEST_PAUSE)
    world.tick()
    assert received.told == [("START", SUMS), ("COMPLETE", SUMS)], "the accepted event is not sent again"
    assert open_alerts() == {}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def tick_and_die():
    """Tick, and be killed in the first run."""
    short(during=die).run_until_idle()


def test_a_killed_run_sends_an_abort_event_and_its_retry_is_another_run(received, forker):
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert forker.run(tick_and_die) == -signal.SIGKILL
    world.run_until_idle()
    world.tick()
    assert received.told == [("START", SUMS), ("ABORT", SUMS), ("START", SUMS), ("COMPLETE", SUMS)]
    runs = [event["run"]["runId"] for event in received.events]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    aborted = received.events[1]
    assert aborted["run"]["facets"]["errorMessage"]["message"] == "its process is gone, or Dagster has ended its run"
    assert [(each["name"].endswith(SUMS), "version" in each["facets"]) for each in aborted["outputs"]] == [
        (True, False)
    ]
    assert [errors_of(event) for event in received.events] == [[]] * 4


@pytest.mark.parametrize(("state", "is_good"), [(quality.PASSED, True), (quality.WARNED, False)])
def test_an_event_carries_the_check_results_of_its_inputs(received, state, is_good):
    world = short()
    world.drop(RAW, DAY, rows(1))
    read = Partition(Feed.parse(RAW), DAY)
    with open_ledger(settings().ledger).change() as connection:
        quality.report(connection, read, "fresh", state, "an hour old", "dq", datetime(2020, 1, 1, tzinfo=UTC))
    world.run_until_idle()
    world.tick()
    (raw,) = received.events[1]["inputs"]
    (told,) = raw["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (told["assertion"], told["success"], told["description"]) == ("fresh", is_good, "an hour old")
    assert errors_of(received.events[1]) == []


def test_a_redirect_from_the_lineage_endpoint_is_an_alert(received):
    world = short()
    received.answers += [302] * 99
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert received.events == []
    assert len(open_alerts()) == 1


def test_a_position_set_back_sends_the_same_events_again(received):
    """A kill between sending and moving the position has the same effect."""
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.tick()
    first = [*received.events]
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(subscription).values(position=0))
    world.tick()
    assert received.events == first + first


def of_the_home(instance):
    """Build raw -> sums -> picked on the Dagster instance that other processes find."""
    raw = raw_feed()
    sums = sums_of(raw)
    return harness(raw, sums, picked_of(sums), instance=instance)


def send_and_die(number):
    """Send all due events, and be killed right before a change of this number."""
    with open_instance() as instance:
        graph = Graph(of_the_home(instance).definitions.resolve_asset_graph())
        services = Services.of(settings())
        publish = partial(publish_events, now=services.now())
        call_and_die(number, None, publish, services, graph, instance, lambda: False)


@pytest.fixture
def ten_runs(home):
    """Return a copy of the ledger after ten unreported runs."""
    with open_instance() as instance:
        world = of_the_home(instance)
        for day in DAYS.get_partition_keys():
            world.drop(RAW, day, rows(1))
        assert len(world.run_until_idle()) == 10
    open_ledger(settings().ledger).engine.dispose()
    return shutil.copyfile(home / "ledger.db", home / "before.db")


def test_a_kill_while_sending_repeats_identical_events_and_misses_none(home, ten_runs, received, forker):
    """Kill at each of its changes in turn, every time with the same ledger."""
    codes, sent = [-signal.SIGKILL], []
    while codes[-1] == -signal.SIGKILL:
        for file in home.glob("ledger.db*"):
            file.unlink()
        shutil.copyfile(ten_runs, home / "ledger.db")
        received.events.clear()
        codes.append(forker.run(send_and_die, len(codes)))
        first = [*received.events]
        assert forker.run(send_and_die, 0) == 0
        sent.append((first, received.events[len(first) :]))
    assert codes[-1] == 0
    whole, nothing = sent.pop()
    assert (len(whole), nothing) == (20, [])
    assert all(whole == [*first[: len(whole) - len(again)], *again] for first, again in sent)
    assert all(first == whole[: len(first)] for first, _ in sent)
    assert {len(first) + len(again) for first, again in sent} == {20, 30}, "a batch is sent again, or nothing"


def test_an_endpoint_that_answers_a_byte_at_a_time_holds_up_no_run(setting, monkeypatch):
    monkeypatch.setattr(openlineage, "EVENT_SECONDS", 1)
    with dripping(b"HTTP/1.1 200 OK\r\nX: ") as server:
        setting(events_to=f"openlineage+http://127.0.0.1:{server.port}")
        world = short()
        world.drop(RAW, DAY, rows(1))
        assert [run.succeeded for run in world.run_until_idle()] == [True]
        (reason,) = open_alerts().values()
        assert "within 1 s" in reason
        assert server.gone.wait(5)


def test_a_key_over_plain_http_is_refused_without_being_shown(received, setting):
    setting(events_to=received.url.replace("://", "://:planted-key@"))
    with pytest.raises(Exception, match="EVENTS_TO") as refused:  # The key would go over plain HTTP.
        settings()
    assert "planted-key" not in str(refused.value)


def send_one_event(received, user=""):
    """Send one event with this user and key."""
    started = {"eventType": RunState.START, "eventTime": "2026-01-02T00:00:00Z", "producer": "https://acme.org"}
    event = RunEvent(run=Run(str(UUID(int=1))), job=Job("t", "t/sums"), **started)
    OpenLineageSink(received.url.replace("://", f"://{user}", 1)).publish([(1, event)])


@pytest.mark.parametrize(
    ("user", "header"),
    [(":planted-key@", "Bearer planted-key"), (":planted%2Fkey%40@", "Bearer planted/key@"), ("", None)],
    ids=["a key", "with signs that an address has", "none"],
)
def test_the_endpoint_receives_the_key_only_in_its_header(received, user, header):
    send_one_event(received, user)
    assert received.keys == [header]
    assert "planted" not in json.dumps([received.events, received.paths])


def test_an_endpoint_that_refuses_events_is_named_without_the_key(received):
    received.answers += [401] * 9
    with pytest.raises(SinkUnavailable, match="refuses an event") as refused:
        send_one_event(received, ":planted-key@")
    assert "planted-key" not in str(refused.value)


def test_a_lineage_file_gets_a_line_for_each_event(setting, tmp_path):
    file = tmp_path / "line age.jsonl"
    setting(events_to=f"openlineage+{file.as_uri()}")
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(2))
    world.run_until_idle()
    world.tick()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * 2
    assert [errors_of(event) for event in events] == [[]] * 4

"""Sinks of events and alert channels: pauses that grow, failures that people see, and events that they skip."""

import json
import sys
from datetime import timedelta
from functools import partial
from itertools import cycle

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from feed_assets import Webhook, alerts, on_change
from feed_assets.alerts import channels, deliver
from feed_assets.cli import app
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.deliveries import outbox
from feed_assets.deliveries.outbox import FIRST_PAUSE, LONGEST_PAUSE
from feed_assets.ledger import subscriptions
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks import publishing
from feed_assets.orchestration.ticks.publishing import publish_events
from feed_assets.runs.services import Services
from feed_assets.settings import Settings, settings
from feed_assets_tests.support.alert_channels import NOW, SECRET, Receiver, undelivered_alerts
from feed_assets_tests.support.alert_steps import raise_alert, resolve
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.openlineage_receiver import endpoint
from feed_assets_tests.support.servers import free_ports
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, later, raw_feed, rows, short

SECOND = timedelta(seconds=1)
PAUSES = [FIRST_PAUSE * 2**number for number in range(6)] + [LONGEST_PAUSE] * 2
"""Pauses between nine tries: 5 s, 10 s, up to 5 minutes."""

PROJECT = """
import dagster as dg
from feed_assets import foreign_feed, with_automation

days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
defs = with_automation(dg.Definitions(assets=[foreign_feed("t/raw/v1.0", partitions_def=days, schema="k string")]))
"""


@pytest.fixture
def setting(monkeypatch):
    """Return a function that sets the sinks."""

    def change(url):
        monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", url)
        settings.cache_clear()

    return change


@pytest.fixture
def received(setting):
    with endpoint() as opened:
        setting(opened.url)
        yield opened


def run(*arguments):
    result = CliRunner().invoke(app, ["subscriptions", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def frozen():
    """Return a harness of raw -> sums whose clock moves by `later` alone."""
    world = short()
    began = world.now()
    world.now = lambda: began
    return world


def opened_at():
    """Return the open alerts of sinks: the time of opening by name."""
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.opened for each in open_alerts(connection) if each.name.startswith("failing:watch:")}


def test_an_outage_of_a_sink_has_growing_pauses_and_one_alert_and_leaves_no_row(received):
    world, name = frozen(), f"published to {received.url}"
    received.answers += [503] * (len(PAUSES) + 1)
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    first = opened_at()
    assert [*first] == [f"failing:watch:{received.url}"]
    for number, pause in enumerate(PAUSES):
        assert len(received.answers) == len(PAUSES) - number
        later(world, pause - SECOND)
        world.tick()
        assert len(received.answers) == len(PAUSES) - number, "the pause is not over"
        later(world, SECOND)
        world.tick()
        assert opened_at() == first, "the alert stays open, in ticks that do not try the sink, too"
    (row,) = run("ls")
    assert (row["subscription"], row["kind"], row["waiting"], row["dead"]) == (name, "sink", None, 0)
    assert "it answered with 503" in row["error"]
    assert row["since"] == min(first.values()).isoformat()
    (failure,) = run("ls", name)
    assert (failure["tries"], failure["partition"], failure["transition"]) == (9, SUMS, "START")
    assert "kind" in CliRunner().invoke(app, ["subscriptions", "ls"]).stdout
    later(world, LONGEST_PAUSE)
    world.tick()
    assert received.told == [("START", SUMS), ("COMPLETE", SUMS)]
    assert (run("ls"), opened_at()) == ([], {})


def test_a_refused_event_of_lineage_waits_for_a_person_who_skips_it_alone(received, tmp_path, monkeypatch):
    world, name = frozen(), f"published to {received.url}"
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    received.answers += [201, 201, *[422] * outbox.REFUSALS]
    world.run_until_idle()
    before = [*received.told]
    assert before == [("START", SUMS), ("COMPLETE", SUMS)]
    with pytest.raises(InvalidName, match="no event waits for a person"):
        run("drop", name)
    for _ in range(outbox.REFUSALS + 1):  # The last tick would send the event again.
        later(world, LONGEST_PAUSE)
        world.tick()
    assert (received.answers, received.told) == ([], before), "accepted events are not repeated"
    assert [*opened_at()] == [f"failing:watch:{received.url}|person"]
    (failure,) = run("ls", name)
    assert (failure["person"], failure["partition"], failure["transition"]) == (True, SUMS, "START")
    (tmp_path / "with_a_feed.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "with_a_feed", raising=False)
    ended = CliRunner().invoke(app, ["run", "-m", "with_a_feed"])
    assert ended.exit_code == 3
    assert f"feed-assets subscriptions retry 'published to {received.url}'" in ended.stdout
    skipped = run("drop", name)
    assert (skipped["dropped"], skipped["job"], skipped["transition"]) == (1, SUMS, "START")
    assert skipped["number"] == failure["sequence"]
    world.tick()
    assert received.told == [*before, ("COMPLETE", SUMS)]
    assert received.events[-1]["run"]["runId"] == skipped["run"]
    assert (run("ls"), opened_at()) == ([], {})


def test_a_retry_sends_a_refused_event_at_the_next_tick(received):
    world, name = frozen(), f"published to {received.url}"
    received.answers += [404] * outbox.REFUSALS
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    for _ in range(outbox.REFUSALS):
        later(world, LONGEST_PAUSE)
        world.tick()
    assert received.told == []
    assert run("retry", name) == {"subscription": name, "retried": 1}
    world.tick()
    assert received.told == [("START", SUMS), ("COMPLETE", SUMS)]
    with pytest.raises(InvalidName, match="the last try of the sink 'published to openlineage"):
        run("retry", name)


def test_a_sink_of_batches_skips_nothing_and_goes_on_when_it_is_there_again(setting, tmp_path):
    url = f"sqlite:///{tmp_path / 'away' / 'team.db'}#events"
    world, name = frozen(), f"published to {url}"
    setting(url)
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    for _ in range(outbox.REFUSALS):
        later(world, LONGEST_PAUSE)
        world.tick()
    (row,) = run("ls")
    assert (row["dead"], row["subscription"]) == (0, name), "no person is needed, because nothing can be skipped"
    (failure,) = run("ls", name)
    assert (failure["partition"], failure["transition"], failure["person"]) == ("", "", False)
    with pytest.raises(InvalidName, match="its consumers read the events in order"):
        run("drop", name)
    (tmp_path / "away").mkdir()
    world.tick()
    assert run("ls") == [row]
    run("retry", name)
    world.tick()
    assert (run("ls"), opened_at()) == ([], {})


class Killed(BaseException):
    pass


def killed(*_arguments):
    raise Killed


@pytest.mark.parametrize("kind", ["folder", "lineage"])
def test_a_kill_between_publication_and_position_repeats_at_most_lineage(kind, received, setting, home, monkeypatch):
    setting(received.url if kind == "lineage" else "blackboard:out")
    world = frozen()
    with monkeypatch.context() as patch:
        patch.setattr(subscriptions, "advance", killed)
        world.drop(RAW, DAY, rows(1))
        with pytest.raises(Killed):
            world.run_until_idle()
    assert run("ls") == []
    first = [*received.events]
    world.run_until_idle()
    world.tick()
    lines = [line for file in (home / "blackboard" / "out").glob("*") for line in file.read_text().splitlines()]
    assert len(lines) == len({json.loads(line)["sequence"] for line in lines})
    assert (len(lines) > 0, len(first) > 0) == (kind == "folder", kind == "lineage")
    assert received.events[len(first) : 2 * len(first)] == first


def test_a_failure_ends_also_if_another_process_has_published_what_was_left(received):
    world, name = frozen(), f"published to {received.url}"
    received.answers += [503]
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    with open_ledger(settings().ledger).write() as connection:
        subscriptions.advance(connection, name, 10**6)
    later(world, LONGEST_PAUSE)
    world.tick()
    assert (run("ls"), opened_at(), received.told) == ([], {}, [])


def test_a_kill_after_the_position_has_moved_leaves_no_failure(received, monkeypatch):
    world = frozen()
    received.answers += [503]
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert len(run("ls")) == 1
    monkeypatch.setattr(publishing, "_strangers", lambda *_: killed() if received.told else [])
    later(world, LONGEST_PAUSE)
    with pytest.raises(Killed):
        world.tick()
    assert (len(received.told), run("ls")) == (2, [])


def test_reconcile_does_not_wait_for_the_end_of_a_pause(received):
    world = frozen()
    received.answers += [503]
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    graph, services = Graph(world.definitions.resolve_asset_graph()), Services.of(settings())
    publish = partial(publish_events, services, graph, world.instance, lambda: False, now=world.now())
    assert [*publish()] == [received.url]
    assert received.told == []
    assert publish(again=True) == {}
    assert received.told == [("START", SUMS), ("COMPLETE", SUMS)]


@pytest.fixture
def ledger(home):
    opened = open_ledger(settings().ledger)
    yield opened
    opened.engine.dispose()


def tried(monkeypatch):
    """Return a list of the notices that channels try from now on."""
    tries, in_time = [], alerts._in_time
    monkeypatch.setattr(
        alerts, "_in_time", lambda channel, notice, *rest: (tries.append(notice.name), in_time(channel, notice, *rest))
    )
    return tries


def hooked(url):
    return {"webhook": channels(Settings(alert_webhook=SecretStr(url), alert_secret=SecretStr(SECRET)))["webhook"]}


def test_a_channel_that_is_down_has_growing_pauses_and_gets_the_last_state(ledger, hook, monkeypatch):
    tries, name = tried(monkeypatch), "alerts to webhook"
    nowhere = hooked(Receiver(f"http://127.0.0.1:{free_ports(1)[0]}/hook").url)
    for alert in ("late:a", "late:b"):
        raise_alert(ledger, alert, "nothing has come", NOW)
    now = NOW
    deliver(ledger, nowhere, now, lambda: False)
    for pause, alert in zip(PAUSES, cycle(["late:b", "late:a"])):  # No alert keeps the other one away.
        tries.clear()
        deliver(ledger, nowhere, now + pause - SECOND, lambda: False)
        assert tries == [], "the pause is not over"
        now += pause
        deliver(ledger, nowhere, now, lambda: False)
        assert tries == [alert], "one notice is tried"
    (row,) = run("ls")
    assert (row["subscription"], row["kind"], row["since"]) == (name, "alert channel", NOW.isoformat())
    assert "gave no answer" in row["error"]
    with pytest.raises(InvalidName, match="each alert is sent until the channel accepts it"):
        run("drop", name)
    for at in (now, now + SECOND):
        resolve(ledger, "late:a", at)
        raise_alert(ledger, "late:a", f"again at {at}", at)
    assert run("retry", name) == {"subscription": name, "retried": 1}
    deliver(ledger, hooked(hook.url), now + timedelta(days=9999), lambda: False)
    assert sorted(hook.states) == [("late:a", "opened"), ("late:b", "opened")]
    assert (run("ls"), undelivered_alerts(ledger, "webhook")) == ([], [])


def test_a_refused_alert_has_a_pause_of_its_own_and_never_waits_for_a_person(ledger, hook):
    hook.answers += [400, 204] + [400] * outbox.REFUSALS
    for alert in ("late:a", "late:b"):
        raise_alert(ledger, alert, "nothing has come", NOW)
    for number in range(outbox.REFUSALS + 1):
        deliver(ledger, hooked(hook.url), NOW + number * LONGEST_PAUSE, lambda: False)
    assert [name for name, _ in hook.states] == ["late:a", "late:b", *["late:a"] * outbox.REFUSALS]
    (failure,) = run("ls", "alerts to webhook")
    assert (failure["partition"], failure["transition"], failure["person"]) == ("late:a", "opened", False)
    assert failure["tries"] == outbox.REFUSALS + 1
    with pytest.raises(InvalidName, match="nothing of late:b waits for 'alerts to webhook'"):
        run("retry", "alerts to webhook", "late:b")
    assert run("retry", "alerts to webhook", "late:a")["retried"] == 1
    deliver(ledger, hooked(hook.url), NOW + timedelta(days=9999), lambda: False)
    assert (run("ls"), undelivered_alerts(ledger, "webhook")) == ([], [])


def test_a_failure_of_an_alert_that_is_delivered_is_removed_after_a_kill(ledger, hook, monkeypatch):
    hook.answers += [400]
    raise_alert(ledger, "late:a", "nothing has come", NOW)
    deliver(ledger, hooked(f"http://127.0.0.1:{free_ports(1)[0]}/hook"), NOW - LONGEST_PAUSE, lambda: False)
    deliver(ledger, hooked(hook.url), NOW, lambda: False)
    (failure,) = run("ls", "alerts to webhook")
    assert "answered with 400" in failure["error"], "a channel that answers is not down any more"
    with monkeypatch.context() as patch:
        patch.setattr(alerts, "remove", killed)
        with pytest.raises(Killed):
            deliver(ledger, hooked(hook.url), NOW + LONGEST_PAUSE, lambda: False)
    assert len(run("ls")) == 1
    deliver(ledger, hooked(hook.url), NOW + LONGEST_PAUSE, lambda: False)
    assert (run("ls"), len(hook.posted)) == ([], 2)


@each_case("name", ["published to folder", "alerts to webhook"])
def test_a_subscription_cannot_have_the_name_of_a_sink_or_a_channel(name):
    assert outbox.kind_of(name) != "subscription"
    with pytest.raises(InvalidDefinition, match="name"):
        on_change(raw_feed(), name=name, to=Webhook("env:CACHE_URL", "env:CACHE_SECRET"))

"""`feed-assets kafka`: lag, signals and dead letters of a topic, over a real broker."""

import json
import re

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.errors import InvalidName
from feed_assets.ledger import event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.kafka_topics import POISON
from feed_assets_tests.support.topic_projects import chunk, kafka_world

pytestmark = pytest.mark.usefixtures("home")

LOCATION = """
import dagster as dg
from feed_assets import kafka_topic, with_automation
defs = with_automation(dg.Definitions(assets=[kafka_topic("ads/clicks", topic="{topic}", key=["id"])]))
"""


@pytest.fixture
def topic(broker, registry, tmp_path, monkeypatch):
    def setting(**values):
        for name, value in values.items():
            monkeypatch.setenv(f"FEED_ASSETS_{name.upper()}", value)
        settings.cache_clear()

    with kafka_world(broker, registry, setting) as made:
        made.create()
        module = location(made, tmp_path, monkeypatch)
        monkeypatch.setattr("feed_assets.cli.loaded_location.module_of_project", lambda: (module, tmp_path))
        yield made


def said(*args):
    return CliRunner().invoke(app, ("kafka", *args), catch_exceptions=False).stdout


def found(*args):
    return json.loads(said(*args, "--json"))


def test_lag_is_printed_by_partition_for_one_or_all_declared_topics(topic):
    topic.produce(3)
    chunk(topic)
    topic.produce(2)
    (row,) = found("lag", topic.name)
    assert row.pop("since") is not None
    assert row == {"topic": topic.name, "partition": 0, "end": 5, "signalled": 3, "behind": 2}
    assert [each["behind"] for each in found("lag")] == [2]


def test_a_missing_topic_hides_no_other_topic(topic, tmp_path, monkeypatch):
    from feed_assets.core.errors import NoTopic

    topic.produce(3)
    text = LOCATION.replace("assets=[", 'assets=[kafka_topic("a/none", topic="none", key=["id"]), ')
    (tmp_path / "two.py").write_text(text.format(topic=topic.name))
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(app, ("kafka", "lag", "-m", "two"))
    assert topic.name in done.stdout
    assert isinstance(done.exception, NoTopic)


@pytest.mark.parametrize("command", [["lag"], ["signals"], ["dead-letters"], ["dead-letters", "--drop", "--apply"]])
@pytest.mark.parametrize("name", ["{}s", "{}-signals", "ads/clicks"])
def test_an_undeclared_topic_name_is_refused_with_the_nearest_one(command, name, topic):
    wrong = name.format(topic.name)
    near = f"no topic '{wrong}' is declared here (is {topic.name} meant?): expected one of {topic.name}."
    with pytest.raises(InvalidName, match=re.escape(near)):
        said(*command, wrong)


def location(topic, folder, monkeypatch):
    module = f"location_{abs(hash(topic.name))}"
    (folder / f"{module}.py").write_text(LOCATION.format(topic=topic.name))
    monkeypatch.syspath_prepend(str(folder))
    return module


def test_reconcile_reads_the_signals_of_the_partitions_that_dagster_has(topic, tmp_path, monkeypatch):
    topic.produce(3)
    chunk(topic)
    module = location(topic, tmp_path, monkeypatch)
    (problem,) = reconciled(module)["problems"]
    assert "Dagster does not have ads/clicks/0 as partitions yet" in problem
    with open_instance() as instance:
        instance.add_dynamic_partitions(f"kafka/{topic.name}", ["0"])
    assert reconciled(module)["problems"] == []
    with open_ledger(settings().ledger).read() as connection:
        assert [int(each.marker) for each in event_store.newest(connection, 10)] == [3]


def reconciled(module):
    return json.loads(CliRunner().invoke(app, ("reconcile", "-m", module, "--json"), catch_exceptions=False).stdout)


def test_the_last_signals_are_listed_newest_first(topic):
    assert said("signals", topic.name) == f"no chunk of {topic.name} is signalled yet\n"
    topic.produce(25)
    chunk(topic)
    rows = found("signals", topic.name, "-n", "2")
    assert [(each["first_offset"], each["last_offset"], each["records"]) for each in rows] == [
        (20, 24, 5),
        (10, 19, 10),
    ]
    assert rows[0]["path"] == topic.signals()[-1].path


def test_dead_letters_are_listed_and_replayed_only_after_confirmation(topic):
    assert said("dead-letters", topic.name) == f"{topic.name} has no dead letters\n"
    topic.send(POISON)
    chunk(topic)
    (row,) = found("dead-letters", topic.name)
    assert (row["partition"], row["offset"], row["open"]) == (0, 0, True)
    assert row["reason"].startswith("the value begins with byte 110")
    assert said("dead-letters", topic.name, "--replay").endswith("--apply produces all open ones again\n")
    assert len(topic.messages()) == 1
    assert found("dead-letters", topic.name, "--replay", "--apply") == {"topic": topic.name, "replayed": 1}
    assert found("dead-letters", topic.name, "--replay", "--apply") == {"topic": topic.name, "replayed": 0}
    assert len(topic.messages()) == 2
    assert [each["open"] for each in found("dead-letters", topic.name)] == [False]


def test_dead_letters_that_are_dropped_are_not_produced_again(topic):
    topic.send(POISON)
    chunk(topic)
    assert found("dead-letters", topic.name, "--drop", "--apply") == {"topic": topic.name, "dropped": 1}
    assert (len(topic.messages()), [each["open"] for each in found("dead-letters", topic.name)]) == (1, [False])
    with pytest.raises(InvalidName, match="expected one of the two"):
        said("dead-letters", topic.name, "--replay", "--drop")

"""`doctor`: its result for each thing that runs need; no failure prevents the other checks."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.loaded_location import prepare
from feed_assets.core.errors import InvalidSetting
from feed_assets.core.target_room import Probe
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import target_probes
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.s3_notifications import NotifyingBucket, notifying_bucket
from feed_assets_tests.support.servers import PostgreSQL
from feed_assets_tests.support.target_doubles import http_double, master, worker


def looked(*args: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code, and by subject the state and its text."""
    result = CliRunner().invoke(app, ["doctor", "-m", "feed_assets.definitions", "--json", *args])
    assert result.exit_code in (0, 1), result.exception
    return result.exit_code, {each["what"]: (each["state"], each["said"]) for each in json.loads(result.stdout)}


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


@pytest.mark.usefixtures("spark")
def test_doctor_reports_ok_for_a_complete_home_and_leaves_nothing_behind(home: Path) -> None:
    prepare(home)
    open_ledger(settings().ledger)
    board = open_board(settings())
    code, found = looked()
    assert {name: state for name, (state, _) in found.items() if state != "ok"} == {}, found
    assert code == 0
    assert found["Java"][1].startswith("Java ")
    assert found["Spark"][1].startswith("Spark 4")
    assert "both see the same files" in found["blackboard by Spark"][1]
    assert found["ledger"][1].endswith("writable")
    assert "does not run" in found["Dagster's daemon"][1]
    assert "foreign feeds" in found["module"][1]
    assert "blackboard 0." in found["clocks"][1]
    assert board.files("") == ()


def test_doctor_reports_a_missing_home_and_does_not_create_it(
    home: Path, no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = home / "missing"
    monkeypatch.setenv("DAGSTER_HOME", str(missing))
    settings.cache_clear()
    code, found = looked()
    assert (code, found["Java"][0]) == (1, "FAILED")
    assert "Install a Java 17 runtime" in found["Java"][1]
    doubtful = ["blackboard", "blackboard by Spark", "ledger", "Dagster's home", "Dagster's daemon"]
    assert [found[name][0] for name in doubtful] == ["WARN"] * 5
    assert found["Dagster's home"][1].startswith(f"{missing} does not exist yet")
    assert found["module"][0] == "ok"
    assert not missing.exists()


def test_doctor_prints_one_line_for_each_failure_and_continues(
    home: Path, no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(home)
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", (home / "gone").as_uri())
    monkeypatch.setenv("FEED_ASSETS_LEDGER", "postgresql+psycopg://nobody@127.0.0.1:9/none")
    settings.cache_clear()
    result = CliRunner().invoke(app, ["doctor", "-m", "no_such_module"])
    lines = {line.partition("  ")[0]: line for line in result.stdout.splitlines()}
    assert (result.exit_code, len(lines)) == (1, 12), result.stdout
    assert "FAILED" in lines["ledger"]
    assert "No blackboard at" in lines["blackboard"]
    assert "no_such_module" in lines["module"]
    assert [line for line in lines.values() if "Traceback" in line] == []


@pytest.mark.parametrize("prefix", ["ads", "_feed_assets/claims"])
def test_a_sink_where_a_feed_lives_is_named(
    home: Path, no_java: None, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", f"blackboard:{prefix}")
    settings.cache_clear()
    if prefix == "ads":
        state, said = looked()[1]["module"]
        assert (state, ". Name another folder" in said) == ("FAILED", True)
    else:
        with pytest.raises(InvalidSetting, match="not below _feed_assets"):
            settings()


def test_a_blackboard_that_refuses_access_is_named(
    home: Path, no_java: None, s3_env, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", f"s3://{bucket}/doctor")
    monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", s3_env.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_env.reader_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_env.reader_secret)
    settings.cache_clear()
    state, said = looked()[1]["blackboard"]
    assert state == "FAILED"
    assert "access refused" in said


def test_doctor_warns_of_a_wrong_clock_and_a_full_disk(
    home: Path, no_java: None, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.database()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA fast")
        body = "SELECT pg_catalog.now() + interval '1 minute'"
        connection.exec_driver_sql(f"CREATE FUNCTION fast.now() RETURNS timestamptz LANGUAGE sql AS $${body}$$")
        connection.exec_driver_sql(f"ALTER DATABASE {sa.make_url(url).database} SET search_path = fast, pg_catalog")
    engine.dispose()
    monkeypatch.setenv("FEED_ASSETS_LEDGER", url)
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", "file:///proc")  # which never has a free byte
    settings.cache_clear()
    found = looked()[1]
    assert [found[name][0] for name in ("clocks", "disks")] == ["WARN", "WARN"]
    assert found["clocks"][1].startswith("differences from this machine's clock: ledger 60.")
    assert "0.0 GB at /proc" in found["disks"][1]


def test_blackboards_of_others_are_listed_and_data_centers_are_written(
    home: Path, no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there" / "ads").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    boards = {name: {"url": (tmp_path / name).as_uri()} for name in ("there", "gone", "ours")}
    centers = {name: {**each, "datasets": ["*"]} for name, each in boards.items()}
    boards["ours"]["writable"] = True
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps(boards))
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps(centers))
    settings.cache_clear()
    _, found = looked()
    said = f"{boards['there']['url']}: an object was written, listed, read and deleted"
    assert found["data center there"] == ("ok", said)
    assert found["data center gone"][0] == "FAILED"
    assert found["data center ours"][0] == "FAILED"
    assert "has our own blackboard" in found["data center ours"][1]
    assert found["blackboard there"] == ("ok", f"{boards['there']['url']}: can be listed")
    assert found["blackboard gone"][0] == "FAILED"
    assert "does not exist" in found["blackboard gone"][1]
    assert [path.name for path in tmp_path.glob("there/**/*") if path.is_file()] == []


TOPIC = """
import dagster as dg
from feed_assets import kafka_topic, warehouse_table
defs = dg.Definitions(assets=[kafka_topic("ads/clicks", topic="{}", key=["id"]{})])
"""


@pytest.fixture
def kafka(home: Path, no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that checks Kafka with some settings, for one declared topic."""

    def look(topic: str = "clicks", options: str = "", /, **values: str) -> dict[str, tuple[str, str]]:
        for name, value in values.items():
            monkeypatch.setenv(f"FEED_ASSETS_{name.upper()}", value)
        settings.cache_clear()
        module = f"location_{abs(hash(topic + options))}"
        (tmp_path / f"{module}.py").write_text(TOPIC.format(topic, options))
        monkeypatch.syspath_prepend(str(tmp_path))
        code, found = looked("-m", module)
        assert code == 1, "there is no Java"
        return {name: found[name] for name in ("Kafka", "schema registry", "topics") if name in found}

    return look


def test_doctor_names_a_warehouse_that_the_settings_lack(home, no_java, tmp_path, monkeypatch) -> None:
    loaded = '), warehouse_table("x/clicks", topic=kafka_topic("ads/clicks", topic="t", key=["id"]), warehouse="x"'
    (tmp_path / "misspelt_warehouse.py").write_text(TOPIC.format("t", loaded))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "there is no warehouse 'x'" in looked("-m", "misspelt_warehouse")[1]["module"][1]


def test_doctor_omits_kafka_without_kafka_settings(kafka) -> None:
    assert kafka() == {}


def test_doctor_checks_broker_registry_and_declared_topics(kafka, broker, registry) -> None:
    conf = json.dumps({"bootstrap.servers": broker.servers})
    found = kafka(f"none.{uuid4()}", kafka=conf, kafka_registry=registry.url)
    assert found["Kafka"][0] == found["schema registry"][0] == "ok", found
    assert found["Kafka"][1].startswith(f"{broker.servers}: answers, 1 brokers, ")
    assert found["topics"][0] == "FAILED"
    assert re.match("declared topics that the broker does not have: none.* Create them, or", found["topics"][1])
    name = f"there.{uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.create_topics([NewTopic(name, 1)])[name].result(120)
    assert kafka(name)["topics"] == ("ok", "1 declared, all of them at the broker")
    assert "FEED_ASSETS_MASK_KEY is not set" in kafka(name, ', mask={"email": "hash"}')["topics"][1]


def test_doctor_reports_a_silent_broker_and_registry_in_time(kafka, monkeypatch) -> None:
    monkeypatch.setattr("feed_assets.cli.kafka_looks.SECONDS", 0.5)
    found = kafka(kafka='{"bootstrap.servers": "127.0.0.1:1"}', kafka_registry="http://127.0.0.1:1")
    assert [state for state, _ in found.values()] == ["FAILED"] * 3
    assert "Connection refused" in found["Kafka"][1]
    assert "Check bootstrap.servers" in found["Kafka"][1]
    assert "Check the URL, and that the registry answers." in found["schema registry"][1]


def test_doctor_names_a_missing_broker_or_registry_setting(kafka) -> None:
    assert "FEED_ASSETS_KAFKA_REGISTRY is not set" in kafka(kafka='{"client.id": "x"}')["schema registry"][1]
    assert "FEED_ASSETS_KAFKA has no bootstrap.servers" in kafka()["Kafka"][1]


@pytest.fixture
def rung(home: Path, no_java: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifyingBucket]:
    """Provide a blackboard whose bucket notifies a queue, and another one whose queue does not exist."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "x")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with notifying_bucket("lake") as made:
        partner = {"partner": {"url": "s3://partner", "queue": f"{made.url}-gone", "endpoint": "http://127.0.0.1:9"}}
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", "s3://lake")
        monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARD_QUEUE", made.url)
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps(partner))
        settings.cache_clear()
        yield made


def test_doctor_checks_each_queue_and_warns_without_a_dead_letter_queue(rung: NotifyingBucket) -> None:
    rung.write("t/raw/v1.0/20260101.000000/_SUCCESS")
    waiting = rung.left
    _, found = looked()
    state, said = found["queue of the blackboard"]
    assert (state, said.partition(";")[0]) == ("WARN", f"{rung.url}: {waiting} messages wait, 0 are in process")
    assert "Set a RedrivePolicy" in said
    assert found["queue of partner"][0] == "FAILED"
    assert "does not exist" in found["queue of partner"][1]
    rung.have_dead_letters()
    assert looked()[1]["queue of the blackboard"][0] == "ok"
    assert rung.left == waiting, "nothing was received"


def test_doctor_has_a_line_for_each_target_free_or_offline_and_shows_no_token(
    home: Path, no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_double(**{"/json/": master(worker(8, 3))}) as double:
        at = {"kind": "standalone", "master": "spark://h:7077", "url": double.url}
        silent = {"kind": "connect", "remote": "sc://127.0.0.1:1/;token=secret-1", "cores": 2, "memory": "2g"}
        targets = {"etl-a": at, "here": {"kind": "local", "cores": 4, "memory": "8g"}, "etl-b": silent}
        monkeypatch.setenv("FEED_ASSETS_TARGETS", json.dumps(targets))
        monkeypatch.setenv("FEED_ASSETS_LEDGER", f"sqlite:///{home / 'new.db'}")
        settings.cache_clear()
        alone = looked()[1]
        assert not (home / "new.db").exists()
        ledger = open_ledger(settings().ledger)
        long_ago = datetime(2026, 1, 5, 12, 3, tzinfo=UTC)
        target_probes.keep(ledger, {"etl-b": Probe(long_ago, offline="no answer in 2 s", since=long_ago)})
        code, found = looked()
    assert found["target etl-a"] == (
        "ok",
        "standalone, 5 of 8 cores and 15 GiB of 15 GiB free, 0 applications wait there",
    )
    assert found["target here"][1].startswith("local, 4 of 4 cores and 8 GiB of 8 GiB free")
    assert (code, found["target etl-b"][0]) == (1, "FAILED")
    assert (
        "connect, offline since 12:03 UTC (no answer from 127.0.0.1:1 in 2 s): expected an answer."
        in found["target etl-b"][1]
    )
    assert "FEED_ASSETS_TARGETS" in found["target etl-b"][1]
    assert (alone["target etl-a"], alone["target etl-b"][0]) == (found["target etl-a"], "FAILED")
    assert "secret-1" not in str((alone, found))

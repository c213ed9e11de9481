"""The layout of deploy/ as local processes: each is ready by its own check, and a kill is seen.

A file becomes a partition, and a message a row.
"""

import json
from datetime import UTC, datetime

import psycopg
import pytest
import requests

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets_tests.support.installation import STANDS_FOR, Neighbours, installation
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.servers import wait_until

PROJECT = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, kafka_topic, warehouse_table, with_automation

one = dg.StaticPartitionsDefinition(["one"])
raw = foreign_feed("lake/raw/v1.0", format="csv", schema="k string, n int", partitions_def=one)
pushed = foreign_feed(
    "lake/pushed/v1.0", format="json", schema="id string, at timestamp", intake="push", event_time="at",
    partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"),
)

@feed_asset("lake/made/v1.0", inputs={"rows": raw}, partitions_def=one)
def made(rows):
    return rows.selectExpr("k", "n + 1 AS n")

clicks = kafka_topic("web/clicks", topic="TOPIC", key=["id"], operation="header:op", seconds=0.5)
loaded = warehouse_table("main/clicks", topic=clicks, warehouse="main")

defs = with_automation(dg.Definitions(assets=[raw, pushed, made, clicks, loaded]))
"""
ALL_BUT_THE_DAEMON = ("receiver", "spark-worker-2", "metrics", "code", "web", "connector", "loader")
"""Services that are killed. Dagster keeps heartbeats of a daemon that was killed."""


def fetched(url, **headers):
    """Return status and text of an answer."""
    answer = requests.get(url, headers=headers, timeout=60)
    return answer.status_code, answer.text


@pytest.fixture(scope="module")
def clicks(tmp_path_factory, broker, registry):
    with World.of(broker, registry, tmp_path_factory.mktemp("chunks").as_uri()) as made:
        made.create()
        yield made


@pytest.fixture(scope="module")
def lake(tmp_path_factory, postgresql, s3a_jars, clicks, broker, registry):
    folder = tmp_path_factory.mktemp("installation")
    (folder / "lake_project.py").write_text(PROJECT.replace("TOPIC", clicks.name))
    with installation(folder, "lake_project", Neighbours(postgresql, broker, registry, s3a_jars)) as running:
        yield running


def rows(lake, clicks):
    """Return the numbers of the messages in the warehouse's table. The table is made with the first load."""
    with lake.connection() as connection:
        if connection.execute("SELECT to_regclass(%s)", [f'"{clicks.name}"']).fetchone() == (None,):
            return set()
        table = psycopg.sql.Identifier(clicks.name)
        return {number for (number,) in connection.execute(psycopg.sql.SQL("SELECT n FROM {}").format(table))}


def test_a_partition_is_built_through_the_processes_of_the_layout(lake, monkeypatch):
    assert {*lake.processes} == {*lake.layout.services} - {*STANDS_FOR}, "each has passed its own check"
    for name, value in lake.environment.items():
        monkeypatch.setenv(name, value)
    board = Blackboard.open("s3://lake", endpoint=lake.environment["FEED_ASSETS_S3_ENDPOINT"])
    raw, made = (Partition(Feed.parse(f"lake/{name}/v1.0"), "one") for name in ("raw", "made"))
    publish(board, raw, {"part-1.csv": b"k,n\na,1\nb,2\n"}, datetime.now(UTC))
    wait_until(lambda: read.latest(board, made).update is not None, f"lake/made; see {lake.folder}/daemon.log", 300, 1)
    status, text = fetched(f"http://127.0.0.1:{lake.port('metrics')}/metrics")
    assert status == 200
    assert [line for line in text.splitlines() if line.startswith("feed_assets_up")] == [
        'feed_assets_up{part="ledger"} 1.0',
        'feed_assets_up{part="targets"} 1.0',
        'feed_assets_up{part="dagster"} 1.0',
        'feed_assets_up{part="services"} 1.0',
    ]
    assert 'feed_assets_daemon_heartbeat_seconds{daemon="SENSOR"}' in text
    assert 'feed_assets_sensor_tick_failed{sensor="feeds"} 0.0' in text


def test_the_web_ui_serves_the_code_location_to_who_has_the_token(lake):
    url = f"http://127.0.0.1:{lake.port('web')}/graphql"
    cookie = {"Cookie": f"feed_assets_{lake.port('web')}={lake.token}"}
    query = {"query": "{repositoriesOrError {... on RepositoryConnection {nodes {location {name}}}}}"}
    nodes = requests.post(url, json=query, headers=cookie, timeout=60).json()["data"]["repositoriesOrError"]["nodes"]
    assert nodes == [{"location": {"name": "feed_assets"}}]
    assert fetched(f"http://127.0.0.1:{lake.port('web')}/server_info")[0] == 403
    assert lake.token not in lake.log("web")


def test_lines_of_our_services_are_json(lake):
    lines = [json.loads(line) for name in ("receiver", "metrics") for line in lake.log(name).splitlines()]
    assert {"receive", "metrics"} <= {each["service"] for each in lines}


def test_sparks_master_takes_no_jobs_from_who_has_no_secret(lake):
    """Since Spark 4.1 its REST server starts by default, and asks nobody for the secret."""
    assert "I have been elected leader" in lake.log("spark-master")
    assert "REST server" not in lake.log("spark-master")


def test_a_message_becomes_a_row_and_killed_services_are_not_ready_until_they_start_again(lake, clicks):
    clicks.produce()
    wait_until(lambda: rows(lake, clicks) == {0}, f"a row; see {lake.folder}/loader.log", pause=0.5)
    lake.kill(*ALL_BUT_THE_DAEMON)
    assert [name for name in ALL_BUT_THE_DAEMON if not lake.why_not_ready(name)] == []
    clicks.produce()
    lake.start(*ALL_BUT_THE_DAEMON)
    wait_until(lambda: rows(lake, clicks) == {0, 1}, f"the second row; see {lake.folder}/loader.log", pause=0.5)

"""A Glue catalog (moto) that follows publications of intake: a table for a feed, a partition for a batch."""

from datetime import UTC, datetime

import boto3
import dagster as dg
import pytest
import sqlalchemy as sa
from moto import mock_aws

from feed_assets import Pull, foreign_feed
from feed_assets.core.errors import SinkUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.deliveries.outbox import FIRST_PAUSE
from feed_assets.feeds.write import invalidate
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import subscription
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.sources.glue import GlueSink, GlueTable, Registered, glue_type
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import harness, later

FEED = "partners/women/v1.0"
SCHEMA = "id string, at timestamp, n long, price decimal(10,2)"
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
BATCH = Partition(Feed.parse(FEED), "2026-01-01-05:00/one")


@pytest.fixture
def glue(home, monkeypatch):
    """Provide a client of the catalog that the sink `glue:raw` writes."""
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", "glue:raw")
    settings.cache_clear()
    with mock_aws():
        yield boto3.client("glue")
    sum_projects.opened.close()


def world(schema: str = SCHEMA, hours: dg.PartitionsDefinition = HOURS):
    intake = Pull("women", "%Y-%m-%d/%H/*.csv", prefix="out")
    women = foreign_feed(FEED, schema=schema, partitions_def=hours, intake=intake)
    return harness(women, sources={"women": "memory://"})


def published(batch: Partition = BATCH, text: str = "id,at,n,price\n") -> str:
    services = Services.of(settings())
    return publish(services, BatchContent(batch, {f"{len(text)}.csv": text.encode()}), "a test").id


def partitions(glue) -> dict[tuple[str, ...], str]:
    found = glue.get_partitions(DatabaseName="raw", TableName="partners_women_v1_0")["Partitions"]
    return {tuple(each["Values"]): each["StorageDescriptor"]["Location"] for each in found}


def location(update_id: str, batch: Partition = BATCH) -> str:
    return f"{settings().blackboard}/{batch.path}/{update_id}/"


def watched(tested) -> None:
    tested.tick()


def told() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_a_glue_table_follows_the_schema_and_partitions_the_newest_valid_data(glue):
    tested, first = world(), published()
    watched(tested)
    table = glue.get_table(DatabaseName="raw", Name="partners_women_v1_0")["Table"]
    columns = {each["Name"]: each["Type"] for each in table["StorageDescriptor"]["Columns"]}
    assert columns == {"id": "string", "at": "timestamp", "n": "bigint", "price": "decimal(10,2)"}
    assert [each["Name"] for each in table["PartitionKeys"]] == ["date", "hour", "batch"]
    assert table["StorageDescriptor"]["Parameters"] == {"skip.header.line.count": "1"}
    assert table["Parameters"]["skip.header.line.count"] == "1"
    values = ("2026-01-01", "05", "one")
    assert partitions(glue) == {values: location(first)}
    second = published(text="id,at,n,price\n1,,,\n")
    watched(tested)
    assert partitions(glue) == {values: location(second)}


@pytest.mark.parametrize(("fmt", "key"), [("%Y%m%d%H", "2026010205"), ("%d-%m-%Y-%H:%M", "02-01-2026-05:00")])
def test_date_and_hour_are_those_of_the_partition_however_its_key_is_written(glue, fmt, key):
    tested = world(hours=dg.HourlyPartitionsDefinition(datetime(2026, 1, 1, tzinfo=UTC).strftime(fmt), fmt=fmt))
    batch = Partition(BATCH.feed, f"{key}/one")
    known, _ = published(batch), published(Partition(BATCH.feed, "no-hour/one"))
    watched(tested)
    assert partitions(glue) == {("2026-01-02", "05", "one"): location(known, batch)}
    assert not any(name.startswith("failing:watch") for name in told())


def test_a_glue_partition_moves_back_with_invalid_updates_and_goes_with_the_last(glue):
    tested, first = world(), published()
    second = published(text="id,at,n,price\n1,,,\n")
    watched(tested)
    services = Services.of(settings())
    for gone, left in ((second, {("2026-01-01", "05", "one"): location(first)}), (first, {})):
        invalidate(services.board, BATCH, gone)
        sync(services.board, services.ledger, BATCH, services.now())
        watched(tested)
        assert partitions(glue) == left


def test_repeated_events_and_earlier_positions_leave_glue_unchanged(glue):
    tested, first = world(), published()
    other = BATCH.parent.batch("two")
    second = published(other)
    watched(tested)
    expected = {("2026-01-01", "05", "one"): location(first), ("2026-01-01", "05", "two"): location(second, other)}
    assert partitions(glue) == expected
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(subscription).values(position=0))
    watched(tested)
    assert partitions(glue) == expected


def test_a_schema_that_is_another_one_is_the_tables_from_the_next_change_on(glue):
    published()
    watched(world())
    published(text="id,at,n,price,more\n")
    watched(world(f"{SCHEMA}, more int"))
    table = glue.get_table(DatabaseName="raw", Name="partners_women_v1_0")["Table"]
    assert table["StorageDescriptor"]["Columns"][-1] == {"Name": "more", "Type": "int"}


def test_a_refusing_catalog_raises_an_alert_and_is_updated_later(glue, monkeypatch):
    tested, first = world(), published()
    with monkeypatch.context() as patch:
        patch.delenv("AWS_DEFAULT_REGION")
        watched(tested)
    (said,) = [reason for name, reason in told().items() if name.startswith("failing:watch")]
    assert "Glue's database raw cannot be updated" in said
    later(tested, FIRST_PAUSE)
    watched(tested)
    assert partitions(glue) == {("2026-01-01", "05", "one"): location(first)}
    assert not any(name.startswith("failing:watch") for name in told())


@each_case(
    ("spark", "glue_name"),
    [
        ("LONG", "bigint"),
        ("dec(10,2)", "decimal(10,2)"),
        ("timestamp_ntz", "timestamp"),
        ("array<struct<long:short,b:map<string,real>>>", "array<struct<long:smallint,b:map<string,float>>>"),
        ("double", "double"),
    ],
)
def test_types_have_glues_names(spark, glue_name):
    assert glue_type(spark) == glue_name


def test_glue_without_a_region_is_reported_with_the_remedy(monkeypatch):
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    table = GlueTable("t", "id string", "json", ("date",), "s3://lake/t/")
    with pytest.raises(
        SinkUnavailable, match=r"You must specify a region\. Check region, credentials and permissions\."
    ):
        GlueSink("raw").publish([(1, Registered(table, ("2026-01-01",), None))])

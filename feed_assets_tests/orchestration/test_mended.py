"""A failed partition is retried once its function, check, schema or Spark configuration changes."""

import pytest

from feed_assets import checks, feed_asset, foreign_feed
from feed_assets.core.feeds import Feed
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.recipe import made_with
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    RAW,
    SCHEMA,
    SUMS,
    given,
    harness,
    outcomes,
    raw_feed,
    rows,
    until_given_up,
)

pytestmark = pytest.mark.usefixtures("home")


def broken(_task) -> Given:
    raise RuntimeError("broken")


def deployed(*, give=given, instance=None, schema=SCHEMA, most=100, code_version="1"):
    """Build raw -> sums as a new process would, on an existing instance if given."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=schema)
    rules = [checks.within("n", 0, most)]
    made = feed_asset(SUMS, inputs={"raw": raw}, partitions_def=DAYS, checks=rules, code_version=code_version)
    more = {"instance": instance} if instance else {}
    return harness(raw, made(lambda raw: raw), give=give, **more)


def states() -> list[str]:
    with open_ledger(settings().ledger).read() as connection:
        return [each.state for each in due.listed(connection, Feed.parse(SUMS))]


@pytest.fixture
def given_up():
    world = deployed(give=broken)
    world.drop(RAW, DAY, rows(1))
    assert outcomes(until_given_up(world)) == [("sums", DAY, False)] * 3
    assert states() == ["waits for a person"]
    return world


@pytest.mark.parametrize(
    "mended", [{"code_version": "2"}, {"schema": "k string, n bigint"}, {"most": 200}], ids=["code", "schema", "check"]
)
def test_a_given_up_partition_is_built_when_its_declaration_changes(given_up, mended):
    world = deployed(instance=given_up.instance, **mended)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert states() == []


def few(found: float) -> bool:
    return found < 5


def many(found: float) -> bool:
    return found < 500


def test_a_refused_partition_is_built_when_its_custom_check_gets_milder():
    raw = raw_feed()

    def world(passes, **more):
        check = checks.Check("few", "there are few", passes, "count(1)")
        made = feed_asset(SUMS, inputs={"raw": raw}, partitions_def=DAYS, checks=[check], code_version="1")
        failed = {"few": 7.0} if passes is few else {}
        return harness(raw, made(lambda raw: raw), give=lambda _: Given([{"k": "a"}], failed=failed), **more)

    before = world(few)
    before.drop(RAW, DAY, rows(1))
    assert outcomes(before.run_until_idle()) == [("sums", DAY, False)]
    assert outcomes(world(many, instance=before.instance).run_until_idle()) == [("sums", DAY, True)]


def test_a_changed_declaration_ends_the_pause_before_the_next_attempt():
    world = deployed(give=broken)
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert states() == ["waits for another attempt"]
    assert outcomes(deployed(instance=world.instance, code_version="2").run_until_idle()) == [("sums", DAY, True)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark_master", "local[1]"),
        ("spark_conf", '{"spark.x": "1"}'),
        ("spark_profiles", '{"big": {"spark.x": "1"}}'),
        ("spark_jars", "/jars"),
    ],
)
def test_each_spark_setting_changes_the_fingerprint_of_attempts(setting, name, value):
    before = made_with("recipe", settings())
    setting(**{name: value})
    assert made_with("recipe", settings()) != before


def test_a_given_up_partition_is_built_with_another_spark_configuration(given_up, setting):
    setting(spark_conf='{"spark.sql.shuffle.partitions": "7"}')
    assert outcomes(deployed(instance=given_up.instance).run_until_idle()) == [("sums", DAY, True)]


def test_a_new_process_with_the_same_definitions_retries_nothing(given_up):
    world = deployed(instance=given_up.instance)
    assert outcomes(world.run_until_idle()) == []
    assert states() == ["waits for a person"]


def test_attempts_count_from_one_after_a_change(given_up):
    world = deployed(give=broken, instance=given_up.instance, code_version="2")
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    assert states() == ["waits for another attempt"]


def test_a_refused_partition_is_built_when_its_check_changes():
    world = deployed()
    world.drop(RAW, DAY, rows(101))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    assert states() == ["waits for quality"]
    again = deployed(give=lambda _: Given([{"k": "a", "n": 101}]), most=200, instance=world.instance)
    assert outcomes(again.run_until_idle()) == [("sums", DAY, True)]

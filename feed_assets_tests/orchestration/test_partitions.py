from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets.core.errors import InvalidName
from feed_assets.orchestration.declare.partitions import Existence, existence, to_key, to_path
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2019, 11, 26, 12, 30, tzinfo=UTC)
DAILY = dg.DailyPartitionsDefinition("2019-11-24")
ENDED = dg.DailyPartitionsDefinition("2019-11-24", end_date="2019-11-26")
HOURLY = dg.HourlyPartitionsDefinition("2019-11-24-00:00")
ZONED = dg.HourlyPartitionsDefinition("2019-11-01-00:00", timezone="Europe/Berlin")
STATIC = dg.StaticPartitionsDefinition(["men", "women"])
DYNAMIC = dg.DynamicPartitionsDefinition(name="regions")
MULTI = dg.MultiPartitionsDefinition({"date": DAILY, "campaign": STATIC})
TWO_STATIC = dg.MultiPartitionsDefinition({"zone": dg.StaticPartitionsDefinition(["eu"]), "campaign": STATIC})


@pytest.fixture(autouse=True)
def at_noon():
    """Set Dagster's time to NOW, and add the dynamic region 'north'."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("regions", ["north"])
        with dg.partition_loading_context(NOW, instance):
            yield


@each_case(
    ("definition", "key", "path"),
    [
        (DAILY, "2019-11-24", "2019-11-24"),
        (HOURLY, "2019-11-24-23:00", "2019-11-24-23:00"),
        (STATIC, "men", "men"),
        (DYNAMIC, "north", "north"),
        (MULTI, "men|2019-11-24", "2019-11-24/men"),
        (TWO_STATIC, "men|eu", "men/eu"),
        (None, None, ""),
    ],
)
def test_a_key_and_its_path_convert_into_each_other(definition, key, path):
    assert to_path(definition, key) == path
    assert to_key(definition, path) == key


@each_case(("definition", "path"), [(None, "2019-11-24"), (MULTI, "2019-11-24"), (MULTI, "2019-11-24/men/x")])
def test_a_path_of_other_depth_is_refused(definition, path):
    with pytest.raises(InvalidName):
        to_key(definition, path)


@each_case(
    ("definition", "path", "expected"),
    [
        (DAILY, "2019-11-25", Existence.EXISTS),
        (DAILY, "2019-11-26", Existence.NOT_YET),  # today ends at midnight
        (DAILY, "2019-12-24", Existence.NOT_YET),
        (DAILY, "2019-11-23", Existence.NEVER),  # before the start
        (DAILY, "2019-11-2x", Existence.NEVER),
        (DAILY, "", Existence.NEVER),
        (ENDED, "2019-11-25", Existence.EXISTS),
        (HOURLY, "2019-11-26-11:00", Existence.EXISTS),
        (HOURLY, "2019-11-26-12:00", Existence.NOT_YET),
        (ZONED, "2019-11-26-12:00", Existence.EXISTS),  # 13:30 in Berlin: the hour from 12 is over
        (ZONED, "2019-11-26-13:00", Existence.NOT_YET),
        (STATIC, "men", Existence.EXISTS),
        (STATIC, "children", Existence.NEVER),
        (DYNAMIC, "north", Existence.EXISTS),
        (DYNAMIC, "south", Existence.NOT_YET),
        (MULTI, "2019-11-25/men", Existence.EXISTS),
        (MULTI, "2019-11-26/men", Existence.NOT_YET),
        (MULTI, "2019-11-26/children", Existence.NEVER),
        (MULTI, "2019-11-25/children", Existence.NEVER),
        (MULTI, "2019-11-25", Existence.NEVER),
        (MULTI, "men/2019-11-25", Existence.NEVER),
        (None, "", Existence.EXISTS),
        (None, "2019-11-25", Existence.NEVER),
    ],
)
def test_a_path_exists_or_not_yet_or_never(definition, path, expected):
    assert existence(definition, path, NOW) is expected


def test_a_day_becomes_a_partition_when_it_is_over():
    midnight = datetime(2019, 11, 27, tzinfo=UTC)
    with dg.partition_loading_context(midnight):
        assert existence(DAILY, "2019-11-26", midnight) is Existence.EXISTS

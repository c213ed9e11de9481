"""The check that a dataset is up to date: tick by tick, without runs."""

from feed_assets import Late
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, rows, short

WAITS = Late(growth=0.9)
"""Policy by which late data wait."""


def world():
    made = short(late=WAITS)
    for day in (DAY, NEXT_DAY):
        made.drop(RAW, day, rows(*range(1, 8)))
    made.run_until_idle()
    return made


def results(world_):
    """Return the sensor's results of the check, newest first: status, description, partitions of its table."""
    keys = world_.definitions.resolve_asset_graph().asset_check_keys
    (key,) = [each for each in keys if (each.asset_key.to_user_string(), each.name) == ("t/sums", "stale")]
    found = world_.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [(each.status.value, description_of(each)) for each in found if not each.run_id]


def description_of(record):
    evaluation = record.event.dagster_event.event_specific_data
    table = evaluation.metadata.get("partitions")
    return evaluation.description, [each.data["partition"] for each in table.records] if table else []


def test_stale_partitions_fail_a_check_once_until_they_are_current():
    made = world()
    made.tick()
    assert results(made) == []
    made.drop(RAW, DAY, rows(*range(1, 9)))
    made.tick()
    made.tick()
    made.tick()
    (status, (description, partitions)), *others = results(made)
    assert (status, partitions, others) == ("FAILED", [DAY], [])
    assert description == f"1 partition is out of date: {DAY}. See `feed-assets status --stale --dataset t/sums/v1.0`."
    made.drop(RAW, NEXT_DAY, rows(*range(1, 9)))
    made.tick()
    made.tick()
    assert results(made)[0][1][1] == [DAY, NEXT_DAY]
    made.drop(RAW, DAY, rows(*range(1, 8)))
    made.drop(RAW, NEXT_DAY, rows(*range(1, 8)))
    made.tick()
    made.tick()
    assert [status for status, _ in results(made)] == ["SUCCEEDED", "FAILED", "FAILED"]

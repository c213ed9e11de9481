"""What was built and is out of date, as a check of its dataset: tick by tick, without runs."""

from feed_assets import Late
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, rows, short

WAITS = Late(growth=0.9)
"""So that what comes late waits."""


def world():
    made = short(late=WAITS)
    for day in (DAY, NEXT_DAY):
        made.drop(RAW, day, rows(*range(1, 8)))
    made.run_until_idle()
    return made


def results(world_):
    """Of the check, newest first, as the sensor tells them: status, description, and the partitions of its table."""
    keys = world_.definitions.resolve_asset_graph().asset_check_keys
    (key,) = [each for each in keys if (each.asset_key.to_user_string(), each.name) == ("t/sums", "stale")]
    found = world_.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [(each.status.value, told(each)) for each in found if not each.run_id]


def told(record):
    evaluation = record.event.dagster_event.event_specific_data
    table = evaluation.metadata.get("partitions")
    return evaluation.description, [each.data["partition"] for each in table.records] if table else []


def test_what_waits_for_more_late_data_is_told_once_and_taken_back_when_it_is_built():
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

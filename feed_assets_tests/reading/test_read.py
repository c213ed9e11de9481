"""Results of `feed_assets.read`, on local disk and on S3."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import feed_assets
from feed_assets.core.errors import BlackboardMissing, InvalidName, InvalidSetting, NoValidUpdate, UpdatePruned
from feed_assets.core.feeds import MANIFEST
from feed_assets.feeds import read as feeds_read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_as_owner
from feed_assets.feeds.write import invalidate
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.parquet_lake import (
    DAILY,
    MONDAY,
    NEW,
    NOON,
    OLD,
    THURSDAY,
    TUESDAY,
    WEDNESDAY,
    Lake,
    parquet,
)


def days(*numbers):
    return [f"2026-06-0{number}" for number in numbers]


def test_the_newest_valid_update_with_its_id_its_columns_and_exactly_its_files(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.put(MONDAY, {"n": [2, 3]}, {"n": [4]}, update_id=NEW)
    found = lake.read(MONDAY)
    assert (found.update_id, found.update_ids, found.left_out) == (NEW, {MONDAY: NEW}, ())
    assert [path.partition(DAILY)[2] for path in found.paths] == [f"/{MONDAY}/{NEW}/part-{n}.parquet" for n in (0, 1)]
    assert found.schema.names == ["n"]
    assert found.to_arrow().to_pydict() == {"n": [2, 3, 4]}


def test_other_programs_can_open_the_paths(lake, s3_env):
    lake.put("2026-06-01/men + more", {"n": [1]})
    (path,) = lake.read("2026-06-01/men + more").paths
    if path.startswith("s3://"):
        s3 = pafs.S3FileSystem(endpoint_override=s3_env.endpoint, allow_bucket_creation=False)
        assert pq.read_table(path.removeprefix("s3://"), filesystem=s3, partitioning=None).to_pydict() == {"n": [1]}
    else:
        assert pq.read_table(path, partitioning=None).to_pydict() == {"n": [1]}


def test_an_invalid_newer_update_is_passed_over(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.put(MONDAY, {"n": [2]}, update_id=NEW)
    invalidate(lake.board, lake.at(MONDAY), NEW)
    assert lake.read(MONDAY).update_id == OLD
    assert lake.rows(MONDAY) == [(1,)]


def test_read_as_of_a_time_returns_the_update_valid_then(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.put(MONDAY, {"n": [2]}, update_id=NEW)
    assert lake.rows(MONDAY, as_of=NOON) == [(1,)]
    assert lake.read(MONDAY, as_of=NOON).as_of == NOON
    with pytest.raises(NoValidUpdate, match=rf"^{DAILY} {MONDAY} has no update"):
        lake.read(MONDAY, as_of=NOON - timedelta(days=9))


def test_read_as_of_a_pruned_time_is_refused(local_lake):
    local_lake.put(MONDAY, {"n": [2]}, update_id=NEW)
    local_lake.board.put(f"{feeds_read.PRUNED}/{DAILY}/{MONDAY}/{NEW}", b"")
    with pytest.raises(UpdatePruned, match=rf"were pruned.*Ask for {NEW} or later"):
        local_lake.read(MONDAY, as_of=NOON)
    local_lake.put(TUESDAY, {"n": [3]})
    with pytest.raises(NoValidUpdate, match=r"1 of 2 partitions have no valid update.*were pruned"):
        local_lake.read([MONDAY, TUESDAY], as_of=NOON)


@pytest.mark.parametrize("moment", [datetime(2026, 6, 2), date(2026, 6, 2), "2026-06-02"])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(local_lake, moment):
    with pytest.raises(InvalidName, match=r"^as_of=.* is not a moment: expected a datetime with a time zone, such as"):
        local_lake.read(MONDAY, as_of=moment)


def test_a_feed_without_partitions(lake):
    lake.put("", {"n": [1]})
    assert lake.read().update_ids == {"": OLD}
    assert lake.rows() == lake.rows("") == [(1,)]


def test_a_range_is_half_open_and_in_order(lake):
    for number in (1, 2, 3, 4):
        lake.put(f"2026-06-0{number}", {"n": [number]})
    found = lake.read(TUESDAY, THURSDAY)
    assert [*found.update_ids] == [TUESDAY, WEDNESDAY]
    assert found.to_arrow(partition_column="day").to_pydict() == {"n": [2, 3], "day": [TUESDAY, WEDNESDAY]}
    with pytest.raises(InvalidName, match="has 2 ids: use `update_ids`"):
        _ = found.update_id


def test_missing_partitions_of_a_range_are_named_and_skipped_only_on_request(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.put(WEDNESDAY, {"n": [3]})
    invalidate(lake.board, lake.at(WEDNESDAY), OLD)
    with pytest.raises(NoValidUpdate) as refused:
        lake.read(MONDAY, THURSDAY)
    assert str(refused.value) == (
        f"{DAILY}: 2 of 3 partitions have no valid update. {DAILY} {TUESDAY} has no update: there is nothing at "
        f"{DAILY}/{TUESDAY}/. {DAILY} {WEDNESDAY} has no valid update. {OLD}: it has no manifest: still being written, "
        "refused by its audit, abandoned or invalidated. Its producer has to publish it again. Wait for them, or pass "
        "partial=True to read the other partitions."
    )
    found = lake.read(MONDAY, THURSDAY, partial=True)
    assert [left.id for left in found.left_out] == [TUESDAY, WEDNESDAY]
    assert "abandoned or invalidated" in found.left_out[1].reason
    assert [*found.update_ids] == [MONDAY]
    with pytest.raises(NoValidUpdate, match="2 of 2 partitions"):
        lake.read(TUESDAY, THURSDAY, partial=True)


def test_a_range_over_many_pages_has_exactly_its_partitions(local_lake, monkeypatch):
    for number in range(1, 10):
        local_lake.put(f"2026-06-0{number}", {"n": [number]})
    pager = local_lake.board.pager
    asked = []

    def by_twos(_board, prefix):
        def two(after):
            page = pager(prefix)(after)
            asked.append(after)
            return type(page)(page.names[:2], len(page.names) <= 2)

        return two

    monkeypatch.setattr(Blackboard, "pager", by_twos)
    assert [*local_lake.read("2026-06-03", "2026-06-07").update_ids] == days(3, 4, 5, 6)
    assert asked == ["2026-06-0", "2026-06-02", "2026-06-04", "2026-06-06"]


@pytest.mark.parametrize(
    ("first", "to", "grain", "keys"),
    [
        ("2026-06-01-22:00", "2026-06-02-01:00", None, ["2026-06-01-22:00", "2026-06-01-23:00", "2026-06-02-00:00"]),
        ("2026-06-01-22:00", "2026-06-01-22:30", "15min", ["2026-06-01-22:00", "2026-06-01-22:15"]),
        (f"{MONDAY}/men", f"{WEDNESDAY}/men", None, [f"{MONDAY}/men", f"{TUESDAY}/men"]),
        ("2026-02-27", "2026-03-02", "day", ["2026-02-27", "2026-02-28", "2026-03-01"]),
    ],
)
def test_a_range_of_hours_of_minutes_and_of_one_value_of_other_dimensions(local_lake, first, to, grain, keys):
    for key in keys:
        local_lake.put(key, {"n": [1]})
    local_lake.put(to, {"n": [2]})
    assert [*local_lake.read(first, to, grain=grain).update_ids] == keys
    (local_lake.board._root / DAILY / keys[1] / OLD / MANIFEST).unlink()
    with pytest.raises(NoValidUpdate, match=f"1 of {len(keys)} partitions have no valid update. {DAILY} {keys[1]} "):
        local_lake.read(first, to, grain=grain)


def test_a_range_includes_partitions_between_its_windows(local_lake):
    for key in ("2026-06-01-22:00", "2026-06-01-22:15", "2026-06-01-23:00"):
        local_lake.put(key, {"n": [1]})
    found = local_lake.read("2026-06-01-22:00", "2026-06-02-00:00")
    assert [*found.update_ids] == ["2026-06-01-22:00", "2026-06-01-22:15", "2026-06-01-23:00"]


@each_case(
    ("args", "says"),
    [
        ((MONDAY, MONDAY), "is empty: expected an end after its beginning"),
        ((TUESDAY, MONDAY), "is empty"),
        (("men", "women"), "For other partitions give a list of keys"),
        ((MONDAY, "2026-06-31"), "'2026-06-31' is not a window of the grain day"),
        ((MONDAY, "2026-06-02-01:00"), "is not a window of the grain day"),
        ((f"{MONDAY}/men", f"{TUESDAY}/women"), f"expected ends that differ only in time, .* '{TUESDAY}/men'"),
        (([MONDAY], TUESDAY), r"found \['2026-06-01'\], expected the key of a partition as a text"),
        ((MONDAY, date(2026, 6, 8)), r"found datetime.date\(2026, 6, 8\), expected the key of a partition as a text"),
        ((date(2026, 6, 1),), r"found datetime.date\(2026, 6, 1\), expected the key"),
        (([date(2026, 6, 1)],), r"found datetime.date\(2026, 6, 1\), expected the key"),
        (([],), "found an empty list of partitions"),
        ((f"{MONDAY}...{TUESDAY}",), "expected the range's first key and its end, .* which is exclusive"),
        (("20260601.000000",), "looks like an update id"),
        (("../x",), "cannot be a path segment"),
    ],
)
def test_a_read_that_names_no_partitions_is_refused(local_lake, args, says):
    with pytest.raises(InvalidName, match=says):
        local_lake.read(*args)


def test_a_list_of_partitions_is_read_in_its_order_and_each_once(lake):
    lake.put("men", {"n": [1]})
    lake.put("women", {"n": [2]})
    assert lake.rows(["women", "men", "women"]) == [(2,), (1,)]
    with pytest.raises(NoValidUpdate, match=f"1 of 2 partitions have no valid update. {DAILY} kids has no update"):
        lake.read(["men", "kids"])
    assert [left.id for left in lake.read(["men", "kids"], partial=True).left_out] == ["kids"]


def test_an_appendable_feed_reads_all_batches_in_effect(lake):
    for name, number in (("b00000001", 1), ("b00000002", 2), ("b00000001-00000002", 12), ("b00000003", 3)):
        lake.put(f"{MONDAY}/{name}", {"n": [number]})
    lake.put(f"{MONDAY}/b00000004", {"n": [4]})
    invalidate(lake.board, lake.at(f"{MONDAY}/b00000004"), OLD)
    found = lake.read(MONDAY, batches=True)
    assert sorted(found.to_arrow(partition_column="day").to_pydict()["n"]) == [3, 12]
    assert {*found.to_arrow(partition_column="day")["day"].to_pylist()} == {MONDAY}
    assert found.update_ids == {f"{MONDAY}/b00000001-00000002": OLD, f"{MONDAY}/b00000003": OLD}
    (left,) = found.left_out
    assert left.id == f"{MONDAY}/b00000004"


def test_an_appendable_feed_as_of_a_time_reads_the_batches_in_effect_then(lake):
    for name, number, update_id in (("b00000001", 1, OLD), ("b00000001", 2, NEW), ("b00000002", 3, NEW)):
        lake.put(f"{MONDAY}/{name}", {"n": [number]}, update_id=update_id)
    assert lake.rows(MONDAY, batches=True) == [(2,), (3,)]
    then = lake.read(MONDAY, batches=True, as_of=NOON)
    assert then.to_arrow().to_pydict() == {"n": [1]}
    assert [left.id for left in then.left_out] == [f"{MONDAY}/b00000002"]


def test_reading_a_parent_of_batches_or_partitions_says_how_to_read_them(lake):
    lake.put(f"{MONDAY}/men", {"n": [1]})
    with pytest.raises(NoValidUpdate) as refused:
        lake.read(MONDAY)
    assert str(refused.value) == (
        f"{DAILY} {MONDAY} has no update of its own. It holds men. If the feed is appendable, these are batches: "
        f"pass batches=True. Otherwise read a partition below it, such as '{MONDAY}/men'."
    )
    with pytest.raises(NoValidUpdate, match=f"has no update of its own.*It holds {MONDAY}. If the feed"):
        lake.read()
    with pytest.raises(NoValidUpdate, match="has no batch: there is nothing at"):
        lake.read(TUESDAY, batches=True)


def test_a_range_of_an_appendable_feed(lake):
    for day in (MONDAY, TUESDAY):
        for name in ("a", "b"):
            lake.put(f"{day}/{name}", {"n": [1]})
    found = lake.read(MONDAY, WEDNESDAY, batches=True)
    assert found.to_arrow(partition_column="_day")["_day"].to_pylist() == [MONDAY, MONDAY, TUESDAY, TUESDAY]


def test_the_blackboard_is_that_of_the_settings_or_one_of_a_name(local_lake, home, monkeypatch, tmp_path):
    local_lake.put(MONDAY, {"n": [1]})
    with pytest.raises(NoValidUpdate):
        feed_assets.read(DAILY, MONDAY)  # The home's own, which is empty.
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", f'{{"plant": {{"url": "{local_lake.board.url}"}}}}')
    settings.cache_clear()
    assert feed_assets.read(DAILY, MONDAY, blackboard="plant").update_id == OLD
    with pytest.raises(InvalidSetting, match="there is no blackboard 'plont'"):
        feed_assets.read(DAILY, MONDAY, blackboard="plont")
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", local_lake.board.url)
    settings.cache_clear()
    assert feed_assets.read(DAILY, MONDAY).update_id == OLD
    with pytest.raises(BlackboardMissing):
        feed_assets.read(DAILY, MONDAY, blackboard=(tmp_path / "nowhere").as_uri())
    assert not (tmp_path / "nowhere").exists()


def test_a_partners_bucket_is_read_as_its_profile(home, s3_env, partner_url, monkeypatch):
    place = f'{{"url": "{partner_url}", "endpoint": "{s3_env.endpoint}", "profile": "partners"}}'
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", f'{{"partner": {place}}}')
    settings.cache_clear()
    lake = Lake(open_as_owner(settings(), "partner"))
    lake.put(MONDAY, {"n": [1]})
    assert feed_assets.read(DAILY, MONDAY, blackboard="partner").to_arrow().to_pydict() == {"n": [1]}


def test_a_reading_is_a_frozen_value_that_tells_what_it_is(local_lake):
    size = len(parquet({"n": [1]}))
    lake, on = local_lake, re.escape(local_lake.board.url)
    for day in (MONDAY, WEDNESDAY):
        lake.put(day, {"n": [1]})
    found = lake.read(MONDAY)
    assert found == lake.read(MONDAY)
    assert found != lake.read(MONDAY, as_of=NOON)
    with pytest.raises(AttributeError):
        found.updates = ()
    assert re.fullmatch(
        rf"FeedData\({DAILY} {MONDAY}, update {OLD}, as of 2026-06-02T12:00:00\+00:00: 1 files, {size} bytes on {on}\)",
        repr(lake.read(MONDAY, as_of=NOON)),
    )
    assert re.fullmatch(
        rf"FeedData\({DAILY}, 2 updates from {MONDAY} to {WEDNESDAY}, without {TUESDAY}: 2 files, .* bytes on {on}\)",
        repr(lake.read(MONDAY, THURSDAY, partial=True)),
    )


UPDATES = st.dictionaries(
    st.integers(0, 5).map(lambda day: f"2026060{day + 1}.000000"),
    st.tuples(st.sets(st.sampled_from(["a.csv", "b c.csv", "sub/a.csv", "_odd", "x=1/#.csv"])), st.integers(-1, 1)),
)


@given(updates=UPDATES)
def test_paths_are_the_files_that_the_newest_right_manifest_counts_and_no_others(tmp_path_factory, updates):
    root = tmp_path_factory.mktemp("a lake") / "black board"
    board = Blackboard.open(root.as_uri(), create=True)
    for update_id, (names, more) in updates.items():
        for name in names:
            board.put(f"{DAILY}/{MONDAY}/{update_id}/{name}", b"x")
        board.put(f"{DAILY}/{MONDAY}/{update_id}/{MANIFEST}", str(len(names) + more).encode())
    right = max((update_id for update_id, (_, more) in updates.items() if more == 0), default=None)
    if right is None:
        with pytest.raises(NoValidUpdate):
            Lake(board).read(MONDAY)
        return
    found = Lake(board).read(MONDAY)
    assert found.update_id == right
    assert sorted(found.paths) == sorted(str(root / DAILY / MONDAY / right / name) for name in updates[right][0])
    assert all(Path(path).is_file() for path in found.paths)


def test_a_reading_costs_what_a_look_at_each_partition_costs_and_no_file_is_opened(local_lake, monkeypatch):
    for day in days(1, 2):
        local_lake.put(day, {"n": [1]})
    opened = []
    monkeypatch.setattr(Blackboard, "stream", lambda *args: opened.append(args))
    assert len(local_lake.read(MONDAY, WEDNESDAY).paths) == 2
    assert opened == []


def test_read_as_of_a_time_before_the_first_update_is_refused(lake):
    lake.put(MONDAY, {"n": [1]})
    with pytest.raises(NoValidUpdate, match=r"has no update of 2019-01-01 00:00:00 UTC or before\."):
        lake.read(MONDAY, as_of=datetime(2019, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("feed", "key", "said"),
    [
        ("plant/dayly/v1.0", MONDAY, "Is plant/daily meant?"),
        ("plant/daily", MONDAY, "It has v1.0: say which, as in 'plant/daily/v1.0'"),
        (DAILY, "2026-6-1", "The feed has 1 keys, such as 2026-06-01."),
    ],
)
def test_a_misspelt_name_or_key_is_refused_with_existing_ones(lake, feed, key, said):
    lake.put(MONDAY, {"n": [1]})
    with pytest.raises(NoValidUpdate, match=said):
        feed_assets.read(feed, key, blackboard=lake.board.url)


def test_foreign_folders_disturb_neither_ranges_nor_error_messages(lake):
    lake.put(MONDAY, {"n": [1]})
    for name in ("2026-06-01~tmp", "2026-06-01-_x", "20260601.000000"):
        lake.board.put(f"{DAILY}/{name}/x.parquet", b"x")
    assert [*lake.read(MONDAY, TUESDAY).update_ids] == [MONDAY]
    lake.board.put(f"{DAILY}/{TUESDAY}/_temporary/x", b"x")
    with pytest.raises(NoValidUpdate):
        lake.read(TUESDAY)


def test_a_grain_is_of_a_range(lake):
    with pytest.raises(InvalidName, match="grain='day' is for a range, but `to` is not given"):
        lake.read(MONDAY, grain="day")


def test_a_blackboard_may_be_a_path(tmp_path):
    with pytest.raises(NoValidUpdate):
        feed_assets.read(DAILY, MONDAY, blackboard=tmp_path)
    with pytest.raises(InvalidSetting, match=f"A folder is {tmp_path.as_uri()}"):
        feed_assets.read(DAILY, MONDAY, blackboard=str(tmp_path))


@each_case("given", [None, 3])
def test_a_feed_is_a_text(given):
    with pytest.raises(InvalidName, match="expected the name of a feed as a text"):
        feed_assets.read(given)

"""The protocol's values: names, ids, manifests, validity."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.errors import InvalidName, UpdateAbandoned
from feed_assets.core.feeds import (
    Feed,
    File,
    Partition,
    Update,
    Version,
    is_update_id,
    next_update_id,
    parse_manifest,
    parse_update_id,
    update_id,
    why_invalid,
)
from feed_assets_tests.support.each_case import each_case

NOON = datetime(2018, 5, 16, 12, tzinfo=UTC)
SHOWN = Feed("ads/shown", Version(1, 0))


@each_case(
    ("text", "name", "version"),
    [
        ("ads/shown/v1.0", "ads/shown", Version(1, 0)),
        ("ads-shown-to-users/v2.13", "ads-shown-to-users", Version(2, 13)),
        ("ads/shown", "ads/shown", None),
        ("v1.0/v2.0", "v1.0", Version(2, 0)),
        ("ads/v01.0", "ads/v01.0", None),
    ],
)
def test_a_feed_is_a_name_with_or_without_a_version_and_reads_back_the_same(text, name, version):
    assert Feed.parse(text) == Feed(name, version)
    assert str(Feed.parse(text)) == text


@each_case(
    "text", ["", "v1.0", "/ads/v1.0", "ads//v1.0", "ads/../v1.0", "_feed_assets/claims", "ads/é/v1.0", "ads\n/v1.0"]
)
def test_invalid_feed_names_are_refused(text):
    with pytest.raises(InvalidName):
        Feed.parse(text)


def test_versions_sort_as_numbers():
    assert sorted(map(Version.parse, ["v10.0", "v2.0", "v2.10", "v2.9"])) == [
        Version(2, 0),
        Version(2, 9),
        Version(2, 10),
        Version(10, 0),
    ]


@each_case(
    "key",
    [
        "/",
        "a//b",
        "/a",
        "a/",
        "..",
        "a/../b",
        ".",
        "a..b",
        " ",
        "a ",
        "tab\t",
        "new\nline",
        "nul\x00",
        "café",
        "١",
        "a\\b",
        "a*",
        "a#1",
        "_x",
        ".x",
        "20191124.060000",
        "men/20191124.060000",
        "x" * 201,
    ],
)
def test_partition_keys_that_some_store_cannot_hold_are_refused(key):
    with pytest.raises(InvalidName):
        Partition(SHOWN, key)


@each_case(
    ("key", "path"),
    [
        ("", "ads/shown/v1.0"),
        ("2019-11-24", "ads/shown/v1.0/2019-11-24"),
        ("2019-11-24/men", "ads/shown/v1.0/2019-11-24/men"),
        ("date=2019-11-24/region=EU west", "ads/shown/v1.0/date=2019-11-24/region=EU west"),
    ],
)
def test_a_partition_key_has_a_segment_for_each_dimension(key, path):
    assert Partition(SHOWN, key).path == path


@each_case(
    ("name", "moment"),
    [
        ("20180516.120000", NOON),
        ("20200229.235959", datetime(2020, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("20180530.2460", None),
        ("20180530.246000", None),
        ("20180530.235960", None),
        ("20180231.000000", None),
        ("20190229.000000", None),
        ("00000101.000000", None),
        ("20180516.1200000", None),
        ("20180516120000", None),
        ("20180516.120000\n", None),
        (" 20180516.120000", None),
        ("٢٠١٨٠٥١٦.١٢٠٠٠٠", None),
        ("", None),
    ],
)
def test_an_update_id_is_a_moment_that_exists_and_nothing_near_it(name, moment):
    assert parse_update_id(name) == moment
    assert is_update_id(name) is (moment is not None)


def test_an_update_id_is_in_utc_whatever_zone_the_moment_is_in():
    assert update_id(datetime(2018, 5, 16, 14, tzinfo=timezone(timedelta(hours=2)))) == "20180516.120000"


@each_case(
    ("taken", "expected"),
    [
        ([], "20180516.120000"),
        (["20180516.115959"], "20180516.120000"),
        (["20180516.120000"], "20180516.120001"),
        (["20180516.120000", "20180516.115900"], "20180516.120001"),
        (["20181231.235959"], "20190101.000000"),
        (["99999999.999999", "part", "20180231.000000"], "20180516.120000"),
    ],
)
def test_a_new_id_is_now_or_a_second_after_the_newest_one(taken, expected):
    assert next_update_id(NOON, taken) == expected


def test_there_is_no_id_after_the_last_moment():
    with pytest.raises(UpdateAbandoned, match=r"99991231\.235959"):
        next_update_id(NOON, ["99991231.235959"])


@given(
    now=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    taken=st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),  # noqa: DTZ001
)
def test_a_new_id_is_greater_than_every_taken_one_also_as_text(now, taken):
    ids = [update_id(moment) for moment in taken]
    assert all(next_update_id(now, ids) > name for name in ids)
    assert next_update_id(now, ids) >= update_id(now)


NOT_A_NUMBER = "expected a decimal number alone"


@each_case(
    ("content", "expected"),
    [
        (b"3", 3),
        (b"0", 0),
        (b"100000", 100_000),
        (b"", "its manifest is empty"),
        (b"three", NOT_A_NUMBER),
        (b"-3", NOT_A_NUMBER),
        (b"+3", NOT_A_NUMBER),
        (b"3\n", 3),
        (b"0\n", 0),
        (b"3\n\n", NOT_A_NUMBER),
        (b"3\r\n", NOT_A_NUMBER),
        (b"\n", NOT_A_NUMBER),
        (b" 3", NOT_A_NUMBER),
        (b"03", NOT_A_NUMBER),
        (b"00", NOT_A_NUMBER),
        (b"1_0", NOT_A_NUMBER),
        (b"3.0", NOT_A_NUMBER),
        (b"0x3", NOT_A_NUMBER),
        ("٣".encode(), NOT_A_NUMBER),
        ("3".encode("utf-16"), NOT_A_NUMBER),
        (b"\xef\xbb\xbf3", NOT_A_NUMBER),
        (b"9" * 65, NOT_A_NUMBER),
    ],
)
def test_a_manifest_is_a_decimal_number_and_one_newline_at_most(content, expected):
    found = parse_manifest(content)
    assert found == expected or (isinstance(expected, str) and isinstance(found, str) and expected in found)


FILES = (File("u/a", 1), File("u/b", 2))


@each_case(
    ("manifest", "files", "reason"),
    [
        (b"2", FILES, None),
        (b"0", (), None),
        (None, FILES, "it has no manifest: still being written, refused by its audit, abandoned or invalidated"),
        (b"3", FILES, "its manifest says 3 files and there are 2"),
        (b"1", FILES, "its manifest says 1 files and there are 2"),
        (b"", FILES, "its manifest is empty"),
    ],
)
def test_an_update_is_valid_when_its_manifest_counts_its_files(manifest, files, reason):
    assert why_invalid(manifest, files) == reason


def test_the_files_digest_tells_files_apart_and_not_updates_or_order():
    def digest(update, *files):
        found = (File(f"ads/shown/v1.0/{update}/{name}", size, tag) for name, size, tag in files)
        return Update(Partition(SHOWN), update, tuple(found)).files_digest

    first = digest("20180516.120000", ("a", 1, "x"), ("b", 2, "y"))
    assert first == digest("20180517.120000", ("b", 2, "y"), ("a", 1, "x"))
    assert (
        len({first, digest("20180516.120000", ("a", 1, "x")), digest("20180516.120000", ("a", 2, "x"), ("b", 2, "y"))})
        == 3
    )


@each_case(("key", "batch"), [("2019-11-24", "2019-11-24/b1"), ("2019-11-24/men", "2019-11-24/men/b1"), ("", "b1")])
def test_a_batch_is_a_partition_with_one_more_segment_and_knows_its_holder(key, batch):
    parent = Partition(Feed.parse("ads/shown/v1.0"), key)
    made = parent.batch("b1")
    assert (made.key, made.parent, made.name) == (batch, parent, "b1")


def test_a_partition_without_segments_has_no_parent():
    assert Partition(Feed.parse("ads/shown/v1.0")).parent is None


def test_a_batch_name_like_an_update_id_is_refused():
    with pytest.raises(InvalidName, match="looks like an update id"):
        Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24").batch("20191125.060000")

"""Patterns of file names, and the outcome of each listed file, as a table."""

from datetime import UTC, date, datetime

import pytest

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import UNREADABLE, File, check_segment
from feed_assets.core.pulls import FileAction, FileState, Pull, Pulled, batch_name, fate_of, part_name
from feed_assets_tests.support.each_case import each_case

DAY = date(2024, 2, 29)
NOW = datetime(2024, 2, 29, 17, tzinfo=UTC)


def at(hour: int) -> datetime:
    return datetime(2024, 2, 29, hour, tzinfo=UTC)


def pull(pattern: str = "%Y-%m-%d/%H/men_*.csv", **options) -> Pull:
    return Pull("partner", pattern, **options)


@each_case(
    ("pattern", "prefix", "begins", "key", "moment"),
    [
        ("%Y-%m-%d/%H/men_*.csv", None, "2024-02-29/", "2024-02-29/05/men_1.csv", at(5)),
        ("men_%Y%m%d_%H.csv", "out/men", "out/men/men_20240229_", "out/men/men_20240229_23.csv", at(23)),
        ("%Y/%m/%d/*", "o", "o/2024/02/29/", "o/2024/02/29/x", at(0)),
        (
            "%Y/%m/%d/%Y%m%d%H-*.csv",
            None,
            "2024/02/29/20240229",
            "2024/02/29/2024022904-.csv",
            at(4),
        ),
        ("a.b+(%d.%m.%Y)*", "%Y*", "%Y*/a.b+(29.02.2024)", "%Y*/a.b+(29.02.2024)]", at(0)),
    ],
)
def test_a_day_begins_the_keys_of_its_files_and_a_key_says_its_moment(pattern, prefix, begins, key, moment):
    found = pull(pattern, prefix=prefix)
    assert found.begins(DAY) == begins
    assert key.startswith(begins)
    assert found.moment_of(key) == moment


@each_case(
    "key",
    [
        "2024-02-29/05/men_1.csv.part",
        "2024-02-29/05/women_1.csv",
        "2024-02-29/05/more/men_1.csv",
        "2024-02-29/5/men_1.csv",
        "x2024-02-29/05/men_1.csv",
        "2024-02-29/05/men_1xcsv",
    ],
)
def test_files_that_do_not_match_the_pattern_are_ignored(key):
    assert pull().moment_of(key) is None


def test_a_repeated_date_code_must_have_the_same_value():
    assert pull("%Y/%m/%d/%Y_*").moment_of("2024/02/29/2023_x") is None


@each_case("key", ["2024-02-29/24/men_1.csv", "2024-02-30/05/men_1.csv", "0000-02-01/05/men_1.csv"])
def test_a_file_name_without_a_time_is_refused(key):
    with pytest.raises(InvalidName, match="which is not a real day and hour"):
        pull().moment_of(key)


@each_case(
    "pattern",
    ["/%Y-%m-%d/*.csv", "%Y-%m-%d/", "%Y-%m-%d//*.csv", "%Y-%m-%d/**", "%Y-%m-%d/a?.csv", "%Y-%m-%d/[ab].csv"],
)
def test_a_pattern_that_would_match_nothing_is_refused(pattern):
    with pytest.raises(InvalidDefinition, match="which a pattern cannot have"):
        Pull("women", pattern)


def test_pattern_with_more_than_two_stars_in_a_folder_is_refused():
    with pytest.raises(InvalidDefinition, match=r"with 3 '\*' in 'a\*b\*c\*': expected at most 2"):
        pull("%Y-%m-%d/*/a*b*c*")


def test_name_made_to_match_in_very_many_ways_is_compared_soon():
    """Use a key that takes 10^17 steps without atomic groups, which would stop the pulls of all partners."""
    name = "/".join(["ab" * 100] * 5)
    assert pull("%Y-%m-%d/" + "/".join(["*a*b"] * 5) + ".csv").moment_of(f"2024-02-29/{name}") is None


@each_case(
    ("pattern", "key", "moment"),
    [
        ("%Y-%m-%d/*%H*/%H.csv", "2024-02-29/x05-12y/05.csv", at(5)),
        ("%Y-%m-%d/*a*/*b", "2024-02-29/xaab/cbb", at(0)),
        ("%Y-%m-%d/*a*.csv", "2024-02-29/a.csv.csv", at(0)),
        ("%Y-%m-%d/*a*.csv", "2024-02-29/a.csv\n", None),
    ],
)
def test_stars_match_in_every_way_that_a_name_allows(pattern, key, moment):
    assert pull(pattern).moment_of(key) == moment


@each_case("pattern", ["*/%Y%m%d.csv", "%H/%Y-%m-%d/*", "%Y-%m/*", "%Y-%m-%d/%M.csv", "%Y-%m-%d/5%", ""])
def test_a_pattern_must_have_the_date_before_other_parts(pattern):
    with pytest.raises(InvalidDefinition, match="expected %Y, %m and %d before the first"):
        pull(pattern)


def test_an_invalid_cron_of_a_pull_is_refused():
    with pytest.raises(InvalidDefinition, match="Pull: the cron is"):
        pull(cron="hourly")


def test_the_lookback_is_of_days_before_today_the_newest_first():
    assert pull(lookback=2).days(NOW) == [DAY, date(2024, 2, 28), date(2024, 2, 27)]
    assert pull(lookback=0).days(NOW.astimezone(UTC)) == [DAY]


def test_a_pull_is_due_after_each_tick_of_its_cron():
    found = pull(cron="0 */6 * * *")
    assert found.is_due(None, NOW)
    assert found.is_due(NOW.replace(hour=11, minute=59), NOW)
    assert not found.is_due(NOW.replace(hour=12), NOW)
    assert found.is_due(NOW.replace(hour=12), NOW.replace(hour=18))


A, B, EMPTY = File("k", 10, "a"), File("k", 12, "b"), File("k", 0, "e")
DONE = Pulled(A, NOW, FileState.DONE, None, "2024-02-29/b", "20240229.000000")
CHANGED = Pulled(A, NOW, FileState.CHANGED, "it is another one", "2024-02-29/b", "20240229.000000")
REFUSED = Pulled(EMPTY, None, FileState.REFUSED, "it is empty")

FATES = {
    "new": (A, None, FileAction.PULL, FileAction.PULL),
    "done": (A, DONE, FileAction.LEAVE, FileAction.LEAVE),
    "another one": (B, DONE, FileAction.PULL, FileAction.REFUSE),
    "of another size alone": (File("k", 11, "a"), DONE, FileAction.PULL, FileAction.REFUSE),
    "of another etag alone": (File("k", 10, "b"), DONE, FileAction.PULL, FileAction.REFUSE),
    "emptied": (EMPTY, DONE, FileAction.REFUSE, FileAction.REFUSE),
    "as it was": (A, CHANGED, FileAction.RESTORE, FileAction.RESTORE),
    "changed again": (B, CHANGED, FileAction.PULL, FileAction.REFUSE),
    "empty": (EMPTY, None, FileAction.REFUSE, FileAction.REFUSE),
    "still empty": (EMPTY, REFUSED, FileAction.REFUSE, FileAction.REFUSE),
    "no longer empty": (A, REFUSED, FileAction.PULL, FileAction.PULL),
    "unreadable": (File(f"k{UNREADABLE}", 1, "a"), None, FileAction.REFUSE, FileAction.REFUSE),
}


@each_case("what", FATES)
def test_the_fate_of_a_file(what):
    file, known, new_version, alert = FATES[what]
    for changed, expected in (("new_version", new_version), ("alert", alert)):
        fate, reason = fate_of(file, known, pull(changed=changed))
        assert fate is expected
        assert bool(reason) == (fate is FileAction.REFUSE)


@each_case(
    "name",
    [
        "men 1.csv.gz",
        "mén.csv",
        "_hidden.csv",
        ".x",
        "a#1",
        "...",
        "a" * 300 + ".csv",
        "20240229.000000",
        "%2F",
        "x.",
        "a..b",
    ],
)
def test_any_name_gives_a_batch_and_a_part_that_every_store_takes(name):
    for made in (batch_name(f"d/{name}"), part_name(File(f"d/{name}", 1, "x"))):
        assert check_segment(made, "name") == made


def test_names_are_of_one_file_and_one_version_and_end_as_the_file_does():
    assert batch_name("a/x.csv") != batch_name("b/x.csv") != batch_name("b-x.csv")
    assert len({part_name(each) for each in (A, B, EMPTY, File("k", 10, "b"))}) == 4
    assert part_name(File(f"d/{'a' * 300}.csv.gz", 1)).endswith(".csv.gz")

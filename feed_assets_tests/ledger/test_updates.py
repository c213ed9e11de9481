"""Updates that the ledger learns by observation: as often as one observes, and each only once."""

import pytest

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import claims, log, update_changes, updates
from feed_assets_tests.support.ledger_records import (
    CLICKED,
    EFFECT,
    NOW,
    REJECTS,
    SHOWN,
    claim,
    newest,
    publish,
    row,
    seen,
    sync,
)

FIRST, SECOND, THIRD = "20191125.060000", "20191126.060000", "20191127.060000"


def changes(ledger, *partitions):
    with ledger.read() as connection:
        feeds = [partition.feed for partition in partitions]
        found = log.after(connection, 0, 10**9, 100, feeds)
        return [(each.partition, each.after) for each in found if each.kind == log.UPDATE]


def last(ledger):
    with ledger.read() as connection:
        return log.last(connection)


def test_an_update_that_is_seen_for_the_first_time_is_published(ledger):
    found = sync(ledger, SHOWN, seen(SHOWN, FIRST))
    assert found == row(ledger, SHOWN, FIRST)
    assert (found.state, found.run, found.size, found.files, found.at) == (updates.PUBLISHED, None, 10, 1, NOW)
    assert found.pin == Pin(SHOWN, FIRST, seen(SHOWN, FIRST).files_digest, 10, 1)


def test_repeated_observation_of_an_update_changes_nothing(ledger):
    first = sync(ledger, SHOWN, seen(SHOWN, FIRST))
    before = last(ledger)
    assert sync(ledger, SHOWN, seen(SHOWN, FIRST)) == first
    assert last(ledger) == before


def test_partition_without_a_valid_update_causes_no_change(ledger):
    assert sync(ledger, SHOWN, None) is None
    assert last(ledger) == 0


def test_a_newer_update_is_the_newest_and_leaves_the_older_one_published(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    sync(ledger, SHOWN, seen(SHOWN, SECOND))
    assert newest(ledger, SHOWN) == SECOND
    assert row(ledger, SHOWN, FIRST).state == updates.PUBLISHED


def test_older_valid_update_invalidates_newer_ones_with_their_reasons(ledger):
    for update_id in (FIRST, SECOND, THIRD):
        sync(ledger, SHOWN, seen(SHOWN, update_id))
    reasons = {SECOND: "its manifest says 2 files and there are 1"}
    sync(ledger, SHOWN, seen(SHOWN, FIRST), reasons)
    reported = [(row(ledger, SHOWN, name).state, row(ledger, SHOWN, name).reason) for name in (FIRST, SECOND, THIRD)]
    assert reported == [
        (updates.PUBLISHED, None),
        (updates.INVALIDATED, "its manifest says 2 files and there are 1"),
        (updates.INVALIDATED, "it is no longer there"),
    ]
    assert newest(ledger, SHOWN) == FIRST


def test_the_last_valid_update_can_become_invalid(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    assert sync(ledger, SHOWN, None, {FIRST: "it has no manifest"}) is None
    assert (newest(ledger, SHOWN), row(ledger, SHOWN, FIRST).reason) == (None, "it has no manifest")


def test_invalidation_is_logged_once(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    sync(ledger, SHOWN, None)
    sync(ledger, SHOWN, None)
    assert changes(ledger, SHOWN) == [(SHOWN, updates.PUBLISHED), (SHOWN, updates.INVALIDATED)]


def test_revalidated_update_is_published_again_as_the_newest_change(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    sync(ledger, SHOWN, None, {FIRST: "it has no manifest"})
    found = sync(ledger, SHOWN, seen(SHOWN, FIRST))
    assert (found.state, found.reason) == (updates.PUBLISHED, None)
    with ledger.read() as connection:
        *_, newest = (
            each for each in log.newest(connection, log.UPDATE, 0, 99, 9, [SHOWN.feed]) if each.kind == log.UPDATE
        )
    assert (newest.before, newest.after) == (updates.INVALIDATED, updates.PUBLISHED)


def test_a_foreign_update_that_is_overwritten_in_place_has_another_version(ledger):
    before = sync(ledger, SHOWN, seen(SHOWN, FIRST, size=10))
    after = sync(ledger, SHOWN, seen(SHOWN, FIRST, size=11))
    assert (after.state, after.size, after.changed) == (updates.PUBLISHED, 11, last(ledger))
    assert after.changed > before.changed
    assert after.version == seen(SHOWN, FIRST, size=11).files_digest != before.version


def test_an_older_foreign_update_that_was_overwritten_meanwhile_has_another_version(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST, size=10))
    sync(ledger, SHOWN, seen(SHOWN, SECOND))
    assert sync(ledger, SHOWN, seen(SHOWN, FIRST, size=11)).version == seen(SHOWN, FIRST, size=11).files_digest


def test_an_update_of_our_own_keeps_the_digest_of_its_rows(ledger):
    claim(ledger, "run", (EFFECT, FIRST))
    publish(ledger, "run", EFFECT, FIRST, version="digest of rows")
    before = last(ledger)
    assert sync(ledger, EFFECT, seen(EFFECT, FIRST)).version == "digest of rows"
    assert last(ledger) == before


def test_a_claimed_update_that_is_valid_already_is_left_to_its_run(ledger):
    claim(ledger, "run", (EFFECT, FIRST))
    assert sync(ledger, EFFECT, seen(EFFECT, FIRST)).state == updates.CLAIMED
    assert newest(ledger, EFFECT) is None


@pytest.mark.parametrize("state", [updates.REFUSED, updates.ABANDONED, updates.INVALIDATED])
def test_update_that_a_person_validates_is_published_with_its_row_digest(ledger, state):
    claim(ledger, "run", (EFFECT, FIRST))
    publish(ledger, "run", EFFECT, FIRST, version="digest of rows")
    with ledger.change() as connection:
        update_changes.change(connection, EFFECT, FIRST, state, NOW, reason="not_empty")
    found = sync(ledger, EFFECT, seen(EFFECT, FIRST))
    assert (found.state, found.reason, found.version) == (updates.PUBLISHED, None, "digest of rows")


def test_an_update_given_up_before_its_rows_were_known_has_the_digest_of_its_files(ledger):
    claim(ledger, "run", (EFFECT, FIRST))
    with ledger.change() as connection:
        update_changes.change(connection, EFFECT, FIRST, updates.ABANDONED, NOW)
    assert sync(ledger, EFFECT, seen(EFFECT, FIRST)).version == seen(EFFECT, FIRST).files_digest


def test_old_reading_does_not_invalidate_a_newer_update(ledger):
    """A consumer listed its input before the input's own run published, and reaches the ledger after it."""
    sync(ledger, EFFECT, seen(EFFECT, FIRST))
    as_of = last(ledger)
    claim(ledger, "run", (EFFECT, SECOND))
    publish(ledger, "run", EFFECT, SECOND)
    update_changes.sync(ledger, EFFECT, seen(EFFECT, FIRST), {}, NOW, as_of)
    assert newest(ledger, EFFECT) == SECOND


def test_old_reading_does_not_revalidate_an_invalidated_update(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    as_of = last(ledger)
    sync(ledger, SHOWN, None, {FIRST: "it has no manifest"})
    update_changes.sync(ledger, SHOWN, seen(SHOWN, FIRST), {}, NOW, as_of)
    assert newest(ledger, SHOWN) is None


def test_claim_records_its_inputs_and_its_rejects_for_lineage_only(ledger):
    pins = (Pin(CLICKED, FIRST, "c", 5, 1), Pin(SHOWN, SECOND, "s", 7, 2))
    claim(ledger, "run", (REJECTS, THIRD), (EFFECT, THIRD), pins=pins[::-1])
    with ledger.read() as connection:
        assert updates.consumed_by(connection, EFFECT, THIRD) == pins
        assert updates.consumed_by(connection, REJECTS, THIRD) == ()
        lineage = connection.exec_driver_sql("SELECT input_feed, position FROM consumed WHERE NOT is_input")
        assert [tuple(found) for found in lineage] == [(str(REJECTS.feed), THIRD)]


def test_the_claims_of_a_run_come_rejects_first_until_they_are_settled(ledger):
    claim(ledger, "run", (REJECTS, FIRST), (EFFECT, FIRST))
    claim(ledger, "another", (SHOWN, FIRST))
    publish(ledger, "run", REJECTS, FIRST)
    claim(ledger, "run", (CLICKED, FIRST))
    with ledger.read() as connection:
        assert [each.partition for each in claims.claimed_by(connection, "run")] == [EFFECT, CLICKED]


def test_published_keys_list_each_partition_once(ledger):
    other = Partition(SHOWN.feed, "2019-11-25")
    gone = Partition(SHOWN.feed, "2019-11-23/men")
    for partition, update_id in [(other, FIRST), (SHOWN, FIRST), (SHOWN, SECOND), (gone, FIRST), (CLICKED, FIRST)]:
        sync(ledger, partition, seen(partition, update_id))
    sync(ledger, gone, None)
    with ledger.read() as connection:
        assert [*updates.published_keys(connection, SHOWN.feed)] == ["2019-11-24/men", "2019-11-25"]
        assert [*updates.published_keys(connection, EFFECT.feed)] == []


def test_known_feeds_are_those_with_any_update_valid_or_not(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    sync(ledger, SHOWN, None, {FIRST: "it is no longer there"})
    with ledger.read() as connection:
        assert updates.known_feeds(connection, [str(CLICKED.feed), str(SHOWN.feed)]) == {str(SHOWN.feed)}

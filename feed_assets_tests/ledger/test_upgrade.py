"""A ledger of the first schema, with rows in every table, works correctly with today's code."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import event_store, log, pauses, quality, runs, subscriptions, tables, updates
from feed_assets.ledger.awaited import look
from feed_assets.ledger.database import MIGRATIONS, Ledger, get_cursor, open_ledger
from feed_assets.ledger.due import listed, to_rebuild
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets_tests.ledger.first_schema import BEGINNINGS, CURSORS, DAY, NEW, OFFSET, ROWS, WITHOUT_EVENTS
from feed_assets_tests.support.ledger_records import NOW, attempt, new_run, waiting

SHOWN, TABLE = Feed.parse("ads/shown/v1.0"), Feed.parse("shop/orders")
EFFECT, REPORT, OTHER = (Feed.parse(f"ads/{name}/v1.0") for name in ("effect", "report", "other"))
KEPT = ("read ", "looked ", "watched ", "stopped ")
"""Prefixes of cursors that are positions in foreign places."""
EDGES = [(str(EFFECT), str(SHOWN)), (str(EFFECT), str(EFFECT))]
EDGES += [(str(reader), str(table)) for reader in (REPORT, OTHER) for table in (SHOWN, TABLE)]


def first(url, rows, cursors):
    """Create a ledger as the first schema left it."""
    engine, config = sa.create_engine(url), Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(sa.text("DELETE FROM cursor"))
        for table, each in rows:
            columns = [sa.column(name) for name in each]
            connection.execute(sa.insert(sa.table(table, *columns)).values(each))
        for name, value in cursors.items():
            connection.execute(sa.text("INSERT INTO cursor VALUES (:name, :value)"), {"name": name, "value": value})
    engine.dispose()


@pytest.fixture
def bare_url(request, tmp_path):
    """Return the URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return request.getfixturevalue("postgresql").database()


@pytest.fixture
def upgraded(bare_url):
    first(bare_url, ROWS, CURSORS)
    ledger = open_ledger(bare_url)
    yield ledger
    ledger.engine.dispose()


both = partial(pytest.mark.parametrize, "bare_url", ["sqlite", "postgresql"], indirect=True)


def affected(added, reader, changed):
    """Return each reader's one partition for a partition of the input; `NEW` exists only if it was added."""
    there = changed.key != NEW or added
    return Affected([(Partition(Feed.parse(reader), changed.key), NOW)] if there else None, reader != str(EFFECT))


def fan(ledger: Ledger, *, added=False, now=NOW):
    assert fan_out(ledger, EDGES, partial(affected, added), now, lambda: False)


def inboxes(ledger):
    found = {name: waiting(ledger, name) for name in (EFFECT, REPORT, OTHER)}
    return {
        (str(name), key): [each.correlation for each in reported]
        for name, of in found.items()
        for key, reported in of.items()
    }


def asked(ledger, question, *arguments):
    with ledger.read() as connection:
        return question(connection, *arguments)


@both()
def test_upgrade_delivers_pending_events_once_and_consumed_ones_never(upgraded):
    assert inboxes(upgraded) == {(str(REPORT), DAY): ["o2"], (str(OTHER), NEW): ["n1"]}
    fan(upgraded)
    assert inboxes(upgraded) == {(str(REPORT), DAY): ["o2", "o3"], (str(OTHER), NEW): ["n1"]}
    fan(upgraded, added=True, now=NOW + timedelta(days=9999))
    whole = {(str(REPORT), DAY): ["o2", "o3"], (str(REPORT), NEW): ["n1"], (str(OTHER), NEW): ["n1"]}
    assert inboxes(upgraded) == whole
    fan(upgraded, added=True, now=NOW + timedelta(days=19999))
    assert inboxes(upgraded) == whole


@both()
def test_upgrade_delivers_a_new_partition_only_to_consumers_that_awaited_it(upgraded):
    with upgraded.write() as connection:
        connection.execute(sa.text("DELETE FROM inbox WHERE feed = :other"), {"other": str(OTHER)})
    assert {each.subscriber for each in asked(upgraded, look, NOW + timedelta(days=9999))} == {str(REPORT)}
    fan(upgraded, added=True, now=NOW + timedelta(days=9999))
    assert inboxes(upgraded) == {(str(REPORT), DAY): ["o2", "o3"], (str(REPORT), NEW): ["n1"]}


@both()
def test_upgrade_lists_outputs_of_undelivered_changes(upgraded):
    before = {each.partition.key for each in asked(upgraded, listed, EFFECT)}
    fan(upgraded)
    assert before == {"stale"}
    assert {each.partition.key for each in asked(upgraded, listed, EFFECT)} == {"stale", "unheard"}


@both()
def test_upgrade_without_events_keeps_undelivered_changes(bare_url):
    first(bare_url, WITHOUT_EVENTS, {"change": "10", f"fanned out to {EFFECT}": "1"})
    ledger = open_ledger(bare_url)
    fan(ledger)
    assert [each.partition.key for each in asked(ledger, listed, EFFECT)] == ["unheard"]
    ledger.engine.dispose()


@both()
def test_upgrade_keeps_pending_rebuilds(upgraded):
    found = asked(upgraded, to_rebuild, datetime.now(UTC), 10)
    assert {feed: [each.partition.key for each in listed] for feed, listed in found.items()} == {EFFECT: ["stale"]}


@both()
def test_upgrade_keeps_unsettled_refusals_and_attempts(upgraded):
    refused, failed, fine = (Partition(EFFECT, key) for key in ("refused", "failed", "fine"))
    assert asked(upgraded, quality.failed, [refused, failed, fine]) == {refused: "audit: two rows twice"}
    assert [run.id for run in asked(upgraded, runs.open_attempts, [refused, failed, fine])] == ["refused", "failed"]
    attempt(upgraded, "well", runs.UNCHANGED, failed)
    attempt(upgraded, "better", runs.UNCHANGED, refused)
    assert asked(upgraded, runs.open_attempts, [refused, failed]) == ()
    assert asked(upgraded, quality.failed, [refused]) == {}


@both()
def test_upgrade_keeps_one_run_at_a_time_for_running_outputs(upgraded):
    output = Partition(EFFECT, "running")
    assert [run.id for run in asked(upgraded, runs.running)] == ["running"]
    with pytest.raises(Exception, match="one at a time"):
        runs.start(upgraded, new_run("second", output))


@both()
def test_upgrade_keeps_pauses_and_positions(upgraded):
    assert [*asked(upgraded, pauses.paused, [REPORT, OTHER])] == [OTHER]
    sink = asked(upgraded, subscriptions.position, "published to file://events")
    assert [each.correlation for each in asked(upgraded, event_store.our_events, sink, 10)] == ["s2"]
    kept = {name.replace("litter", "orphans"): value for name, value in CURSORS.items() if name.startswith(KEPT)}
    assert {name: asked(upgraded, get_cursor, name) for name in kept} == kept
    with upgraded.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM cursor")).scalar_one() == len(kept)


@both()
def test_upgrade_gives_old_events_their_start_markers(bare_url):
    """An increment starts after the marker before it, an overwrite at the beginning, one without new data nowhere."""
    first(bare_url, [*ROWS, *(row for _, row in BEGINNINGS)], CURSORS)
    ledger = open_ledger(bare_url)
    reported = tables.event.c
    with ledger.read() as connection:
        query = sa.select(reported.correlation, reported.start).where(reported.previous == "m0")
        starts = {row.correlation: row.start for row in connection.execute(query)}
    ledger.engine.dispose()
    assert starts == {row["correlation"]: start for start, (_, row) in BEGINNINGS}


@both()
def test_upgrade_continues_numbers_after_the_greatest(upgraded):
    last = asked(upgraded, log.last)
    with upgraded.change() as connection:
        later = Partition(SHOWN, "later"), "20191125.060000"
        updates.insert(connection, *later, updates.FOREIGN, updates.PUBLISHED, NOW)
    (reported,) = asked(upgraded, event_store.since, {Partition(SHOWN, "later"): 0}).values()
    assert OFFSET < last < reported[0]


@both()
def test_upgrade_keeps_all_rows_of_unnumbered_tables(upgraded):
    metadata = sa.MetaData()
    with upgraded.read() as connection:
        metadata.reflect(connection)
        for table in ("batch", "consumed", "run", "event", "marker", "alert", "event_reject"):
            found = connection.execute(sa.select(sa.func.count()).select_from(metadata.tables[table])).scalar_one()
            assert found == sum(name == table for name, _ in ROWS)
        states = connection.execute(sa.text("SELECT DISTINCT state FROM update_")).scalars().all()
    assert {*states} == {"claimed", "published", "refused", "abandoned", "invalidated", "pruned"}

"""Reports about windows that cannot be accepted: each is refused and kept with its reason, and harms no other one."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import InvalidName
from feed_assets.core.events import LAST_VERSION, encode
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import event_rejects
from feed_assets.ledger.states import count_reports, window_policies, window_queries
from feed_assets.ledger.tables import dataset
from feed_assets.ledger.update_counts import COUNTER
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW, last_sequence, part, source

AT = HOUR_15[0]
OTHER = Feed.parse("web/other")
FIVE = WindowAddress(FOO, "", "5min", "2026-01-01-15:00")


def reasons(outcome):
    return [each.reason for each in outcome.rejected]


def row(ledger, address=FIVE):
    with ledger.read() as connection:
        return window_queries.stored_windows(connection, [address])[address]


def test_report_that_overflows_a_sum_is_refused_alone(ledger):
    huge = part("huge", {AT: LAST_VERSION})
    given = [part("first", {AT: 5}), *(part(f"part-{number}", {AT: 1}, dataset=OTHER) for number in range(5)), huge]
    found = count_reports.report(ledger, given, NOW)
    assert (found.accepted, len(found.rejected)) == (6, 1)
    assert "its records are more than 9223372036854775807" in reasons(found)[0]
    assert row(ledger).records == 5
    with ledger.read() as connection:
        assert len(event_rejects.rejects(connection, 10)) == 1


def test_declaration_that_overflows_a_sum_is_refused_for_its_dataset_alone(ledger):
    given = [part("a", {AT: LAST_VERSION}, sub_partition="region=a"), part("b", {AT: 1}, sub_partition="region=b")]
    assert count_reports.report(ledger, given, NOW).accepted == 2
    both = Tracked.of(Completeness(), Regions({"a": "UTC", "b": "UTC"}))
    refused = window_queries.declare(ledger, {FOO: both, OTHER: both}, NOW)
    assert "its records are more than" in str(refused[FOO])
    with ledger.read() as connection:
        known = window_policies.tracked(connection, [FOO, OTHER])
    assert (known[FOO].members, known[OTHER]) == ({}, both)


def test_dataset_keeps_the_settings_of_its_first_report(ledger, monkeypatch):
    count_reports.report(ledger, [part("part", {AT: 5})], NOW)
    monkeypatch.setenv("FEED_ASSETS_STATE_GRAINS", "hour,day")
    window_policies.settings.cache_clear()
    found = count_reports.report(
        ledger, [part("part", {HOUR_15[1]: 5}, version=1), part("p", {HOUR_15[1]: 1}, dataset=OTHER)], NOW
    )
    monkeypatch.undo()
    window_policies.settings.cache_clear()
    assert (found.accepted, "is not the start of a window of 'hour'" in reasons(found)[0]) == (1, True)
    assert row(ledger, FIVE._replace(key="2026-01-01-15:05")).records == 5


def test_part_versions_are_moments_or_numbers_and_not_both(ledger):
    moment = replace(part("part", {AT: 1}), version=encode(datetime(2026, 1, 1, tzinfo=UTC)))
    count_reports.report(ledger, [part("part", {AT: 2}), moment], NOW)
    found = count_reports.report(ledger, [part("part", {AT: 3}, version=2**62)], NOW)
    assert "expected either times or whole numbers, not both" in reasons(found)[0]
    assert row(ledger).records == 1


def test_dataset_made_here_is_counted_by_its_runs_alone(ledger):
    window_queries.declare(ledger, {FOO: replace(Tracked.of(Completeness()), is_ours=True)}, NOW)
    found = count_reports.report(ledger, [part("oops", {AT: 5}), *source({AT: 5})], NOW, "ada")
    assert (found.accepted, reasons(found)) == (
        1,
        ["foo is built by our runs, which report its records. Report the counts of its sources."],
    )
    assert count_reports.report(ledger, [part("2026-01-01", {AT: 5})], NOW, COUNTER).accepted == 1
    assert row(ledger).state is WindowState.COMPLETE


def test_a_tier_that_is_not_declared_is_refused(ledger):
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(tiers=("kafka",)))}, NOW)
    found = count_reports.report(ledger, source({AT: 5}, tier="kafak"), NOW)
    assert reasons(found) == ["tier 'kafak': expected one of kafka, as declared."]


def test_acceptance_of_an_unknown_window_is_refused(ledger):
    with pytest.raises(InvalidName, match="nothing is known of foo"):
        window_queries.accept(ledger, FIVE, "why", "ada", NOW)
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(), Regions({"a": "UTC"}))}, NOW)
    for sub_partition in ("region=b", "x=y"):
        with pytest.raises(InvalidName, match="expected one of region=a"):
            window_queries.accept(ledger, FIVE._replace(sub_partition=sub_partition), "why", "ada", NOW)
        with pytest.raises(InvalidName, match="expected one of region=a"):
            window_queries.report_quality(
                ledger, FIVE._replace(sub_partition=sub_partition), "c", "failed", "why", "ada", NOW
            )
    with pytest.raises(InvalidName, match="is not a window of the grain 5min"):
        window_queries.accept(
            ledger, FIVE._replace(sub_partition="region=a", key="2026-01-01-15:01"), "why", "ada", NOW
        )
    assert last_sequence(ledger) == 0


def test_a_failed_check_makes_an_accepted_window_invalid(ledger):
    count_reports.report(ledger, [part("part", {AT: 1})], NOW)
    window_queries.accept(ledger, FIVE, "why", "ada", NOW)
    window_queries.report_quality(ledger, FIVE, "no_bots", "failed", "bots", "dq", NOW)
    assert row(ledger).state is WindowState.INVALID
    window_queries.report_quality(ledger, FIVE, "no_bots", "passed", None, "dq", NOW)
    assert row(ledger).state is WindowState.COMPLETE


def test_duplicates_are_seen_in_a_window_that_was_accepted(ledger):
    count_reports.report(ledger, [*source({AT: 5}), part("part", {AT: 1})], NOW)
    window_queries.accept(ledger, FIVE, "why", "ada", NOW)
    count_reports.report(ledger, [part("more", {AT: 9})], NOW)
    assert row(ledger).state is WindowState.COMPLETE_WITH_ISSUE


def test_dataset_has_the_schema_of_its_newest_report(ledger):
    schemas = {1: "a int", 3: "a int, b int", 2: "a bigint"}
    for version, schema in schemas.items():
        count_reports.report(ledger, [replace(part(f"part-{version}", {AT: 1}, version), schema=schema)], NOW)
    with ledger.read() as connection:
        assert connection.execute(sa.select(dataset.c.schema)).scalar_one() == "a int, b int"
    both = [replace(part(f"new-{version}", {AT: 1}, version), schema=f"v{version}") for version in (5, 4)]
    count_reports.report(ledger, both, NOW)
    with ledger.read() as connection:
        assert connection.execute(sa.select(dataset.c.schema)).scalar_one() == "v5"


def test_producer_reports_replace_counts_of_our_runs(ledger):
    counted = [part(key, {AT: 5}, version=7) for key in ("2026-01-01/men", "2026-01-01/women")]
    count_reports.report(ledger, counted, NOW, COUNTER)
    count_reports.report(ledger, source({AT: 10}), NOW, "producer")
    assert row(ledger).state is WindowState.COMPLETE
    count_reports.report(ledger, [part("s3://lake/all", {AT: 10})], NOW, "producer")
    assert (row(ledger).records, row(ledger).state) == (10, WindowState.COMPLETE)
    count_reports.report(ledger, [part("s3://lake/more", {AT: 1})], NOW, "producer")
    assert row(ledger).records == 11

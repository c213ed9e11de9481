"""Runs of one output: one at a time, and the attempts that the end of a run settles."""

from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from feed_assets.core.errors import AlreadyRunning, PartitionClosed
from feed_assets.core.pins import Pin
from feed_assets.ledger import closures, log, quality, runs, updates
from feed_assets.ledger.run_changes import run_changes
from feed_assets_tests.support.ledger_records import (
    CLICKED,
    EFFECT,
    MINUTE,
    NOW,
    SHOWN,
    attempt,
    claim,
    new_run,
    publish,
)


def open_attempts(ledger, output=EFFECT):
    with ledger.read() as connection:
        return [(run.id, run.state) for run in runs.open_attempts(connection, [output])]


def test_second_run_of_an_output_is_refused_and_names_the_first(ledger):
    runs.start(ledger, new_run("first"))
    with pytest.raises(AlreadyRunning, match=r"built by run first in process host:1:0.00 since 2019-11-25 06:00:00"):
        runs.start(ledger, new_run("second"))


def test_runs_of_other_outputs_do_not_wait(ledger):
    runs.start(ledger, new_run("first"))
    runs.start(ledger, new_run("second", CLICKED))
    with ledger.read() as connection:
        assert {run.id for run in runs.running(connection)} == {"first", "second"}
        assert [run.id for run in runs.running(connection, CLICKED)] == ["second"]


@pytest.mark.parametrize("state", [updates.PUBLISHED, updates.REFUSED, runs.UNCHANGED, runs.FAILED, updates.ABANDONED])
def test_an_output_whose_run_has_ended_can_be_built_again(ledger, state):
    attempt(ledger, "first", state)
    runs.start(ledger, new_run("second"))
    with ledger.read() as connection:
        assert [run.id for run in runs.running(connection, EFFECT)] == ["second"]


def test_refusal_names_the_running_run_by_its_dagster_id(ledger):
    runs.start(ledger, replace(new_run("ours"), dagster_run="of-dagster"))
    with pytest.raises(AlreadyRunning, match="is being built by run of-dagster in process"):
        runs.start(ledger, new_run("second"))


def test_reused_run_id_is_refused(ledger):
    runs.start(ledger, new_run("same"))
    with pytest.raises(IntegrityError):
        runs.start(ledger, new_run("same", CLICKED))


def test_attempts_are_failed_runs_since_the_last_good_one_in_order(ledger):
    attempt(ledger, "a", runs.FAILED, started=NOW)
    attempt(ledger, "b", updates.PUBLISHED, started=NOW + MINUTE)
    attempt(ledger, "d", updates.REFUSED, started=NOW + 3 * MINUTE)
    attempt(ledger, "c", runs.FAILED, started=NOW + 2 * MINUTE)
    runs.start(ledger, new_run("e", started=NOW + 4 * MINUTE))
    assert open_attempts(ledger) == [("c", runs.FAILED), ("d", updates.REFUSED)]


@pytest.mark.parametrize("good", [updates.PUBLISHED, runs.UNCHANGED])
def test_good_run_clears_earlier_attempts(ledger, good):
    attempt(ledger, "refused", updates.REFUSED)
    attempt(ledger, "failed", runs.FAILED)
    attempt(ledger, "good", good)
    assert open_attempts(ledger) == []


def test_good_run_keeps_attempts_of_other_outputs(ledger):
    attempt(ledger, "refused", updates.REFUSED, CLICKED)
    attempt(ledger, "good", updates.PUBLISHED)
    assert open_attempts(ledger, CLICKED) == [("refused", updates.REFUSED)]


@pytest.mark.parametrize(("bad", "counts"), [(runs.FAILED, True), (updates.REFUSED, True), (updates.ABANDONED, False)])
def test_failed_and_refused_runs_are_attempts_and_abandoned_ones_are_not(ledger, bad, counts):
    attempt(ledger, "refused", updates.REFUSED)
    attempt(ledger, "bad", bad, started=NOW + MINUTE)
    assert open_attempts(ledger) == [("refused", updates.REFUSED)] + [("bad", bad)] * counts


def test_late_success_of_an_old_run_keeps_a_newer_refusal(ledger):
    """Its manifest was put and the answer lost. The next run started before the next check, and is refused."""
    attempt(ledger, "lost", runs.FAILED)
    runs.start(ledger, new_run("now"))
    with ledger.change() as connection:
        runs.end(connection, "lost", updates.PUBLISHED, NOW, None)
        runs.end(connection, "now", updates.REFUSED, NOW, "not_empty")
    assert open_attempts(ledger) == [("now", updates.REFUSED)]


def test_run_row_is_unchanged_until_the_run_ends(ledger):
    runs.start(ledger, new_run("one"))
    with ledger.change() as connection:
        (read,) = runs.running(connection)
        before = runs.is_as_read(connection, read)
        runs.end(connection, "one", updates.REFUSED, NOW, "not_empty")
        assert (before, runs.is_as_read(connection, read)) == (True, False)


def test_only_ended_runs_with_claimed_updates_have_something_left_to_settle(ledger):
    claim(ledger, "open", (EFFECT, "20191125.060000"))
    attempt(ledger, "open", runs.FAILED)
    attempt(ledger, "without claims", runs.FAILED)
    runs.start(ledger, new_run("running"))
    claim(ledger, "running", (EFFECT, "20191125.060001"))
    with ledger.read() as connection:
        assert [run.id for run in runs.with_claims(connection)] == ["open"]


def test_run_has_its_pins_from_the_pinning_on(ledger):
    runs.start(ledger, new_run("one"))
    with ledger.change() as connection:
        before = runs.running(connection)[0].pins
        runs.pinned(connection, "one", "digest")
        assert (before, runs.running(connection)[0].pins) == (None, "digest")


def test_log_has_beginnings_and_ends_of_runs_for_readers_of_runs_alone(ledger):
    attempt(ledger, "one", runs.FAILED)
    runs.start(ledger, new_run("two"))
    with pytest.raises(AlreadyRunning):
        runs.start(ledger, new_run("three"))
    with ledger.read() as connection:
        told = run_changes(connection, 0, 9)
        assert [(each.run.id, each.state, each.why) for each in told] == [
            ("one", runs.RUNNING, None),
            ("one", runs.FAILED, "why one failed"),
            ("two", runs.RUNNING, None),
        ]
        assert [each.run.id for each in run_changes(connection, told[1].sequence, 9)] == ["two"]
        assert log.after(connection, 0, log.last(connection), 9) == ()
        assert log.last_of(connection, [EFFECT]) == {EFFECT: 0}


def test_run_report_excludes_findings_after_its_end(ledger):
    runs.start(ledger, new_run("one"))
    claim(ledger, "one", (EFFECT, "20191125.060000"), pins=(Pin(SHOWN, "20191125.050000", "a"),))
    publish(ledger, "one", EFFECT, "20191125.060000")
    said = [(SHOWN, "before", "dq", NOW), (SHOWN, "until then", "dq", NOW + MINUTE), (EFFECT, "its own", "one", NOW)]
    said += [(SHOWN, "after", "dq", NOW + 2 * MINUTE), (EFFECT, "of others", "dq", NOW)]
    with ledger.change() as connection:
        for at, check, by, when in said:
            quality.report(connection, at, check, quality.WARNED, "odd", by, when)
        runs.end(connection, "one", updates.PUBLISHED, NOW + MINUTE, None)
    with ledger.read() as connection:
        (_, ended) = run_changes(connection, 0, 9)
    found, known = ([each.check for each in some] for some in (ended.output_findings, ended.input_findings))
    assert (found, known) == (["its own"], ["before", "until then"])


def test_run_of_a_closed_partition_is_refused_and_names_who_closed_it(ledger):
    closures.close(ledger, [EFFECT], "2019 is final", "alice", NOW)
    with pytest.raises(PartitionClosed, match="is closed by alice at 2019-11-25 06:00 UTC: 2019 is final"):
        runs.start(ledger, new_run("one"))
    with ledger.read() as connection:
        assert runs.running(connection) == ()
    closures.reopen(ledger, [EFFECT], "it is not", "bob", NOW)
    runs.start(ledger, new_run("two"))

"""Lines that `feed-assets ui` prints while it works, from the ledger that all its processes write."""

from datetime import timedelta

from feed_assets.cli.ui_lines import UiLines
from feed_assets.ledger import alerts, runs, updates
from feed_assets_tests.support.ledger_records import CLICKED, EFFECT, NOW, attempt, new_run


def new_lines(ui_lines: UiLines, said: list[str]) -> list[str]:
    said.clear()
    ui_lines.print_new()
    return [*said]


def test_ui_prints_a_line_for_each_run_that_ends_after_its_start(ledger):
    attempt(ledger, "before", runs.FAILED)
    said: list[str] = []
    ui_lines = UiLines(str(ledger.engine.url), said.append)
    assert new_lines(ui_lines, said) == []
    runs.start(ledger, new_run("going on", CLICKED))
    attempt(ledger, "well", runs.UNCHANGED)
    attempt(ledger, "bad", runs.FAILED)
    assert new_lines(ui_lines, said) == [
        "built   ads/effectiveness 2019-11-24/men: unchanged, 60.0 s",
        "FAILED  ads/effectiveness 2019-11-24/men: why bad failed (run bad)",
    ]
    assert new_lines(ui_lines, said) == []


def test_ui_prints_a_refusal_once_by_its_run_or_at_start_by_its_alert(ledger):
    said: list[str] = []
    ui_lines = UiLines(str(ledger.engine.url), said.append)
    assert new_lines(ui_lines, said) == []
    attempt(ledger, "refused", updates.REFUSED)
    alerts.keep(ledger, "audit", {str(EFFECT.feed): "1 partition refused by the audit."}, NOW)
    (line,) = new_lines(ui_lines, said)
    assert line.startswith("FAILED  ads/effectiveness 2019-11-24/men: why refused refused")
    (line,) = new_lines(UiLines(str(ledger.engine.url), said.append), said)
    assert line == "ALERT   audit:ads/effectiveness/v1.0: 1 partition refused by the audit."


def test_ui_prints_a_line_when_an_alert_opens_and_when_it_ends(ledger):
    alerts.keep(ledger, "person", {str(EFFECT.feed): "1 partition waits."}, NOW)
    said: list[str] = []
    ui_lines = UiLines(str(ledger.engine.url), said.append)
    assert new_lines(ui_lines, said) == ["ALERT   person:ads/effectiveness/v1.0: 1 partition waits."]
    alerts.keep(ledger, "person", {str(EFFECT.feed): "2 partitions wait."}, NOW)
    assert new_lines(ui_lines, said) == []
    alerts.keep(ledger, "person", {}, NOW + timedelta(minutes=30))
    alerts.keep(ledger, "person", {str(EFFECT.feed): "3 partitions wait."}, NOW + timedelta(minutes=40))
    assert new_lines(ui_lines, said) == ["ALERT   person:ads/effectiveness/v1.0: 3 partitions wait."]
    alerts.keep(ledger, "person", {}, NOW + timedelta(hours=1))
    assert new_lines(ui_lines, said) == ["over    person:ads/effectiveness/v1.0"]


def test_an_unreadable_ledger_is_reported_once():
    said: list[str] = []
    ui_lines = UiLines("postgresql+psycopg://127.0.0.1:1/none", said.append)
    (line,) = new_lines(ui_lines, said)
    assert line.startswith("no news of runs: ")
    assert new_lines(ui_lines, said) == []

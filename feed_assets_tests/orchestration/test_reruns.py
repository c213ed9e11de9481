"""Effects of late data are reported once, to the owners of the inputs that changed."""

import json
from dataclasses import replace

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import feed_asset, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import replaced_updates, rerun_effects
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.replaced_updates import Again
from feed_assets.ledger.tables import alert
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.reruns import report_reruns
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.alert_channels import SECRET, web_server
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, RAW, SCHEMA, SUMS, given, harness, rows

pytestmark = pytest.mark.usefixtures("home")

OWNERS = ["team:ads", "partner@example.com"]
TOTAL = {"total": "sum(n)"}


def world(*, code_version="1", instance=None):
    """Build raw -> sums, with the sum of all numbers as its key figure."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA, owners=OWNERS)
    made = feed_asset(SUMS, inputs={"raw": raw}, partitions_def=DAYS, figures=TOTAL, code_version=code_version)

    def give(task) -> Given:
        found = given(task)
        return Given(found.rows, found.rejects, figures={"total": sum(row["n"] for row in found.rows)})

    more = {"instance": instance} if instance else {}
    return harness(raw, made(lambda raw: raw), give=give, **more)


@pytest.fixture
def posted(home, monkeypatch):
    """Return a function that lists the posts to the webhook of the settings."""
    with web_server() as receiver:
        monkeypatch.setenv("FEED_ASSETS_ALERT_WEBHOOK", receiver.url)
        monkeypatch.setenv("FEED_ASSETS_ALERT_SECRET", SECRET)
        settings.cache_clear()
        yield lambda: [json.loads(body) for _, body in receiver.posted]


def unreported_partitions() -> list[Partition]:
    with open_ledger(settings().ledger).read() as connection:
        return [each.partition for each in replaced_updates.unreported(connection)]


def not_yet_told(monkeypatch) -> Harness:
    """Build a day, and rebuild it from late data without reporting it."""
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    made.drop(RAW, DAY, rows(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr("feed_assets.orchestration.ticks.watch.report_reruns", lambda *_: None)
        made.run_until_idle()
    return made


def made_by_other_code(made: Harness) -> Harness:
    """Rebuild the day by hand on the same inputs with other code."""
    again = world(code_version="2", instance=made.instance)
    job = again.definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(partition_key=DAY, instance=made.instance, asset_selection=[dg.AssetKey(["t", "sums"])])
    return again


def test_a_rerun_is_reported_with_inputs_and_output_before_and_after(posted):
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    assert "before and after" not in made.reported("t/sums", DAY)[0].metadata
    assert (posted(), unreported_partitions()) == ([], [])
    made.drop(RAW, DAY, rows(1, 2))
    made.run_until_idle()
    assert "| total | 1 | 3 | +200.0% |" in made.reported("t/sums", DAY)[0].metadata["before and after"]
    (said,) = posted()
    assert f"{RAW}: bytes 8 to 12 (+50.0%); {RAW}: files 1 to 1 (=); total 1 to 3 (+200.0%)" in said["reason"]
    assert (said["state"], said["receivers"]) == ("report", sorted(OWNERS))
    assert unreported_partitions() == []


def test_a_rebuild_on_the_same_inputs_is_not_reported(posted):
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    again = made_by_other_code(made)
    assert Partition(Feed.parse(SUMS), DAY) in unreported_partitions()
    again.run_until_idle()
    assert (posted(), unreported_partitions()) == ([], [])


def test_late_data_are_reported_although_a_rebuild_on_the_same_inputs_followed(posted, monkeypatch):
    made = not_yet_told(monkeypatch)
    again = made_by_other_code(made)
    again.run_until_idle()
    (said,) = posted()
    assert "total 1 to 3 (+200.0%)" in said["reason"]
    assert unreported_partitions() == []


def test_two_ticks_at_once_report_a_rerun_once_even_after_its_delivery(posted, monkeypatch):
    """The second tick has read the notes before the first one removed them, and one more note."""
    made, ledger = not_yet_told(monkeypatch), open_ledger(settings().ledger)
    with ledger.read() as connection:
        (first,) = [each for each in replaced_updates.unreported(connection) if each.partition.feed == Feed.parse(SUMS)]
    other = Again(first.partition, "20990101.000000")
    with ledger.write() as connection:
        replaced_updates.made_again(connection, other, made.now())
    told = replaced_updates.RerunReport(first.partition.feed, "of the first", "1 to 3", ())
    replaced_updates.report(ledger, [first], [told], made.now())
    with ledger.write() as connection:
        connection.execute(sa.delete(alert).where(alert.c.name.startswith("report:")))  # Every channel has sent it.
    replaced_updates.report(ledger, [first], [told], made.now())
    replaced_updates.report(
        ledger,
        [first, other],
        [replaced_updates.RerunReport(first.partition.feed, "of both", "1 to 4", ())],
        made.now(),
    )
    with ledger.read() as connection:
        names = connection.execute(sa.select(alert.c.name)).scalars().all()
    assert [name for name in names if name.startswith("report:")] == []
    assert other.note in names, "the next tick tells it"


def test_partitions_with_the_same_update_id_are_each_reported(posted, monkeypatch):
    monkeypatch.setattr("feed_assets.orchestration.ticks.reruns.UPDATES_PER_TICK", 1)
    made = world()
    clock, of = made.now(), Services.of
    made.now = lambda: clock
    with monkeypatch.context() as patch:
        patch.setattr("feed_assets.orchestration.ticks.watch.report_reruns", lambda *_: None)
        patch.setattr(Services, "of", lambda *given, **named: replace(of(*given, **named), now=lambda: clock))
        for numbers in ([1], [1, 5]):
            for day in (DAY, NEXT_DAY):
                made.drop(RAW, day, rows(*numbers))
            made.run_until_idle()
    ledger = open_ledger(settings().ledger)
    with ledger.read() as connection:
        assert len({each.update for each in replaced_updates.unreported(connection)}) == 1
    while unreported_partitions():  # Real channels are slower than this loop.
        report_reruns(Graph(made.definitions.resolve_asset_graph()), ledger, clock)
    made.run_until_idle()
    assert [said["reason"].partition(":")[0] for said in posted()] == [f"{SUMS} {DAY}", f"{SUMS} {NEXT_DAY}"]


def test_partitions_rebuilt_together_are_one_report(posted):
    made = world()
    for day in (DAY, NEXT_DAY):
        made.drop(RAW, day, rows(1))
    made.run_until_idle()
    for day in (DAY, NEXT_DAY):
        made.drop(RAW, day, rows(1, 5))
    made.run_until_idle()
    (said,) = posted()
    assert [line.partition(":")[0] for line in said["reason"].splitlines()] == [f"{SUMS} {DAY}", f"{SUMS} {NEXT_DAY}"]


def test_a_report_of_a_rerun_opens_and_resolves_no_alert(posted, caplog):
    caplog.set_level("INFO", "feed_assets.alerts")
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    made.drop(RAW, DAY, rows(1, 2))
    made.run_until_idle()
    made.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        assert open_alerts(connection) == ()
        assert connection.execute(sa.select(sa.func.count()).select_from(alert)).scalar() == 0
    assert len(posted()) == 1
    assert [each.getMessage().split("|")[0] for each in caplog.records if each.name == "feed_assets.alerts"] == [
        f"Report report:{SUMS}"
    ]


def test_a_rerun_is_noted_with_its_publication_so_a_kill_loses_no_report(posted, monkeypatch):
    made = not_yet_told(monkeypatch)
    assert Partition(Feed.parse(SUMS), DAY) in unreported_partitions()
    assert posted() == []
    made.run_until_idle()
    assert len(posted()) == 1


def test_a_rerun_during_the_writing_of_its_report_stays_noted():
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    ledger, at = open_ledger(settings().ledger), Partition(Feed.parse(SUMS), DAY)
    with ledger.write() as connection:
        replaced_updates.made_again(connection, Again(at, "20200102.000000"), made.now())
    with ledger.read() as connection:
        seen = replaced_updates.unreported(connection)
    with ledger.write() as connection:
        replaced_updates.made_again(connection, Again(at, "20200102.000001"), made.now())
    replaced_updates.report(ledger, seen, [], made.now())
    assert unreported_partitions() == [at]


def test_the_first_update_has_no_rerun_effect():
    made = world()
    made.drop(RAW, DAY, rows(1))
    made.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        assert rerun_effects.effect(connection, Partition(Feed.parse(SUMS), DAY)) is None


@pytest.mark.parametrize("name", ["records", "bytes", "files"])
def test_a_key_figure_named_like_a_built_in_one_is_refused(name):
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA)
    with pytest.raises(InvalidDefinition, match=f"key figure {name}: expected another name"):
        feed_asset(SUMS, inputs={"raw": raw}, partitions_def=DAYS, figures={name: "count(1)"})(lambda raw: raw)

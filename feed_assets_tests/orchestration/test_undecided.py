"""A dataset that cannot be decided is named by the runner, and decided as soon as it can be."""

import sqlalchemy as sa

from feed_assets import Input, LineageTable
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.ticks.watch import UNDECIDED
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.orchestration.failing_parts import (
    NOWHERE,
    Broken,
    BrokenDown,
    by_events,
    plain,
    tables_of,
)
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, outcomes, raw_feed, rows, sums_of

LOST = "gamma/lost/v1.0"


def test_a_lineage_table_out_of_reach_names_its_dataset_until_it_answers(tmp_path):
    """`run` retries at once; the daemon's ticks do so only after five minutes."""
    team, away = Team(tmp_path), sa.create_engine(f"sqlite:///{tmp_path / 'lineage.db'}")
    tables = tables_of(team.source)
    healthy = by_events("healthy", tables, {"p": ["team/a", "team/b"]})
    world = plain(*tables.values(), healthy, by_events("lost", tables, LineageTable(str(away.url), "lineage")))
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert outcomes(world.run_until_idle()) == [("gamma/healthy", None, True)]
    ((dataset, why),) = world.runner.undecided().items()
    assert (str(dataset), "There is no SQLite database" in why) == (LOST, True)
    with away.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE lineage (pipeline TEXT, table_name TEXT)")
        connection.exec_driver_sql("INSERT INTO lineage VALUES ('p', 'a'), ('p', 'b')")
    away.dispose()
    assert outcomes(world.run_until_idle()) == [("gamma/lost", None, True)]
    assert world.runner.undecided() == {}


def test_a_repaired_mapping_is_applied_to_earlier_changes_at_the_next_run():
    """After the repair the ledger has the change, but no output that it affects."""
    raw = raw_feed()
    world = plain(raw, sums_of(Input(raw, mapping=BrokenDown())))
    world.drop(RAW, DAY, rows(1))
    assert world.run_until_idle() == []
    assert [*map(str, world.runner.undecided())] == [SUMS]
    mended = plain(raw, sums_of(raw))
    assert outcomes(mended.run_until_idle()) == [("sums", DAY, True)]
    assert mended.runner.undecided() == {}


def test_undecided_datasets_of_another_code_location_are_not_named():
    raw = raw_feed()
    world = plain(raw, sums_of(raw))
    alerts.keep(open_ledger(settings().ledger), UNDECIDED, {"other/team/v1.0": "it is theirs"}, world.now())
    assert f"{UNDECIDED}:other/team/v1.0" in open_reasons()
    assert world.runner.undecided() == {}


def test_only_errors_of_user_code_have_a_traceback_in_the_log(tmp_path, caplog):
    team, raw = Team(tmp_path), raw_feed()
    tables = tables_of(team.source)
    lost = by_events("lost", tables, LineageTable(NOWHERE, "lineage"))
    world = plain(*tables.values(), lost, raw, sums_of(Input(raw, mapping=Broken())))
    world.drop(RAW, DAY, rows(1))
    team.publish(("a", "X", 1), ("b", "X", 7))
    world.run_until_idle()
    assert sorted(map(str, world.runner.undecided())) == [LOST, SUMS]
    traced = {record.getMessage() for record in caplog.records if record.exc_info}
    assert traced == {f"the decision about {SUMS} {DAY} failed"}

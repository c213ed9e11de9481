"""A Harness reaches only what its test gives: no database, broker, partner, sink or mail server."""

import re
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import (
    ByEvents,
    Columns,
    EventFiles,
    EventSource,
    EventTopic,
    LineageTable,
    Pull,
    SqlTable,
    event_table,
    feed_asset,
    foreign_feed,
    kafka_topic,
    warehouse_table,
    with_automation,
)
from feed_assets.core.errors import InvalidDefinition, SourceNotGiven
from feed_assets.testing import Given, Harness, PlainMaker, environment, fresh_home
from feed_assets.testing.results import Ran
from feed_assets_tests.support.each_case import each_case

DAYS = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
COLUMNS = Columns(partition_key=None, context=None, event_marker=None, write_operation=None)
CRM = EventSource("crm", (SqlTable("postgresql://reader@crm/prod", "events", "id", COLUMNS),))
VARIABLE = "env:CRM_OF_SOMEBODY"
BY_VARIABLE = EventSource("by_variable", (SqlTable(VARIABLE, "events", "id", COLUMNS),))
CLICKS = kafka_topic("ads/clicks", topic="clicks", key=["id"])
NIGHT = datetime(2020, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE.removeprefix("env:"), "sqlite://")  # as definitions do that load a `.env.prod`
    with fresh_home(tmp_path / "home") as folder:
        yield folder


def by_events(table, pipelines=None, name="shop/customers/v1.0"):
    @feed_asset(name, inputs={"table": table}, by_events=ByEvents(pipelines=pipelines))
    def customers(table):
        pytest.fail("a PlainMaker calls no function")

    return customers


def visits(source=CRM):
    return event_table("crm/visits", source=source, table_name="visits")


def row(number):
    return {"table_name": "visits", "marker": NIGHT.replace(hour=number), "correlation_id": f"load {number}"}


def harness(*assets, **options):
    definitions = with_automation(dg.Definitions(assets=[*assets]))
    return Harness(definitions, maker=PlainMaker(given), **options)


def given(task):
    return Given([{"end": piece.end} for pieces in task.slices.values() for piece in pieces])


def built(runs: list[Ran]):
    return [run.assets[0] for run in runs if run.succeeded]


REACHING = {
    "crm": [visits()],
    "by_variable": [visits(BY_VARIABLE)],
    "t/lineage/v1.0": [by_events(visits(), LineageTable(VARIABLE, "pipelines"), "t/lineage/v1.0")],
    "queue": [event_table("t/q", source=EventSource("queue", (EventTopic("events"),)))],
    "topic_clicks": [CLICKS],
    "warehouse_main": [CLICKS, warehouse_table("main/clicks", topic=CLICKS, warehouse="main")],
    "partner": [foreign_feed("p/raw/v1.0", schema="n int", blackboard="partner")],
    "women": [
        foreign_feed("p/pulled/v1.0", partitions_def=DAYS, schema="n int", intake=Pull("women", "%Y-%m-%d/*.csv"))
    ],
    "theirs": [event_table("t/f", source=EventSource("files", (EventFiles("e", "csv", blackboard="theirs"),)))],
    "shop/customers/v1.0": [by_events(visits(), LineageTable("postgresql://crm/prod", "pipelines"))],
}


@each_case(("name", "assets"), REACHING.items())
def test_a_source_that_reaches_out_is_refused_by_name(name, assets):
    with pytest.raises(SourceNotGiven, match=rf"reads only what the test gives, and not .*{name} \(") as refused:
        harness(*assets)
    assert "sources=" in str(refused.value)
    frames = [frame.name for frame in refused.traceback.filter(refused)]
    assert frames[-2:] == ["harness", "__init__"], "pytest shows the line of the test, and none of ours"


SETTINGS = [
    ("DAGSTER_HOME", "/here/home"),
    ("FEED_ASSETS_LEDGER", "sqlite:///here.db"),
    ("FEED_ASSETS_LEDGER", "sqlite:///there.db"),
    ("FEED_ASSETS_EVENTS_TO", "blackboard:events"),
    ("FEED_ASSETS_ALERT_SMTP", "smtp://mail.example"),
    ("FEED_ASSETS_ALERT_APPRISE", "json://alerts.example"),
]


@each_case(("variable", "value"), SETTINGS)
def test_settings_of_the_shell_are_refused_and_those_of_the_test_accepted(variable, value, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        # A program that loads a `.env` file takes ${PLACE} from the file, or from the shell.
        patch.setenv("PLACE", "there")
        (tmp_path / ".env").write_text(f"PLACE=here\n{variable}={re.sub('t?here', '${PLACE}', value)}\n")
        patch.chdir(tmp_path)
        _, *of_file = environment._of_the_shell()
        patch.setenv(variable, value)
        harness(foreign_feed("t/raw/v1.0", schema="n int"))
        for of_shell in (of_file, [{variable: value}]):
            patch.setattr(environment, "_ENVIRONMENTS", of_shell)
            with pytest.raises(SourceNotGiven, match=f"would use {variable} of this shell"):
                harness(foreign_feed("t/raw/v1.0", schema="n int"))


def test_the_home_of_the_project_is_refused(monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.raises(SourceNotGiven, match=r"would use /.*\.feed_assets, the home of `feed-assets run`"):
        harness(foreign_feed("t/raw/v1.0", schema="n int"))


USES = {
    "board": lambda left: left.board,
    "runner": lambda left: left.runner,
    "drop": lambda left: left.drop("t/raw/v1.0", "", "n\n1\n"),
    "send": lambda left: left.send("crm", [row(1)]),
    "invalidate": lambda left: left.invalidate("t/raw/v1.0", "", "20200101.000000"),
    "revalidate": lambda left: left.revalidate("t/raw/v1.0", "", "20200101.000000"),
    "newest": lambda left: left.newest("t/raw/v1.0"),
    "rows": lambda left: left.rows("t/raw/v1.0"),
    "ask": lambda left: left.ask(),
    "tick": lambda left: left.tick(),
    "run_until_idle": lambda left: left.run_until_idle(),
}


@each_case(("method", "use"), USES.items())
def test_a_harness_that_outlives_its_home_is_refused(method, use, tmp_path):
    sources = {"crm": [row(1)]}
    with TemporaryDirectory(dir=tmp_path) as folder:
        with fresh_home(Path(folder) / "left"):
            left = harness(foreign_feed("t/raw/v1.0", schema="n int"), visits(), sources=sources)
        with pytest.raises(SourceNotGiven, match=r"in .*/left, which the test has left.*`yield harness`"):
            use(left)


def test_given_rows_are_events_and_further_ones_may_follow():
    with harness(visits(), by_events(visits()), sources={"crm": [row(1)]}) as driven:
        assert built(driven.run_until_idle()) == ["shop/customers"]
        assert built(driven.run_until_idle()) == []
        driven.send("crm", [row(2), row(3)])
        assert built(driven.run_until_idle()) == ["shop/customers"]


def test_a_file_a_url_and_a_variable_of_the_test_are_read_in_place_of_the_source(tmp_path):
    (tmp_path / "events.csv").write_text("table_name,marker,correlation_id\nvisits,2020-01-02T01:00:00Z,load 1\n")
    url = f"sqlite:///{tmp_path / 'crm.db'}"
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as database:
        database.exec_driver_sql("CREATE TABLE events (id INTEGER, table_name TEXT, marker TEXT, correlation_id TEXT)")
        database.exec_driver_sql("INSERT INTO events VALUES (1, 'visits', '2020-01-02T01:00:00Z', 'load 1')")
    of_test = EventSource("crm", (SqlTable("env:CRM_OF_THE_TEST", "events", "id", COLUMNS),))
    ways = [(CRM, tmp_path / "events.csv"), (CRM, url), (CRM, of_test), (of_test, None)]
    for number, (declared, source) in enumerate(ways):
        options = {} if source is None else {"sources": {"crm": source}}
        with fresh_home(tmp_path / f"home {number}"), pytest.MonkeyPatch.context() as patch:
            patch.setenv("CRM_OF_THE_TEST", url)
            with harness(visits(declared), by_events(visits(declared)), **options) as driven:
                assert built(driven.tick()) == ["shop/customers"]


def test_a_topic_given_as_rows_needs_no_broker():
    rows = [{"table_name": "clicks", "marker": 10, "correlation_id": "clicks/0/10", "partition_key": "0"}]
    with harness(CLICKS, by_events(CLICKS), sources={"topic_clicks": rows}) as driven:
        assert built(driven.run_until_idle()) == ["shop/customers"]
        assert driven.runner.failing() == {}


def test_a_blackboard_of_others_is_given_as_a_folder_until_the_end(tmp_path):
    (tmp_path / "partner").mkdir()
    with harness(*REACHING["partner"], sources={"partner": tmp_path / "partner"}) as driven:
        driven.drop("p/raw/v1.0", "", "n\n1\n")
        assert [*(tmp_path / "partner").rglob("_SUCCESS")]
    with pytest.raises(SourceNotGiven, match="partner"):
        harness(*REACHING["partner"])


def test_rows_of_a_slice_are_read_from_a_database_of_the_test_alone(spark, tmp_path, monkeypatch):
    url, table = f"sqlite:///{tmp_path / 'crm.db'}", visits()
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as database:
        database.exec_driver_sql("CREATE TABLE visits (n INTEGER, at TEXT)")
        database.exec_driver_sql("INSERT INTO visits VALUES (1, '2020-01-02T00:30:00Z')")

    @feed_asset("shop/customers/v1.0", inputs={"visits": table}, by_events=ByEvents())
    def customers(visits):
        return visits.read(spark, VARIABLE, "visits", by="at")

    definitions = with_automation(dg.Definitions(assets=[table, customers]))
    monkeypatch.setenv(VARIABLE.removeprefix("env:"), url)
    with Harness(definitions, sources={"crm": [row(1)]}) as driven:
        assert built(driven.tick()) == ["shop/customers"]
        assert driven.rows("shop/customers/v1.0") == [{"n": 1, "at": "2020-01-02T00:30:00Z"}]
        driven.send("crm", [row(2)])
        monkeypatch.setattr(environment, "_ENVIRONMENTS", [{VARIABLE.removeprefix("env:"): url}])
        refused = driven.tick()[0].error
    assert "a Harness reads only what the test gives, and not the SQL table visits at env:CRM_OF_SOMEBODY" in refused


def test_pipelines_are_given_as_rows():
    table = visits()
    lineage = LineageTable("postgresql://crm/prod", "pipelines")
    sources = {"crm": [row(1)], "shop/customers/v1.0": [{"pipeline": "nightly", "table_name": "visits"}]}
    with harness(table, by_events(table, lineage), sources=sources) as driven:
        assert built(driven.run_until_idle()) == ["shop/customers"]


@each_case(
    ("sources", "said"),
    [
        ({"crn": []}, "sources has 'crn': expected a source of these definitions, crm"),
        ({"crm": [{"marker": 1}]}, "expected table_name, correlation_id, too"),
        ({"crm": VARIABLE}, "gives 'crm' as env:CRM_OF_SOMEBODY, a variable that the"),
        ({"crm": BY_VARIABLE}, "gives 'crm' as env:CRM_OF_SOMEBODY, a variable that the"),
        ({"crm": LineageTable(VARIABLE, "pipelines")}, "gives 'crm' as env:CRM_OF_SOMEBODY, a variable that the"),
        ({"topic_clicks": "sqlite://", "crm": []}, "does not read a SQL database: expected rows or a path"),
    ],
)
def test_unreadable_given_sources_are_refused(sources, said):
    with pytest.raises(SourceNotGiven, match=said):
        harness(visits(), CLICKS, sources={"topic_clicks": [], "crm": []} | sources)


def test_a_selection_drives_its_assets_with_what_they_are_made_of_and_no_others():
    raw = foreign_feed("t/raw/v1.0", schema="n int")

    @feed_asset("t/sums/v1.0", inputs={"raw": raw})
    def sums(raw):
        pytest.fail("a PlainMaker calls no function")

    @feed_asset("t/picked/v1.0", inputs={"sums": sums})
    def picked(sums):
        pytest.fail("a PlainMaker calls no function")

    assets = [raw, sums, picked, visits(), by_events(visits())]
    with harness(*assets, selection="t/sums") as driven:
        driven.drop("t/raw/v1.0", "", "n\n1\n")
        assert built(driven.run_until_idle()) == ["t/sums"]
        assert "events_crm" not in {sensor.name for sensor in driven.definitions.sensors}
    with harness(*assets, selection="t/sums+") as driven:
        assert built(driven.run_until_idle()) == ["t/picked"]
    with pytest.raises(InvalidDefinition, match=r"the selection t/nothing has no dataset: expected some of .*t/picked"):
        harness(*assets, selection="t/nothing")

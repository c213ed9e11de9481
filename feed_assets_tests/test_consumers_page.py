"""The code of docs/consumers.md: a consumer outside of Dagster that follows the events of our sensors."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.maker import Task
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker

TEXT = (Path(__file__).parents[1] / "docs" / "consumers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
DDL, QUERY = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
DAYS = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-04")
DAY, NEXT_DAY = "2020-01-01", "2020-01-02"
RAW, SUMS, PICKED = "t/raw/v1.0", "t/sums/v1.0", "t/picked/v1.0"
NEEDED = {SUMS, PICKED}


@pytest.fixture(scope="module")
def page() -> Iterator[SimpleNamespace]:
    """Provide the names that the page's code makes, except its last dataset; close its databases, as an exit would."""
    names: dict[str, Any] = {}
    for block in BLOCKS[:-1]:
        exec(compile(block, "<docs/consumers.md>", "exec"), names)  # noqa: S102
    opened, marker = list[Any](), names["Marker"]
    names["Marker"] = lambda path: opened.append(made := marker(path)) or made
    yield SimpleNamespace(**names)
    for each in opened:
        each.state.close()


def makes(*, picks: bool = True, give: Callable[[Task], Given] | None = None) -> Harness:
    """Return raw -> sums -> picked, or without picked."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="k string, n int")
    sums = feed_asset(SUMS, partitions_def=DAYS, inputs={"raw": raw})(
        lambda raw: raw.groupBy("k").sum("n").selectExpr("k", "`sum(n)` AS n")
    )
    picked = feed_asset(PICKED, partitions_def=DAYS, inputs={"sums": sums})(lambda sums: sums.where("n > 0"))
    definitions = with_automation(dg.Definitions(assets=[raw, sums, *([picked] if picks else [])]))
    return Harness(definitions, maker=PlainMaker(give) if give else None)


class Consumer:
    """The consumer of the page, and the files given to its work."""

    def __init__(self, page: SimpleNamespace, place: Any, paths: Any, state: Path) -> None:
        self.page, self.place, self.paths, self.state = page, place, paths, state
        self.worked: list[tuple[str, dict[str, list[str]]]] = []
        self.killed = False

    def step(self) -> list[str]:
        """Run one step in a new process."""
        return self.page.step(self.page.Marker(self.state), self.place, NEEDED, self.paths, self._work)

    def _work(self, partition: str, files: dict[str, list[str]]) -> None:
        self.worked.append((partition, files))
        if self.killed:
            raise KeyboardInterrupt

    def ids(self) -> list[tuple[str, dict[str, str]]]:
        """Return the processed partitions, with the update of each table."""
        return [
            (partition, {table: paths[0].split("/")[-2] for table, paths in files.items()})
            for partition, files in self.worked
        ]


@pytest.fixture(params=["table", "files", "files on S3", "table, by read"])
def world(
    request: pytest.FixtureRequest, page: SimpleNamespace, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Harness, Consumer]]:
    """Our sensors, and a consumer of their events."""
    store = page.Disk(home / "blackboard")
    place, paths, url = page.OnBlackboard(store), page.paths_in(store), "blackboard:events"
    if request.param == "files on S3":
        board: Blackboard = request.getfixturevalue("s3_board")
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", board.url)
        monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", request.getfixturevalue("s3_env").endpoint)
        store = page.Bucket(request.getfixturevalue("s3_env").client(), *board.url.removeprefix("s3://").split("/", 1))
        place, paths = page.OnBlackboard(store), page.paths_in(store)
    if request.param.startswith("table"):
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        place, url = page.InDatabase(url), f"{url}#events"
    if request.param == "table, by read":
        paths = page.paths_by_read
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", url)
    settings.cache_clear()
    with makes(give=given) as harness:
        harness.ask(name="watch")
        yield harness, Consumer(page, place, paths, tmp_path / "consumer.db")


def given(_: Task, numbers: Iterator[int] = count()) -> Given:  # noqa: B008 - one for all, so that no two are equal.
    return Given([{"k": "a", "n": next(numbers)}])


def dropped(harness: Harness, day: str, number: int) -> dict[str, str]:
    """Publish an update, and let it reach all tables; return its updates by table."""
    harness.drop(RAW, day, f"k,n\na,{number}\n")
    assert all(run.succeeded for run in harness.run_until_idle())
    harness.ask(name="watch")
    return {table: harness.newest(table, day) or "" for table in sorted(NEEDED)}


def half_way(harness: Harness, day: str) -> None:
    harness.drop(RAW, day, "k,n\na,2\na,3\n")
    assert [run.assets[0] for run in harness.tick()] == ["t/sums"]
    harness.ask(name="watch")


def test_each_update_is_worked_on_once_and_it_is_complete(world: tuple[Harness, Consumer]) -> None:
    harness, consumer = world
    first = dropped(harness, DAY, 1)
    assert (consumer.step(), consumer.step()) == ([], [])
    assert consumer.ids() == [(DAY, first)]
    half_way(harness, NEXT_DAY)
    assert consumer.step() == []
    assert consumer.ids() == [(DAY, first)]
    harness.run_until_idle()
    harness.ask(name="watch")
    consumer.step()
    assert [partition for partition, _ in consumer.ids()] == [DAY, NEXT_DAY]


def test_a_kill_after_the_work_repeats_it_and_loses_nothing(world: tuple[Harness, Consumer]) -> None:
    harness, consumer = world
    first = dropped(harness, DAY, 1)
    consumer.killed = True
    with pytest.raises(KeyboardInterrupt):
        consumer.step()
    consumer.killed = False
    assert (consumer.step(), consumer.step()) == ([], [])
    assert consumer.ids() == [(DAY, first)] * 2


def test_an_update_that_is_invalidated_is_not_read_and_the_next_one_is(world: tuple[Harness, Consumer]) -> None:
    harness, consumer = world
    first = dropped(harness, DAY, 1)
    harness.invalidate(PICKED, DAY, first[PICKED])
    (said,) = consumer.step()
    assert said == f"{DAY}: {PICKED} {first[PICKED]} is not valid any more: waiting for an update after it"
    assert consumer.worked == []
    harness.revalidate(PICKED, DAY, first[PICKED])
    assert consumer.step() == []
    assert consumer.ids() == [(DAY, first)]


def test_updates_are_not_read_before_their_event(world: tuple[Harness, Consumer]) -> None:
    """Test upper bounds: the next update exists, and an event of one half of it."""
    harness, consumer = world
    first = dropped(harness, DAY, 1)
    half_way(harness, DAY)
    assert harness.newest(SUMS, DAY) != first[SUMS]
    consumer.step()
    assert consumer.ids() == [(DAY, first)]


def test_a_removed_table_blocks_nothing_and_a_new_one_is_included(
    world: tuple[Harness, Consumer],
) -> None:
    harness, consumer = world
    half_way(harness, DAY)
    assert (consumer.step(), consumer.worked) == ([], [])
    with makes(picks=False, give=given) as without:
        without.ask(name="watch")
        consumer.step()
        assert [[*files] for _, files in consumer.worked] == [[SUMS]]
    with makes(give=given) as again:
        again.run_until_idle()
        again.ask(name="watch")
        consumer.step()
    assert [sorted(files) for _, files in consumer.worked] == [[SUMS], sorted(NEEDED)]


def test_without_pipelines_nothing_is_judged(page: SimpleNamespace) -> None:
    assert page.together({}, NEEDED, {SUMS: {}, PICKED: {}}) == []


def test_an_id_that_was_consumed_and_comes_again_begins_anew(page: SimpleNamespace) -> None:
    place = SimpleNamespace(pipelines=lambda at=None: {RAW: {SUMS, PICKED}})
    events = [told(SUMS, "1", consumed=1), told(PICKED, "1", consumed=1), told(SUMS, "2")]
    assert page.complete(events, place, NEEDED) == []
    (found,) = page.complete([*events, told(PICKED, "2")], place, NEEDED)
    assert [event["marker"] for event in found] == ["2", "2"]


def test_a_joined_event_counts_for_each_of_its_updates(page: SimpleNamespace) -> None:
    place = SimpleNamespace(pipelines=lambda at=None: {RAW: {SUMS, PICKED}})
    joined = told(PICKED, "3", correlation="X+Y", parents=["X", "Y"])
    assert page.complete([told(SUMS, "1"), joined], place, NEEDED) == [[joined, told(SUMS, "1")]]


def told(table: str, marker: str, consumed: int = 0, correlation: str = "X", **context: Any) -> dict[str, Any]:
    named = {"table_name": table, "partition_key": DAY, "correlation_id": correlation, "marker": marker}
    return {**named, "event_marker": marker, "context": json.dumps(context), "consumed": consumed}


def test_the_query_of_the_page_finds_what_is_complete_by_tables_as_they_are_made(page: SimpleNamespace) -> None:
    with sa.create_engine("sqlite://", poolclass=sa.NullPool).begin() as connection:
        for statement in (DDL + ";" + page.SCHEMA).split(";"):
            connection.exec_driver_sql(statement)
        for number, tables in enumerate([(RAW, SUMS), (RAW, SUMS, PICKED)]):
            for table in tables:
                row = f"('{number}', '{RAW}', '{table}', '', '')"
                connection.exec_driver_sql(f"INSERT INTO events_pipelines_log VALUES {row}")  # noqa: S608
        for correlation, table in [("X", SUMS), ("X", PICKED), ("Y", SUMS)]:
            row = f"('{table}', '{DAY}', '{correlation}', '1', '1', '{{}}', 0)"
            connection.exec_driver_sql(f"INSERT INTO inbox VALUES {row}")  # noqa: S608
        assert connection.exec_driver_sql(QUERY).all() == [(DAY, "X", RAW)]


def test_spark_reads_what_the_updates_hold(
    page: SimpleNamespace, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", "blackboard:events")
    settings.cache_clear()
    store = page.Disk(home / "blackboard")
    with makes() as harness:
        harness.ask(name="watch")
        for number in (1, 2):
            dropped(harness, DAY, number)
            work, marker = page.by_spark(spark, tmp_path / "target"), page.Marker(tmp_path / "consumer.db")
            assert page.step(marker, page.OnBlackboard(store), NEEDED, page.paths_in(store), work) == []
            written = spark.read.parquet(str(tmp_path / "target"))
            assert [tuple(row) for row in written.selectExpr("k", "n", "string(day)").collect()] == [("a", number, DAY)]


def test_the_whole_consumer_of_the_page_runs(
    page: SimpleNamespace, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    url, worked = f"sqlite:///{tmp_path / 'shared.db'}", []
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", f"{url}#events")
    settings.cache_clear()
    with makes(give=given) as harness:
        dropped(harness, DAY, 1)
        page.main(home / "blackboard", url, lambda *given: worked.append(given))
        assert [sorted(files) for _, files in worked] == [sorted(NEEDED)]
        dropped(harness, DAY, 2)
        harness.invalidate(SUMS, DAY, harness.newest(SUMS, DAY) or "")
        page.main(home / "blackboard", url, lambda *given: worked.append(given))
    assert len(worked) == 1
    assert "is not valid any more" in capsys.readouterr().out

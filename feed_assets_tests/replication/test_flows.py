"""Runs follow the data: they compute in a place that has exactly the pinned inputs, and read them there."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import with_automation
from feed_assets.core.attempts import is_outage
from feed_assets.core.errors import InvalidDefinition, InvalidSetting
from feed_assets.ledger import allocations
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import due as due_list
from feed_assets.ledger.tables import update as update_table
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.replication.flows import LOCAL, RAW, change, world
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, SUMS, THIRD_DAY, raw_feed, rows, sums_of

pytestmark = pytest.mark.usefixtures("home")
FOURTH_DAY = "2020-01-04"
raw = raw_feed()
defs = with_automation(dg.Definitions(assets=[raw, sums_of(raw, at="b")]))
"""Module-level definitions for the command line."""
B = {"b": {"targets": ["emr-b"]}}


@pytest.fixture(autouse=True)
def closed():
    yield
    sum_projects.opened.close()


def test_a_run_waits_for_the_copies_of_its_place_and_reads_them_there(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, B)
    w.lake.drop(RAW, DAY, rows(1, 2))
    assert w.asked() == []
    assert w.waits() == {DAY: f"it waits for data center b: t/raw/v1.0 {DAY} is not there yet"}
    with open_ledger(settings().ledger).read() as connection:
        assert allocations.grants(connection) == {}

    w.copy()
    assert w.run() == [(DAY, "emr-b")]
    assert w.reads == [(f"t/sums {DAY}", "b")]
    assert w.lake.rows(sum_projects.SUMS, DAY) == [{"k": "a", "n": 3}]
    assert w.waits() == {}


def test_commands_name_the_place_that_a_partition_waits_for_and_the_one_where_it_ran(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, B)
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    why = f"it waits for data center b: t/raw/v1.0 {DAY} is not there yet"
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(due_list).values(look_at=utc_now() - timedelta(hours=1), state=None))
    assert f"waits for input  1      {DAY}  {why}" in printed("explain", "-m", __name__)
    assert why in [each["why"] for each in json.loads(printed("status", "-m", __name__, "--json"))["waits"]]
    assert f"{why}; it has no valid update" in printed("explain", SUMS, DAY, "-m", __name__).replace("\n", " ")
    (planned,) = json.loads(printed("build", SUMS, DAY, "--dry-run", "-m", __name__, "--json"))
    assert planned["reason"].endswith(why)
    w.copy()
    assert w.run() == [(DAY, "emr-b")]
    assert "it ran at the data center b" in printed("explain", SUMS, DAY, "-m", __name__)
    assert w.lake.reported("t/sums")[0].metadata["data center"] == "b"
    assert "it ran at the data center b" in printed("feed", "show", SUMS, DAY)


def test_a_preferred_place_is_waited_for_until_its_copies_are_late_and_any_is_the_least_busy(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, {"b": {"targets": ["emr-b"], "deadline": 60}}, at=("b", "primary"))
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.pass_(seconds=61)
    assert w.run() == [(DAY, "here")]  # The copy is late: the primary has all inputs.
    assert w.reads == [(f"t/sums {DAY}", "primary")]
    w = world(monkeypatch, tmp_path, B, at=("b", "primary"))
    w.lake.drop(RAW, NEXT_DAY, rows(2))
    assert w.asked() == []
    w.copy()
    assert w.run() == [(NEXT_DAY, "emr-b")]
    assert w.reads == [(f"t/sums {NEXT_DAY}", "b")]

    w = world(monkeypatch, tmp_path, B, at="any")
    for day in (THIRD_DAY, FOURTH_DAY):
        w.lake.drop(RAW, day, rows(1))
    assert w.asked() == [(THIRD_DAY, "here")]  # b has no copies yet, so the second one waits for room.
    assert "it needs 2 cores and 1 GiB: here 0 of 2 cores free" in w.reasons()[FOURTH_DAY]
    w.copy()
    assert sorted(target for _, target in w.asked()) == ["emr-b", "here"]


def test_each_partition_has_a_home_and_one_home_that_waits_does_not_hold_the_others(monkeypatch, tmp_path):
    regions = dg.StaticPartitionsDefinition(["eu", "us"])
    w = world(monkeypatch, tmp_path, B, at={"eu": "b", "us": "primary"}, partitions_def=regions)
    for region in ("eu", "us"):
        w.lake.drop(RAW, region, rows(1))
    assert w.run() == [("us", "here")]
    assert w.waits() == {"eu": "it waits for data center b: t/raw/v1.0 eu is not there yet"}
    w.copy()
    assert w.run() == [("eu", "emr-b")]
    with pytest.raises(InvalidDefinition, match=r"homes for asia: expected one for each key .*\(eu, us\)"):
        sums_of(raw_feed(partitions_def=regions), partitions_def=regions, at={"asia": "b"})
    markets = dg.StaticPartitionsDefinition(["asia", "eu"])
    both = dg.MultiPartitionsDefinition({"market": markets, "region": regions})
    with pytest.raises(InvalidDefinition, match="eu is a key of several dimensions"):
        sums_of(raw_feed(partitions_def=both), partitions_def=both, at={"eu": "b", "us": "primary"})
    for at in ((), ("any", "b"), ("b", "b")):
        with pytest.raises(InvalidDefinition, match="each once"):
            sums_of(raw_feed(), at=at)


def test_what_can_never_be_in_a_place_is_said(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, {"b": {"targets": ["emr-b"], "datasets": ["u/*"]}, "c": {}})
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    assert w.waits() == {
        DAY: "it waits for data center b: t/raw/v1.0 is not among its `datasets`, so it is not copied there"
    }
    for at, why in (("c", "data center c: it has no compute targets"), ("d", "does not have it: it has b, c")):
        w = world(monkeypatch, tmp_path, B | {"c": {}}, at=at)
        w.lake.drop(RAW, NEXT_DAY, rows(1))
        assert w.asked() == []
        assert why in w.waits()[NEXT_DAY]


def test_targets_of_data_centers_must_exist_and_belong_to_one_place(monkeypatch, tmp_path):
    for centers, expected in (
        ({"b": {"targets": ["x"]}}, r"has 'x': expected names in FEED_ASSETS_TARGETS, which has here"),
        ({"b": {"targets": ["here"]}, "c": {"targets": ["here"]}}, "'here' is there more than once"),
        ({"any": {}}, "'any' has a meaning of its own"),
    ):
        urls = {name: {"url": (tmp_path / name).as_uri(), "datasets": ["*"], **each} for name, each in centers.items()}
        change(monkeypatch, targets={"here": LOCAL}, data_centers=urls)
        with pytest.raises(InvalidSetting, match=expected):
            settings()
    settings.cache_clear()


def test_a_place_that_is_down_gets_no_runs_and_its_flows_go_to_where_the_data_are(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, B, at=("b", "primary"))
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.copy()
    (first,) = w.requests()
    assert first.tags["feed_assets/target"] == "emr-b"
    printed("replicate", "down", "b", "--why", "flood")
    w.lake.runner.execute(first)  # It was requested before b was down. It begins elsewhere.
    assert w.reads == [(f"t/sums {DAY}", "primary")]
    w.lake.drop(RAW, NEXT_DAY, rows(1))
    assert w.run() == [(NEXT_DAY, "here")]
    assert w.run() == []
    printed("replicate", "down", "primary", "--why", "both")
    w.lake.drop(RAW, DAY, rows(5))
    assert w.run() == []
    (reason,) = w.waits().values()
    assert "data center b: it is down since " in reason
    assert "(flood, says " in reason
    assert "; primary: it is down since " in reason
    printed("replicate", "up", "b")
    assert w.run() == []
    w.copy()
    assert w.run() == [(DAY, "emr-b")]  # Late data that came meanwhile are read, once.
    assert w.lake.rows(SUMS, DAY) == [{"k": "a", "n": 5}]
    assert w.run() == []


def test_a_run_that_waited_for_its_place_in_vain_says_so(monkeypatch, tmp_path, caplog):
    w = world(monkeypatch, tmp_path, B)
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.copy()
    (request,) = w.requests()
    printed("replicate", "down", "b", "--why", "flood")
    change(monkeypatch, run_wait_seconds="1")
    failed = w.lake.runner.execute(request).failure_data_for_node("t__sums").error.cause
    assert "for a place. Start it again later" in failed.message
    assert "resources" not in failed.message
    assert "this run waits for up to 1 s: it waits for data center b: it is down since " in caplog.text


def test_a_copy_that_is_withdrawn_while_it_is_read_is_no_fault_of_the_function(monkeypatch, tmp_path):
    def withdraw(task) -> None:
        shutil.rmtree(tmp_path / "b" / "t/raw/v1.0" / DAY)
        raise FileNotFoundError("a part file")

    w = world(monkeypatch, tmp_path, B, during=withdraw)
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.copy()
    assert w.run() == [(DAY, "emr-b")]
    assert w.last_run(DAY) == ("abandoned", "CopyGone")


def test_restored_files_of_a_source_are_compared_with_the_copy_and_the_run_goes_on(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, B)
    update_id = w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.copy()
    file = Path(unquote(urlsplit(settings().blackboard).path), RAW, DAY, update_id, "part-1")
    content = file.read_bytes()

    def write_again(data: bytes) -> None:
        (file.parent / ".copy").write_bytes(data)
        (file.parent / ".copy").replace(file)

    with open_ledger(settings().ledger).write() as connection:  # Nobody writes our own updates again under their ids.
        connection.execute(sa.update(update_table).where(update_table.c.feed == RAW).values(origin="run"))
    write_again(content.replace(b"1", b"7"))
    assert w.run() == [(DAY, "emr-b")]
    assert w.last_run(DAY) == ("abandoned", "CopyGone")
    w.copy()
    (error,) = w.copy_errors()
    assert "nor has it the bytes that were copied" in error
    assert w.run() == []  # The copy is the only good one: it waits for the source.

    write_again(content)
    w.pass_(minutes=6)
    w.copy()
    assert w.copy_errors() == []
    assert w.run() == [(DAY, "emr-b")]
    assert w.lake.rows(SUMS, DAY) == [{"k": "a", "n": 1}]
    assert w.run() == []


@pytest.mark.parametrize("is_back", [False, True])
def test_a_copy_that_vanishes_is_no_attempt_and_no_damage_of_the_source(monkeypatch, tmp_path, is_back):
    w = world(monkeypatch, tmp_path, B)
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    w.copy()
    (request,) = w.requests()
    folder = tmp_path / "b" / "t/raw/v1.0" / DAY
    folder.rename(tmp_path / "away")  # As on a disk that is not mounted.
    assert not w.lake.runner.execute(request).success
    assert w.last_run(DAY) == ("abandoned", "CopyGone")
    assert w.requests() == []
    assert w.waits() == {DAY: f"it waits for data center b: t/raw/v1.0 {DAY} is not there yet"}
    if is_back:
        (tmp_path / "away").rename(folder)
    w.copy()
    assert w.run() == [(DAY, "emr-b")]
    w.lake.drop(RAW, NEXT_DAY, rows(1))
    assert w.asked() == []
    w.copy()
    (request,) = w.requests()
    (tmp_path / "b").rename(tmp_path / "elsewhere")
    assert not w.lake.runner.execute(request).success
    assert w.last_run(NEXT_DAY) == ("abandoned", "DataCenterLost")
    assert not is_outage("DataCenterLost")
    assert "a run has lost it" in w.reasons()[NEXT_DAY] or w.asked() == []
    assert w.lake.newest(RAW, NEXT_DAY)
    assert w.lake.newest(SUMS, NEXT_DAY) is None

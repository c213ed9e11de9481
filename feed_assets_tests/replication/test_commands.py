"""`feed-assets replicate`: what is where, and what a person does about it."""

import json
import os

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.data_center_looks import DataCenterLooks
from feed_assets.cli.queue_looks import Doubtful
from feed_assets.core.errors import InvalidName, InvalidSetting, TurnLost
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.replication.place_overview import LATE, lag_notes
from feed_assets.replication.places import open_place
from feed_assets.replication.transitions_read import fill
from feed_assets.replication.turn import Turn
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets_tests.replication.two_ends import DAY, FILES, SALES, history, visible


def feed_assets(*words, code=0, error=None):
    """Run a command, and return what it prints as JSON."""
    result = CliRunner().invoke(app, [*words, "--json"])
    assert type(result.exception) is (error or (SystemExit if code else type(None))), result.exception
    assert result.exit_code == (1 if error else code)
    return str(result.exception) if error else json.loads(result.stdout)


@pytest.fixture
def place(home, tmp_path, monkeypatch) -> Blackboard:
    """Return the blackboard of the data center `b`, and publish an update at the source."""
    folder = tmp_path / "b"
    folder.mkdir()
    centers = {"b": {"url": folder.as_uri(), "datasets": ["shop/*"], "deadline": 60}}
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps(centers))
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    publish()
    return Blackboard.open(folder.as_uri())


def publish():
    board = open_board(settings())
    update = write.publish(board, DAY, FILES, utc_now())
    sync(board, open_ledger(settings().ledger), DAY, utc_now())
    return update


def view_rows():
    with open_ledger(settings().ledger).read() as connection:
        return connection.exec_driver_sql("SELECT * FROM replica_state").all()


def test_copies_are_listed_made_verified_and_repaired(place):
    (row,) = feed_assets("replicate", "ls")
    assert (row["feed"], row["partitions"], row["complete"], row["waiting"]) == (str(SALES), 1, 0, 0)
    assert [each["kind"] for each in feed_assets("replicate", "verify", "b", code=1)] == ["missing"]

    assert view_rows() == []
    assert feed_assets("replicate", "run") == [{"place": "b", "done": 1, "failed": 0, "is_busy": False}]
    assert [(row.partition, bool(row.complete)) for row in view_rows()] == [(DAY.key, True)]
    (row,) = feed_assets("replicate", "ls", "b")
    assert (row["complete"], row["waiting"], row["lag"], row["error"]) == (1, 0, None, None)
    assert feed_assets("replicate", "verify", "b", str(SALES), DAY.key) == []
    for command in ("verify", "repair"):
        assert "nor the data center b has shop/sold/v1.0:" in feed_assets(
            "replicate", command, "b", "shop/sold/v1.0", error=InvalidName
        )
    assert f"has {SALES} 1999-01-01:" in feed_assets(
        "replicate", "verify", "b", str(SALES), "1999-01-01", error=InvalidName
    )
    assert "the data center b does not get stock/sold/v1.0, and has nothing of it:" in feed_assets(
        "replicate", "verify", "b", "stock/sold/v1.0", error=InvalidName
    )
    shown = CliRunner().invoke(app, ["feed", "show", str(SALES), DAY.key])
    assert "the data center b has " in shown.output

    update_id, _ = visible(place)
    place.put(f"{DAY.path}/{update_id}/part-0.csv", b"id\n0\n")
    assert feed_assets("replicate", "verify", "b", "--quick") == []
    (found,) = feed_assets("replicate", "repair", "b")
    assert (found["kind"], found["repaired"]) == ("different", "yes")
    assert visible(place)[1] == FILES


def test_a_failed_copy_is_listed_with_its_lag_and_tried_again_at_once(place):
    update = publish()
    source = open_board(settings())
    source.put(f"{update.path}/part-0.csv", b"other")
    (result,) = feed_assets("replicate", "run", "b", code=1)
    assert (result["done"], result["failed"]) == (1, 1)
    (row,) = feed_assets("replicate", "ls")
    assert (row["waiting"], row["complete"]) == (1, 0)
    assert row["lag"] >= 0
    assert "part-0.csv" in row["error"]
    assert "b: 1 task failed: " in CliRunner().invoke(app, ["replicate", "run", "b"]).stderr
    assert [(row.version, bool(row.complete), row.copied) for row in view_rows()] == [(update.id, False, None)]
    with open_ledger(settings().ledger).read() as connection:
        (note,) = lag_notes(connection, [SALES], utc_now())
        assert lag_notes(connection, [], utc_now()) == []
    assert note.startswith(f"the data center b waits for {SALES}: 1 transition, the oldest for 0:")
    shown = CliRunner().invoke(app, ["feed", "show", str(SALES), DAY.key])
    assert "the data center b waits for its copy since" in shown.output

    sync(source, open_ledger(settings().ledger), DAY, utc_now())
    assert feed_assets("replicate", "run", "b")[0]["failed"] == 0
    assert visible(place)[1]["part-0.csv"] == b"other"


def test_a_paused_place_gets_nothing_until_it_is_resumed(place):
    assert feed_assets("replicate", "pause", "b", "--why", "new disk") == {"place": "b", "paused": "new disk"}
    assert feed_assets("replicate", "run", code=1)[0]["is_busy"]
    assert "the data center b: it is paused: new disk" in CliRunner().invoke(app, ["replicate", "run"]).stderr
    assert feed_assets("replicate", "ls")[0]["paused"] == "new disk"
    assert "it is paused" in feed_assets("replicate", "repair", "b", error=TurnLost)
    assert visible(place) is None

    feed_assets("replicate", "pause", "b", "--resume")
    turn = Turn(open_ledger(settings().ledger), "b", utc_now)
    turn.take_or_raise()
    assert feed_assets("replicate", "run", code=1)[0]["is_busy"]
    assert "b: another process copies into it" in CliRunner().invoke(app, ["replicate", "run"]).stderr
    turn.end()
    assert feed_assets("replicate", "run")[0]["done"] == 1


def test_a_place_that_is_away_does_not_hold_the_others(place, monkeypatch):
    centers = json.loads(os.environ["FEED_ASSETS_DATA_CENTERS"])
    away = {name: {"url": f"file:///nonexistent/{name}", "datasets": ["shop/*"]} for name in "az"}
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps({**away, **centers}))
    settings.cache_clear()
    result = CliRunner().invoke(app, ["replicate", "run", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [{"place": "b", "done": 1, "failed": 0, "is_busy": False}]
    assert [line[13:30] for line in result.stderr.splitlines() if "nonexistent" in line] == [
        "the data center a",
        "the data center z",
    ]
    assert visible(place) is not None


def test_a_pattern_that_matches_no_feed_is_named(place, monkeypatch):
    centers = json.loads(os.environ["FEED_ASSETS_DATA_CENTERS"])
    centers["b"]["datasets"] = ["shop/*", "shop/sales"]
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps(centers))
    settings.cache_clear()
    feed_assets("replicate", "run")
    for words in (["ls"], ["verify", "b"]):
        lines = CliRunner().invoke(app, ["replicate", *words]).stderr.splitlines()
        assert [each for each in lines if "no feed with an update matches" in each] == [
            "feed-assets: no feed with an update matches the pattern 'shop/sales' of the data center b: expected one "
            "such as shop/sales/v1.0, or shop/*"
        ]
    assert "no feed" not in CliRunner().invoke(app, ["replicate", "verify", "b", str(SALES)]).stderr


def test_copies_whose_pattern_was_removed_are_named_and_removed_by_the_name_of_their_feed(place, monkeypatch):
    feed_assets("replicate", "run")
    path = f"{DAY.path}/{visible(place)[0]}"
    publish()  # Its task waits when the pattern is removed.
    before = os.environ["FEED_ASSETS_DATA_CENTERS"]
    centers = json.loads(before)
    fill(open_ledger(settings().ledger), open_place(settings(), "b"), utc_now())
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps({"b": {**centers["b"], "datasets": ["other/*"]}}))
    settings.cache_clear()
    assert feed_assets("replicate", "run", "b")[0]["failed"] == 0
    assert [*history(place)] == [path.rpartition("/")[2]], "nothing more is copied"

    text = f"the data center b has 1 copy of {SALES}, which none of its `datasets` matches any more: it does not follow"
    for words in (["ls"], ["verify", "b"], ["repair", "b"]):
        assert text in CliRunner().invoke(app, ["replicate", *words]).stderr
    assert f"replicate repair b {SALES}" in CliRunner().invoke(app, ["replicate", "ls"]).stderr
    (look,) = DataCenterLooks(settings(), list).looks()
    with pytest.raises(Doubtful, match="has 1 copy of shop/sales"):
        look[1]()
    assert place.files(path), "a repair without the name removes nothing"

    (found,) = feed_assets("replicate", "verify", "b", str(SALES), code=1)
    assert found["kind"] == "extra"
    assert [each["repaired"] for each in feed_assets("replicate", "repair", "b", str(SALES))] == ["yes"]
    assert not place.files(path)
    assert text not in CliRunner().invoke(app, ["replicate", "ls"]).stderr
    assert look[1]()

    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", before)
    settings.cache_clear()
    feed_assets("replicate", "run")
    assert len(history(place)) == 2


def test_a_place_that_is_no_longer_set_is_forgotten(place, monkeypatch):
    feed_assets("replicate", "run")
    assert "no longer there" in feed_assets("replicate", "forget", "b", error=InvalidName)
    assert "no data center 'c'" in feed_assets("replicate", "verify", "c", error=InvalidSetting)
    monkeypatch.delenv("FEED_ASSETS_DATA_CENTERS")
    settings.cache_clear()
    ledger = open_ledger(settings().ledger)
    alerts.keep(ledger, LATE, {f"{SALES}|b": "late", f"{SALES}|c": "late"}, utc_now())
    assert feed_assets("replicate", "forget", "b") == {"place": "b", "forgotten": 1}
    assert "no copies or tasks of a place 'b'" in CliRunner().invoke(app, ["replicate", "forget", "b"]).stderr
    with ledger.read() as connection:
        assert [*alerts.of_kind(connection, LATE)] == [f"{SALES}|c"]
    assert "expected one. Add it there" in feed_assets("replicate", "ls", error=InvalidSetting)

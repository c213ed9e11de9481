"""`reconcile` and `ledger rebuild`, on the ads domain; no Spark."""

import json
import socket
from datetime import datetime, timedelta

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import claims, runs, update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings

RAW, SHOWN = (Partition(Feed.parse(f"ads/{name}/v1.0"), "2019-11-24/men") for name in ("shown_raw", "shown"))
NOW = utc_now()
LONG_AGO = NOW - timedelta(days=2)

pytestmark = pytest.mark.usefixtures("home")


def said(*args: str) -> str:
    return CliRunner().invoke(app, args, catch_exceptions=False).stdout


def left_behind(state: str, at: datetime, *, sealed: bool = False) -> str:
    """Leave an update of a run whose process has died, or that ended in `state`; return its id."""
    board, ledger = open_board(settings()), open_ledger(settings().ledger)
    run = runs.Run(f"run {at} {state}", SHOWN, runs.RUNNING, f"{socket.gethostname()}:1:-1.00", at)
    runs.start(ledger, run)
    update_id = write.claim(board, SHOWN, run.id.encode(), at)
    with ledger.change() as connection:
        claims.claim(connection, run.id, [(SHOWN, update_id)], (), "1", at)
    board.put(f"{SHOWN.path}/{update_id}/part-0", b"rows")
    if sealed:
        write.seal(board, SHOWN, update_id, write.listed(board, SHOWN, update_id))
    if state != runs.RUNNING:
        with ledger.change() as connection:
            update_changes.change(connection, SHOWN, update_id, state, NOW, reason="not_empty")
            runs.end(connection, run.id, state, at, "not_empty")
    return update_id


def test_reconcile_says_that_nothing_is_left_behind() -> None:
    assert said("reconcile").splitlines()[-1] == "nothing to finish, nothing to sweep"


def test_reconcile_names_finished_and_swept_updates_with_the_reason() -> None:
    refused = left_behind(updates.REFUSED, LONG_AGO)
    killed = left_behind(runs.RUNNING, NOW, sealed=True)
    lines = [line.strip() for line in said("reconcile").splitlines()]
    assert lines[:3] == ["claims", "1", "done"]
    at = f"{SHOWN.feed}  {SHOWN.key}"
    assert lines[4:] == [
        f"{at}  finished  {killed}  it has a manifest; run run {NOW} running ended without recording its end",
        f"{at}  swept     {refused}  1 objects without a valid manifest: not_empty",
    ]
    assert json.loads(said("reconcile", "--json"))["done"] == []


def test_a_young_refused_update_stays() -> None:
    left_behind(updates.REFUSED, NOW - timedelta(hours=23))
    assert json.loads(said("reconcile", "--json"))["done"] == []
    assert len(open_board(settings()).files(SHOWN.path)) == 1


def test_reconcile_sweeps_unknown_claims_only_on_request() -> None:
    update_id = write.claim(open_board(settings()), SHOWN, b"lost", LONG_AGO)
    open_board(settings()).put(f"{SHOWN.path}/{update_id}/part-0", b"rows")
    (left,) = json.loads(said("reconcile", "--json"))["done"]
    assert (left["what"], left["feed"], left["partition"], left["update_id"]) == (
        "left",
        "ads/shown/v1.0",
        "2019-11-24/men",
        update_id,
    )
    swept = json.loads(said("reconcile", "--unknown", "--json"))
    assert ([each["what"] for each in swept["done"]], swept["claims"]) == (["swept"], 1)
    assert open_board(settings()).files(SHOWN.path) == ()


def test_a_rebuilt_ledger_reports_unknown_updates_until_they_are_trusted() -> None:
    board = open_board(settings())
    raw = write.publish(board, RAW, {"part-1.csv": b"x"}, LONG_AGO).id
    made = write.publish(board, SHOWN, {"part-1": b"x"}, LONG_AGO + timedelta(hours=1)).id
    lines = [line.split() for line in said("ledger", "rebuild").splitlines()]
    assert lines[0] == ["added"]
    assert lines[2][:3] == [str(SHOWN.feed), SHOWN.key, made]
    unknown = ["it", "will", "be", "built", "again,", "unless", "--trust", "is", "given"]
    assert lines[3:6:2] == [["unknown"], [str(SHOWN.feed), SHOWN.key, made, *unknown]]
    assert f"rebuild  it is not known what update {made} was built from" in said("explain", str(SHOWN.feed), SHOWN.key)
    second = json.loads(said("ledger", "rebuild", "--trust", "--json"))
    assert (second["added"], second["unknown"]) == ([], [])
    (assumed,) = second["assumed"]
    assert assumed["reads"] == [{"input": RAW.path, "update_id": raw}]
    assert f"current  update {made} was built from the newest inputs" in said("explain", str(SHOWN.feed), SHOWN.key)


def lost() -> str:
    """Publish an update of ours, and remove all its objects; return its id."""
    board, ledger = open_board(settings()), open_ledger(settings().ledger)
    made = write.publish(board, SHOWN, {"part-1": b"x"}, LONG_AGO).id
    sync(board, ledger, SHOWN, NOW)
    write.publish(board, RAW, {"part-1.csv": b"x"}, LONG_AGO)
    sync(board, ledger, RAW, NOW)
    board.sweep(f"{SHOWN.path}/{made}")
    return made


def test_vanished_data_are_reported_once() -> None:
    made = lost()
    (gone,) = json.loads(said("reconcile", "--json"))["gone"]
    assert (gone["feed"], gone["partition"], gone["update_id"]) == (str(SHOWN.feed), SHOWN.key, made)
    assert gone["why"] == "it is no longer there"
    assert json.loads(said("reconcile", "--json"))["gone"] == []


@pytest.mark.parametrize("partition", [(SHOWN.key,), ("men|2019-11-24",), ()])
def test_explain_sees_that_data_have_vanished_before_any_tick(partition) -> None:
    lost()
    told = said("explain", str(SHOWN.feed), *partition)
    assert "build" in told
    assert "current" not in told


def test_a_key_of_the_ui_is_understood_where_a_partition_is_named() -> None:
    board = open_board(settings())
    made = write.publish(board, RAW, {"part-1.csv": b"x"}, LONG_AGO).id
    assert made in said("feed", "show", str(RAW.feed), "men|2019-11-24")
    assert made in said("feed", "ls", str(RAW.feed), "men|2019-11-24")
    view = json.loads(said("explain", str(SHOWN.feed), "men|2019-11-24...men|2019-11-24", "--json"))
    assert view["partition"] == SHOWN.key


def test_an_invalid_partition_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidName, match=r"'2019-11-24/man' is no partition of ads/shown/v1.0: expected men "):
        said("explain", str(SHOWN.feed), "2019-11-24/man")
    with pytest.raises(InvalidName, match=r"in a path is known only from the definitions of no/such/v1.0"):
        said("feed", "show", "no/such/v1.0", "men|2019-11-24")

"""`feed-assets feed prune` and `revalidate`, as a user types them."""

import json
import sys

import pytest

from feed_assets.cli import main
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.read import latest
from feed_assets.ledger import claims, update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets_tests.support.counted_blackboards import MEN, NEW, OLD, write

LINES = Partition(Feed.parse("sales/lines/v1.0"), "")
SHOWN = ["ads/shown/v1.0", "2019-11-24/men"]


@pytest.fixture(params=["local", "s3"])
def board(request, home, monkeypatch):
    """Return the blackboard of the settings, with two updates of a foreign feed that the ledger knows."""
    if request.param == "s3":
        monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", request.getfixturevalue("s3_env").endpoint)
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", request.getfixturevalue("s3_url"))
        settings.cache_clear()
    made = open_board(settings())
    for update_id in (OLD, NEW):
        write(made, update_id)
        sync(made, open_ledger(settings().ledger), MEN, utc_now())
    return made


@pytest.fixture
def feed(board, monkeypatch, capsys):
    """Run `feed-assets feed …` in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["feed-assets", "feed", *arguments])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return run


def ids(board):
    return sorted({file.key.split("/")[-2] for file in board.files(MEN.path)})


GOES = f"    {OLD}  yes   newer valid updates: 1, the first of 2019-11-26 06:00 UTC  no"


@pytest.mark.parametrize("where", [SHOWN, SHOWN[:1]], ids=["a partition", "all of them"])
def test_prune_lists_updates_and_removes_them_only_with_apply(feed, board, where):
    code, out, err = feed("prune", *where, "--keep", "1", "--foreign")
    assert (code, out.splitlines()[-2:]) == (0, [GOES, "1 updates would be removed: add --apply"])
    assert err == f"blackboard: {settings().blackboard}\n"
    assert ids(board) == [OLD, NEW]
    code, out, _ = feed("prune", *where, "--keep", "1", "--foreign", "--apply")
    assert (code, out.splitlines()[-2:]) == (0, [GOES, "1 updates pruned"])
    assert ids(board) == [NEW]


def test_prune_prints_json_for_machines(feed, board):
    code, out, _ = feed("prune", *SHOWN, "--older-than", "30d", "--foreign", "--json")
    kept = {"id": NEW, "goes": False, "reason": "it is the newest valid one", "surprising": False}
    gone = {
        "id": OLD,
        "goes": True,
        "reason": "newer valid updates: 1, the first of 2019-11-26 06:00 UTC",
        "surprising": False,
    }
    assert (code, json.loads(out)) == (0, [{"partition": SHOWN[1], "applied": False, "updates": [kept, gone]}])


def test_a_foreign_feed_is_pruned_only_on_request(feed, board):
    code, _, err = feed("prune", *SHOWN, "--keep", "1", "--apply")
    assert code == 1
    assert "No run of this ledger has written ads/shown/v1.0: its updates belong to somebody else" in err
    assert ids(board) == [OLD, NEW]


def test_a_feed_of_our_own_is_pruned_without_more_words(feed, board):
    effect = Partition(Feed.parse("ads/effectiveness/v1.0"), "2019-11-24/men")
    ledger = open_ledger(settings().ledger)
    with ledger.change() as connection:
        claims.claim(connection, "r1", [(effect, OLD)], [], None, utc_now())
        update_changes.change(connection, effect, OLD, updates.PUBLISHED, utc_now())
    for update_id in (OLD, NEW):
        write(board, update_id, partition=effect)
    assert feed("prune", str(effect.feed), "--keep", "1", "--apply")[1].endswith("1 updates pruned\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Retention() keeps everything"),
        (["--older-than", "a month"], "'a month' is not an age: expected a number and a unit"),
    ],
)
def test_prune_without_a_rule_is_refused(feed, options, said):
    code, _, err = feed("prune", *SHOWN, "--foreign", *options)
    assert code == 1
    assert said in err


def test_get_as_of_a_pruned_time_is_refused_with_the_reason(feed, board, tmp_path):
    feed("prune", *SHOWN, "--keep", "1", "--foreign", "--apply")
    code, _, err = feed("get", *SHOWN, "--as-of", OLD, "--to", str(tmp_path / "copy"))
    assert code == 1
    assert f"as of 2019-11-25 06:00:00 UTC is not known: valid updates before {NEW} were pruned" in err
    assert feed("get", *SHOWN, "--as-of", NEW, "--to", str(tmp_path / "copy"))[0] == 0


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_an_update_is_invalidated_and_valid_again(feed, board, how):
    feed("invalidate", *SHOWN, NEW, "--how", how)
    assert latest(board, MEN).update.id == OLD
    assert feed("revalidate", *SHOWN, NEW)[1].splitlines()[-1] == "it is valid again"
    assert latest(board, MEN).update.id == NEW
    values = json.loads(feed("revalidate", *SHOWN, NEW, "--json")[1])
    assert values == {"feed": SHOWN[0], "partition": SHOWN[1], "id": NEW, "files": 2, "bytes": 20}


def test_an_altered_update_is_not_made_valid_again(feed, board):
    feed("invalidate", *SHOWN, NEW)
    board.delete([f"{MEN.path}/{NEW}/part-1.csv"])
    code, _, err = feed("revalidate", *SHOWN, NEW)
    assert code == 1
    assert f"gone: {MEN.path}/{NEW}/part-1.csv. Publish the data again as a new update." in err


def test_invalidating_a_compacted_batch_names_the_range_that_holds_its_rows(feed, board):
    for name in ("b00000001", "b00000002", "b00000001-00000002"):
        write(board, OLD, partition=LINES.batch(name))
    code, _, err = feed("invalidate", "sales/lines/v1.0", "b00000002", OLD)
    assert code == 0
    assert "b00000002: its rows are still read, because b00000001-00000002 contains them." in err
    code, _, err = feed("invalidate", "sales/lines/v1.0", "b00000001-00000002", OLD)
    assert "still read" not in err


def test_show_and_get_of_a_batched_partition_name_the_batches_option(feed, board, tmp_path):
    for name in ("b00000001", "b00000002", "b00000001-00000002"):
        write(board, OLD, partition=LINES.batch(name))
    for command in (["show"], ["get"]):
        more = ["", "--to", str(tmp_path / "out")] if command == ["get"] else []
        code, _, err = feed(*command, "sales/lines/v1.0", *more)
        assert code == 1
        assert "has no update of its own, but 3 batches, such as " in err
        assert err.endswith("add --batches to read these.\n")
    code, out, _ = feed("show", "sales/lines/v1.0", "--batches")
    assert (code, out.splitlines()[-1]) == (
        0,
        "3 of 3 batches have a valid update; 2 are read as part of a combined batch instead",
    )
    feed("invalidate", "sales/lines/v1.0", "b00000002", OLD)
    code, _, _ = feed("verify", "sales/lines/v1.0", "", "--batches")
    assert code == 0


@pytest.mark.parametrize("where", [["sales/nothing/v1.0"], ["ads/shown/v1.0", "2019-11-24/men"]])
def test_compact_refuses_feeds_without_own_updates(feed, where):
    code, _, err = feed("compact", *where)
    assert code == 1
    assert "has no update that our runs wrote: expected a dataset of ours. Nothing is compacted." in err

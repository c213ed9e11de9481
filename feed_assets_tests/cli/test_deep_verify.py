"""`feed-assets feed verify --deep`, as a user types it."""

import json
import sys
from datetime import UTC, datetime

import pytest

from feed_assets.cli import main
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.own_updates import of, publish_own, rewrite

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
TOTAL, RAW = Feed.parse("ads/total/v1.0"), Feed.parse("ads/raw/v1.0")
DAY, NEXT = Partition(TOTAL, "2019-11-24"), Partition(TOTAL, "2019-11-25")


@pytest.fixture
def services(home) -> Services:
    """Return services on the blackboard and the ledger of the settings."""
    found = settings()
    return Services(Blackboard.open(found.blackboard), open_ledger(found.ledger), lambda: pytest.fail("Spark"))


@pytest.fixture
def verify(services, monkeypatch, capsys):
    """Run `feed-assets feed verify …` in this process: exit code, rows, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["feed-assets", "feed", "verify", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        output = capsys.readouterr()
        return ended.value.code or 0, json.loads(output.out or "null"), output.err

    return run


def test_deep_verify_compares_our_rows_with_the_published_ones(services, verify):
    first, second = publish_own(services, DAY, NOW), publish_own(services, NEXT, NOW)
    code, rows, _ = verify(str(TOTAL), "--deep")
    assert (code, [row["id"] for row in rows]) == (0, [first.id, second.id])
    assert rows[0] == {
        "feed": str(TOTAL),
        "partition": DAY.key,
        "id": first.id,
        "files": 1,
        "rows": 20_000,
        "is_compared": True,
        "damage": "",
    }
    rewrite(services, second, of([*range(19_999), 7]))
    assert verify(str(TOTAL))[0] == 0
    code, rows, errors = verify(str(TOTAL), "--deep")
    assert (code, [bool(row["damage"]) for row in rows]) == (1, [False, True])
    assert "holds other rows than the published ones" in rows[1]["damage"]
    assert "1 of 2 updates are damaged." in errors


@pytest.mark.parametrize("scope", [[], ["--update"]])
def test_deep_verify_reads_the_pages_of_foreign_files(services, verify, scope):
    data = damaged.with_flipped_bit(damaged.parquet(damaged.numbers()))
    update = publish(services.board, Partition(RAW, "a"), {"part.parquet": data}, NOW)
    named = ["a", *scope, *([update.id] if scope else [])]
    assert verify(str(RAW), *named)[0] == 0
    code, rows, errors = verify(str(RAW), *named, "--deep")
    assert (code, rows[0]["is_compared"]) == (1, False)
    assert f"{update.path}/part.parquet is damaged" in errors


def test_deep_verify_reads_batches_and_names_invalid_ones(services, verify):
    for batch in ("a", "b"):
        publish(services.board, Partition(RAW, f"day/{batch}"), {"part.csv": b"id\n1\n"}, NOW)
    assert [row["partition"] for row in verify(str(RAW), "day", "--batches", "--deep")[1]] == ["day/a", "day/b"]
    services.board.put(f"{RAW}/day/b/20191126.000000/_SUCCESS", b"7")
    code, rows, errors = verify(str(RAW), "day", "--batches", "--deep")
    assert (code, len(rows)) == (1, 2)
    assert "its manifest says 7 files" in errors


def test_verify_notes_a_rewritten_file_without_reading_it(services, verify):
    update = publish_own(services, DAY, NOW)
    rewrite(services, update, services.board.get(update.files[0].key))
    code, (row,), _ = verify(str(TOTAL))
    assert (code, row["problem"]) == (0, "")
    assert row["note"].startswith(
        "part-0.parquet was written again with the same size since it was recorded: `--deep` "
    )
    rewrite(services, update, of([1]))
    code, (row,), errors = verify(str(TOTAL))
    assert (code, row["note"]) == (1, "")
    assert row["problem"].startswith(f"{update.files[0].key} has changed since it was recorded: found ")
    assert row["problem"].endswith("restore the recorded files, or publish a new update")
    assert row["problem"] in errors

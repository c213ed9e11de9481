"""Names of every kind, on local disk and on S3: the answers are those of the table, and equal word by word."""

import re
from datetime import UTC, datetime
from functools import cache

import pytest

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Skipped, Update, why_invalid
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import feeds, history, latest, named, newer_versions, walk
from feed_assets.feeds.write import claim, listed
from feed_assets.ledger import updates
from feed_assets.ledger.database import Ledger
from feed_assets.runs.discover import discover
from feed_assets.runs.services import Services
from feed_assets_tests.faults.names import CASES, NEW, OLD, Layout
from feed_assets_tests.faults.ways import latest_by_int, latest_without_count
from feed_assets_tests.support.counted_blackboards import FEED, MEN

NOW = datetime(2019, 11, 27, tzinfo=UTC)
MOMENTS = [None, *(datetime(2019, 11, day, 6, tzinfo=UTC) for day in (24, 25, 26)), datetime(9999, 1, 1, tzinfo=UTC)]


def on_disk(folder, layout: Layout) -> None:
    """Write the layout as another program would."""
    for key, content in layout.items():
        path = folder / MEN.path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if key.endswith("/") and key.count("/") == 1:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)


def on_s3(server, url: str, layout: Layout) -> None:
    """Write the layout as another program would."""
    _, _, bucket, prefix = url.split("/")
    client = _client(server)
    for key, content in layout.items():
        client.put_object(Bucket=bucket, Key=f"{prefix}/{MEN.path}/{key}", Body=content)


@cache
def _client(server):
    return server.client()


def answers(board: Blackboard) -> dict[str, object]:
    """Return the answer to every question about a partition; an error is an answer too."""
    names = board.children(MEN.path)
    questions = {f"latest as of {moment}": lambda moment=moment: latest(board, MEN, moment) for moment in MOMENTS}
    questions |= {f"named {name}": lambda name=name: named(board, MEN, name) for name in (*names, OLD, NEW, "../men")}
    questions |= {
        "history": lambda: history(board, MEN),
        "partitions": lambda: [*walk(board, FEED)],
        "feeds": lambda: [*feeds(board)],
        "versions": lambda: newer_versions(board, FEED),
        "children": lambda: names,
        "claim": lambda: claim(board, MEN, b"me", NOW),
    }
    return {question: said(board, ask) for question, ask in questions.items()}


def said(board: Blackboard, ask) -> str:
    """Return an answer as text, without what differs by store: its URL, its words in brackets, etags, dates."""
    try:
        found = repr(ask())
    except FeedAssetsError as error:
        found = repr(error)
    found = re.sub(r"share \(.*?\)\. Rename", "share. Rename", found.replace(board.url, "URL").replace('"', "'"))
    return re.sub(r", modified=datetime\.datetime\(.*?utc\)", "", re.sub(r"etag='+[^']*'+", "etag", found))


def discovered(board: Blackboard, ledger: Ledger) -> str | None:
    """Return the newest update in the ledger after two discoveries: the second one finds the partition known."""
    for _ in range(2):
        discover(Services(board, ledger, lambda: None, lambda: NOW), [FEED], lambda: False)
    with ledger.read() as connection:
        row = updates.newest(connection, [MEN]).get(MEN)
    return row and row.id


@pytest.mark.parametrize(("layout", "expected"), CASES.values(), ids=CASES)
def test_local_disk_and_s3_give_the_tabled_answer(
    local_board, s3_board, ledger, tmp_path, s3_url, s3_env, layout, expected
):
    on_disk(tmp_path / "black board", layout)
    on_s3(s3_env, s3_url, layout)
    for board in (local_board, s3_board):
        found = latest(board, MEN).update
        assert (found and found.id) == expected, board.url
        assert discovered(board, ledger) == expected, board.url
    assert answers(local_board) == answers(s3_board)


def test_there_are_over_eighty_layouts_of_names():
    assert len(CASES) > 80


@pytest.mark.parametrize(("layout", "expected"), CASES.values(), ids=CASES)
def test_count_rule_of_core_agrees_with_reading_of_every_update(local_board, tmp_path, layout, expected):
    """Compare `core/feeds.py: why_invalid` with what reading says of every update."""
    on_disk(tmp_path / "black board", layout)
    judged = []
    for found in history(local_board, MEN):
        try:
            files = listed(local_board, MEN, found.id)
        except FeedAssetsError:
            assert isinstance(found, Skipped)
            continue
        reason = why_invalid(local_board.get(f"{MEN.path}/{found.id}/_SUCCESS"), files)
        assert reason == (None if isinstance(found, Update) else found.reason)
        judged.append(found.id)
    assert expected is None or expected in judged


@pytest.mark.parametrize("wrong", [latest_without_count, latest_by_int])
def test_wrong_readers_of_odd_names_are_caught(tmp_path, wrong):
    caught = []
    for name, (layout, expected) in CASES.items():
        if wrong is latest_by_int:
            layout = {key: b"+" + text if key.endswith("_SUCCESS") else text for key, text in layout.items()}
            expected = None
        folder = tmp_path / str(len(name)) / name.replace(" ", "-")
        on_disk(folder, layout)
        try:
            found = wrong(Blackboard.open(folder.as_uri(), create=True), MEN, None)
        except FeedAssetsError:
            continue
        caught += [name] if (found and found.id) != expected else []
    assert len(caught) > 5

"""The source is lost: a data center becomes the source, and the former source, emptied, becomes its data center."""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.replication import replica_tasks
from feed_assets.runs.services import Services
from feed_assets.runs.verify import verify_all
from feed_assets.settings import settings
from feed_assets_tests.replication.flows import RAW, SUMS, board_of, change, world
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, opened, rows

pytestmark = pytest.mark.usefixtures("home")
SUM = Partition(Feed.parse(SUMS), DAY)


@pytest.fixture(autouse=True)
def closed():
    yield
    opened.close()


def test_a_data_center_becomes_the_source_and_the_former_source_its_data_center(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, {"b": {}}, at="primary")
    w.lake.drop(RAW, DAY, rows(1, 2))
    w.run()
    w.copy()
    w.lake.drop(RAW, DAY, rows(5))
    w.run()
    lost = w.lake.newest(SUMS, DAY)  # It was never copied.

    former = open_board(settings())
    (tmp_path / "b" / "_feed_assets" / "data_center").unlink()
    change(monkeypatch, data_centers={}, blackboard=(tmp_path / "b").as_uri())
    printed("replicate", "forget", "b")
    w.pass_(hours=1)
    graph = Graph(w.lake.definitions.resolve_asset_graph())
    gone = verify_all(Services.of(settings()), graph.own(), graph.by_feed).gone
    assert {(each.partition.feed.name, each.update_id) for each in gone} == {("t/sums", lost), ("t/sums_rejects", lost)}
    assert w.run() == [(DAY, "here")]
    assert w.lake.rows(SUMS, DAY) == [{"k": "a", "n": 3}]  # of the input that was copied
    assert w.run() in ([], [(DAY, "here")])  # The input has another etag in its new place, which counts once.
    assert w.run() == []
    w.lake.drop(RAW, NEXT_DAY, rows(7))
    assert w.run() == [(NEXT_DAY, "here")]

    former_folder = Path(urlsplit(former.url).path)
    shutil.rmtree(former_folder)
    former_folder.mkdir()
    change(monkeypatch, data_centers={"a": {"url": former.url, "datasets": ["t/*"]}})
    w.copy("a")
    printed("replicate", "repair", "a")
    w.pass_(hours=1)
    w.copy("a")
    assert CliRunner().invoke(app, ("replicate", "verify", "a")).exit_code == 0
    with open_ledger(settings().ledger).read() as connection:
        assert replica_tasks.waiting(connection, "a") == []
    for at in (SUM, Partition(SUM.feed, NEXT_DAY)):
        assert read.latest(former, at).update.id == read.latest(board_of("b", tmp_path), at).update.id

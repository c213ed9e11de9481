"""Names that end in a mistyped version are refused with a suggestion, as nobody would read such a feed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from feed_assets import event_table, feed_asset, foreign_feed
from feed_assets.cli import app
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition, Version
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.public_declarations import SHOP

MISTYPED = {
    "v01.0": "v1.0",
    "v1.00": "v1.0",
    "v1.01": "v1.1",
    "v1": "v1.0",
    "v01": "v1.0",
    "V1.0": "v1.0",
    "V2": "v2.0",
    "v1.0.3": "v1.0",
    "v1_0": "v1.0",
    "v1-2": "v1.2",
    "v.1.0": "v1.0",
    "v_1": "v1.0",
    "1.0": "v1.0",
    "1.0.0": "v1.0",
    "ver1.0": "v1.0",
    "Version-3": "v3.0",
    "v1.0-rc1": "v1.0",
    "v1.2_old": "v1.2",
    "V1.0beta": "v1.0",
    "v1.O": "v1.0",
}
NAMES = [
    "v",
    "ver",
    "version",
    "vendor1",
    "v8-engine",
    "2020",
    "2020-01-01",
    "100",
    "v1b",
    "visits_v",
    "dev1.0",
    "x1.0",
]
"""Valid names of feeds without a version."""


@each_case("text", NAMES)
def test_a_name_is_near_no_version(text):
    assert Version.near(text) is None
    assert foreign_feed(f"t/{text}", schema="k int").key.path == ["t", text]


@each_case(("text", "near"), MISTYPED.items())
def test_a_declaration_with_a_mistyped_version_is_refused_with_a_suggestion(text, near):
    says = f"feed 't/raw/{text}' ends in what looks like a misspelled version: .* Is 't/raw/{near}' meant?"
    declared = [
        lambda name: foreign_feed(name, schema="k int"),
        lambda name: event_table(name, source=SHOP),
        lambda name: feed_asset(name, inputs={})(lambda: None),
    ]
    for declare in declared:
        with pytest.raises(InvalidName, match=says):
            declare(f"t/raw/{text}")


def feed(*args: str) -> Result:
    return CliRunner().invoke(app, [*args])


@pytest.fixture
def part(home, tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)  # where there is no project, which would know the feed
    Path("a.csv").write_text("k\n1\n")
    return "a.csv"


@each_case(("text", "near"), MISTYPED.items())
def test_publish_refuses_a_mistyped_version(part, text, near):
    Path("tree").mkdir(exist_ok=True)
    Path("tree", part).write_text("k\n1\n")
    for what in (("2020-01-01", part), ("--tree", "tree")):
        refused = feed("feed", "publish", f"t/raw/{text}", *what)
        assert isinstance(refused.exception, InvalidName)
        assert f"Is 't/raw/{near}' meant?" in str(refused.exception)
    assert [*read.feeds(open_board(settings()))] == []


def test_events_publish_refuses_a_mistyped_version(home):
    refused = feed("events", "publish", "t/orders/v01.0", "--marker", "1")
    assert "Is 't/orders/v1.0' meant?" in str(refused.exception)
    assert feed("events", "ls", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["t/raw/v1.0", "t/raw/v0.10", "t/raw", "t/2020"])
def test_a_feed_with_a_valid_version_or_none_is_published(part, name):
    assert feed("feed", "publish", name, "2020-01-01", part).exit_code == 0
    assert read.latest(open_board(settings()), Partition(Feed.parse(name), "2020-01-01")).update

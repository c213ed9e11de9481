"""`feed-assets receive`: its keys, and a project without feeds to push to."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import EventSource, event_table, foreign_feed
from feed_assets.cli import app
from feed_assets.cli.receive import polled, pushed_feeds, written_sources
from feed_assets.core.errors import InvalidDefinition, InvalidKey, InvalidName
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.orchestration.decide.graph import Graph
from feed_assets_tests.support.each_case import each_case

pytestmark = pytest.mark.usefixtures("home")
MEN = "partners/men/v1.0"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["receive", *arguments], catch_exceptions=False)
    return result.stdout


def listed() -> list[dict]:
    return json.loads(run("keys", "ls", "--json"))


def test_a_key_is_shown_once_rotated_with_an_overlap_and_revoked():
    first = run("keys", "add", "men", MEN, "partners/more/v1.0").strip()
    second = run("keys", "rotate", "men", "--hours", "1").strip()
    assert first.startswith("fa_")
    scopes = [MEN, "partners/more/v1.0"]
    assert [(row["partner"], row["holds"], row["scopes"]) for row in listed()] == [("men", True, scopes)] * 2
    assert sorted(bool(row["ends"]) for row in listed()) == [False, True]
    assert second[16:] not in run("keys", "ls")
    run("keys", "revoke", "men", "--key", second.split("_")[1])
    assert [row["key"] for row in listed() if row["holds"]] == [first.split("_")[1]]
    added = json.loads(run("keys", "add", "women", MEN, "--json"))
    rotated = json.loads(run("keys", "rotate", "women", "--hours", "0", "--json"))
    assert (added["partner"], rotated["partner"]) == ("women", "women")
    (holds,) = [row["key"] for row in listed() if row["holds"] and row["partner"] == "women"]
    assert rotated["key"].split("_")[1] == holds != added["key"].split("_")[1]
    run("keys", "revoke", "women")
    run("keys", "revoke", "men")
    assert not any(row["holds"] for row in listed())


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("add", "m/en", MEN), InvalidName, "partner"),
        (("add", "men", "v1.0"), InvalidName, "is not a feed"),
        (("add", "men", "events:a/b"), InvalidName, "event source"),
        (("rotate", "men"), InvalidKey, "no valid key"),
        (("revoke", "men"), InvalidKey, "no valid key"),
    ],
)
def test_invalid_receiver_keys_are_refused_with_the_reason(arguments, error, said):
    with pytest.raises(error, match=said):
        run("keys", *arguments)


SENT_TO = """
import dagster as dg
from feed_assets import EventSource, Pull, event_table, foreign_feed

hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
def feed(name, **more):
    return foreign_feed(f"partners/{name}/v1.0", schema="id string, at timestamp", partitions_def=hours, **more)
defs = dg.Definitions([
    feed("men", intake="push", event_time="at", format="json"),
    feed("women", intake=Pull("women", "%Y-%m-%d/%H/*.csv")),
    feed("theirs"),
    event_table("shop/orders", source=EventSource("shop", ())),
])
"""


@each_case(
    ("scope", "said"),
    [
        (MEN, ""),
        ("events:shop", ""),
        ("events:other", "events:other: there is no such event source: expected one of events:shop."),
        ("partners/women/v1.0", f"it is pulled: expected a feed that takes pushed events, one of {MEN}."),
        ("partners/theirs/v1.0", "it takes no pushed events: the key is only for POST /wake/partners/theirs/v1.0"),
        ("partners/mne/v1.0", f"no asset has this name: expected a feed that takes pushed events, one of {MEN}."),
        ("shop/orders", "it is a table feed: expected a feed"),
    ],
)
def test_a_receiver_key_without_usable_feeds_is_created_with_a_warning(scope, said, tmp_path, monkeypatch):
    (tmp_path / "sent_to.py").write_text(SENT_TO)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["receive", "keys", "add", "men", scope, "-m", "sent_to"], catch_exceptions=False)
    assert result.stdout.startswith("fa_")
    assert result.stdout.count("\n") == 1
    told = [line for line in result.stderr.splitlines() if scope in line]
    assert len(told) == bool(said)
    assert not said or said in told[0]


def test_a_key_can_be_made_where_there_is_no_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["receive", "keys", "add", "men", MEN], catch_exceptions=False)
    assert result.stdout.startswith("fa_")
    assert "cannot check whether events can be sent with this key (which module?" in result.stderr


def test_revoking_a_missing_key_is_refused():
    run("keys", "add", "men", MEN)
    with pytest.raises(InvalidKey, match="has no valid key nobody"):
        run("keys", "revoke", "men", "--key", "nobody")


def test_a_project_without_a_feed_that_is_pushed_to_has_no_receiver():
    with pytest.raises(InvalidDefinition, match="no feed here takes pushed events"):
        run("--module", "feed_assets.definitions")


def test_the_events_of_a_source_are_named_as_its_tables_are_here():
    source = EventSource("shop", ())
    days = dg.DailyPartitionsDefinition("2026-01-01")
    table = event_table("shop/orders", source=source, table_name="orders", partitions_def=days)
    graph = Graph(dg.Definitions([table]).resolve_asset_graph())
    shop = written_sources(graph)["shop"]
    now = datetime(2026, 1, 3, tzinfo=UTC)
    new = WriteEvent("orders", now, now, "c", partition_key="2026-01-01")
    assert shop.named(new, now) == replace(new, table_name="shop/orders")
    never = shop.named(replace(new, partition_key="2025-01-01"), now)
    assert isinstance(never, Rejected)
    assert "never will be" in never.reason
    assert polled(graph) == {}


def test_the_receiver_accepts_exactly_the_declared_feeds():
    hours = dg.HourlyPartitionsDefinition("2026-01-01_03", fmt="%Y-%m-%d_%H")
    pushed = foreign_feed(
        MEN, schema="id string, at timestamp", event_time="at", format="json", partitions_def=hours, intake="push"
    )
    other = foreign_feed("partners/women/v1.0", schema="id string")
    (found,) = pushed_feeds(Graph(dg.Definitions([pushed, other]).resolve_asset_graph())).values()
    assert (str(found.feed), found.event_time, found.first.isoformat()) == (MEN, "at", "2026-01-01T03:00:00+00:00")
    assert found.key(int(found.first.timestamp())) == "2026-01-01_03"

"""`events`, and `explain` and `reconcile` of datasets built by events, on the retail domain; no Spark."""

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.errors import EventOutOfOrder, InvalidEvent, InvalidName
from feed_assets.core.events import PARENTS, WriteEvent, foreign_correlation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.slices import Slice
from feed_assets.feeds import write
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import claims, event_store, update_changes
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import event
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case

SUMMARY, DAY = "retail/daily_summary/v1.0", "2010-12-03"
TABLES = [f"retail/{name}/v1.0" for name in ("purchases", "num_purchases_per_day", "purchases_per_buyer")]

pytestmark = pytest.mark.usefixtures("home")


def said(*args: str) -> str:
    return CliRunner().invoke(app, args, catch_exceptions=False).stdout


def publish(table: str, marker: str = "2024-01-01T06:00:00Z", *more: str) -> str:
    return said("events", "publish", table, "--partition", DAY, "--marker", marker, "--correlation", "X", *more)


def test_an_event_is_published_once_and_listed() -> None:
    assert publish("shop/orders", "7").splitlines()[1].split() == ["shop/orders", DAY, "yes", "X"]
    again = publish("shop/orders", "7").splitlines()
    assert (again[1].split(), again[2]) == (["shop/orders", DAY, "no", "X"], "this event was published before")
    (row,) = json.loads(said("events", "ls", "--json"))
    assert (row["table"], row["partition"], row["marker"], row["correlation_id"]) == ("shop/orders", DAY, "7", "X")
    header, line = said("events", "ls", "shop/orders").splitlines()
    assert header.split()[:5] == ["sequence", "table", "partition", "marker", "operation"]
    assert line.split()[1:6] == ["shop/orders", DAY, "7", "OVERWRITE", "X"]
    with pytest.raises(InvalidName, match=r"has no table shop/others: is shop/orders meant\? Correct the name"):
        said("events", "ls", "shop/others")
    with pytest.raises(InvalidName, match=r"has no table x: it has events of shop/orders\. Correct the name"):
        said("events", "stats", "shop/orders", "x")


def test_without_a_correlation_id_it_is_that_of_table_partition_and_marker() -> None:
    done = json.loads(said("events", "publish", "shop/orders", "--marker", "20240101.060000", "--json"))
    assert done["correlation_id"] == foreign_correlation(Partition(Feed.parse("shop/orders")), "20240101.060000")


@each_case(
    ("more", "error", "reason"),
    [
        (["--marker", "6"], EventOutOfOrder, "marker 6 is not after 7"),
        (["--marker", "9", "--updated-at", "8", "10"], InvalidEvent, "its rows' updated_at are 8 to 10"),
        (["--marker", "9", "--operation", "APPEND"], InvalidEvent, "'APPEND' is not an operation: expected one of"),
        (["--marker", "9", "--context", "[1]"], InvalidEvent, "expected a JSON object"),
        (["--marker", "2024-01-01"], InvalidEvent, "is of another kind than the markers of shop/orders"),
        (["--marker", "9999-12-31"], InvalidEvent, "is more than 1 day, 0:00:00 ahead of now"),
        (["--marker", "9", "--correlation", "x" * 6000], InvalidEvent, "has 6000 bytes: expected at most 500"),
        (["--marker", "9", "--partition", "a/b/c/d/e/f/g/h/i"], InvalidName, "9 segments: expected at most 500 and 8"),
        (["--marker", "9", "--context", '{"no_new_data": "false"}'], InvalidEvent, "expected true or false"),
        (["--marker", "9", "--context", '{"a": NaN}'], InvalidEvent, "is not JSON"),
        (["--marker", "9", "--context", '{"a": ' + "[" * 5000], InvalidEvent, "expected a JSON object"),
        (["--marker", "soon"], InvalidEvent, "'soon' is not a marker"),
    ],
)
def test_events_publish_refuses_invalid_events_with_the_reason(more, error, reason) -> None:
    said("events", "publish", "shop/orders", "--marker", "7")
    with pytest.raises(error, match=reason):
        said("events", "publish", "shop/orders", *more)


def due_of_day() -> list[str]:
    """Return how many updates the next run of the day takes, and how many are left for later."""
    (line,) = [line.split() for line in said("events", "due").splitlines() if line.split()[0] == DAY]
    return line[1:3]


def test_due_lists_incomplete_updates_with_their_start_and_selected_ones() -> None:
    for table in TABLES[:2]:
        publish(table)
    (found,) = json.loads(said("events", "due", SUMMARY, "--json"))
    (incomplete,) = found["due"][DAY]["incomplete"]
    assert (incomplete["correlation_id"], incomplete["missing"]) == ("X", TABLES[2:])
    assert due_of_day() == ["0", "0"]
    publish(TABLES[2])
    # Their events are there, and no update of any of them: a run has nothing to read.
    assert due_of_day() == ["0", "1"]
    (found,) = json.loads(said("events", "due", SUMMARY, "--json"))
    assert found["due"][DAY]["waits"].startswith(f"no valid update of fx/exchange_rate/v1.0 {DAY}, ")


def groups():
    """Return the summary's partitions by state, from `explain`."""
    return json.loads(said("explain", SUMMARY, "--json"))["partitions"]


def test_explain_names_waiting_propagations() -> None:
    assert [group["state"] for group in groups()] == ["missing"]
    assert said("explain").splitlines()[0] == "nothing waits"
    publish(TABLES[0])
    one = said("explain", SUMMARY, DAY)
    assert f"{SUMMARY}  {DAY}  waits for input" in one
    assert "X of 2010-12-03 has not reached" in one
    assert json.loads(said("explain", SUMMARY, DAY, "--json"))["due"]["incomplete"][0]["missing"] == sorted(TABLES[1:])
    (waits,) = [group for group in groups() if group["state"] == "waits for input"]
    assert (waits["count"], waits["partitions"]) == (1, DAY)
    (row,) = [each for each in json.loads(said("explain", "--json")) if each["feed"] == SUMMARY]
    assert (row["state"], row["count"], row["partitions"]) == ("waits for input", 1, DAY)


def test_explain_names_slices_that_are_due_again_and_the_lost_update_that_had_them() -> None:
    for table in TABLES:
        publish(table)
    output, ledger, now = Partition(Feed.parse(SUMMARY), DAY), open_ledger(settings().ledger), utc_now()
    assert json.loads(said("explain", SUMMARY, DAY, "--json"))["came_back"] == []
    slices = [Slice(Partition(Feed.parse(table), DAY), None, "20240101.060000", frozenset()) for table in TABLES[:2]]
    with ledger.change() as connection:
        claims.claim(connection, "run", [(output, "20240101.070000")], (), "1", now, slices)
        update_changes.publish(connection, output, "20240101.070000", now)
    # The blackboard does not have this update, and `explain` checks the output, too.
    of_update = {"consumed_by": "20240101.070000", "why": "it is no longer there"}
    bounds = {"partition": DAY, "after": "the beginning", "upto": "2024-01-01T06:00:00Z"}
    came_back = json.loads(said("explain", SUMMARY, DAY, "--json"))["came_back"]
    assert came_back == [{"table": table, **bounds, **of_update} for table in TABLES[:2]]
    assert "it is no longer there" in said("explain", SUMMARY, DAY)


def test_a_dataset_is_paused_with_a_reason_and_resumed() -> None:
    assert "paused since" in said("events", "pause", SUMMARY, "--why", "a release")
    assert f"{SUMMARY}  paused since" in said("events", "due", SUMMARY)
    assert "a release" in json.loads(said("events", "due", SUMMARY, "--json"))[0]["paused"]
    assert said("events", "resume", SUMMARY).splitlines()[1] == f"{SUMMARY}  yes"
    assert said("events", "resume", SUMMARY).splitlines()[1] == f"{SUMMARY}  no"
    with pytest.raises(InvalidName, match="is not built by events"):
        said("events", "pause", TABLES[0])


def test_stats_tell_how_long_updates_take_and_whether_new_code_made_it_longer() -> None:
    now = utc_now()
    new = []
    for number, (seconds, code) in enumerate([(10, "1"), (20, "1"), (30, "2")]):
        begun = now + timedelta(hours=number)
        new.append(WriteEvent("a", begun, begun, f"X{number}"))
        context = {"code_version": code, PARENTS: [f"X{number}", "elsewhere"]}
        done = begun + timedelta(seconds=seconds)
        new.append(WriteEvent("b", done, done, f"joined {number}", context=context))
    with open_ledger(settings().ledger).change() as connection:
        event_store.record(connection, event_store.OURS, new, now, refuse_out_of_order=False)
    assert said("events", "stats", "a", "b").splitlines() == [
        "code_version  count  median    p95       change   against",
        "1             2      15.000 s  19.500 s",
        "2             1      30.000 s  30.000 s  +100.0%  1",
        "no two versions have 5 updates each, which a comparison needs",
    ]
    assert [each["count"] for each in json.loads(said("events", "stats", "a", "b", "--json"))] == [2, 1]
    assert said("events", "stats", "b", "a") == "no update has gone from b to a yet\n"


def test_stats_say_which_code_is_slower_than_which_and_by_how_much() -> None:
    now, new = utc_now(), []
    for number in range(10):
        begun, code = now + timedelta(hours=number), "1" if number < 5 else "2"
        done = begun + timedelta(seconds=10 if code == "1" else 25)
        new.append(WriteEvent("a", begun, begun, f"X{number}"))
        new.append(WriteEvent("b", done, done, f"X{number}", context={"code_version": code}))
    with open_ledger(settings().ledger).change() as connection:
        event_store.record(connection, event_store.OURS, new, now, refuse_out_of_order=False)
    assert said("events", "stats", "a", "b").splitlines()[-1] == (
        "code 2 (median 25.000 s of 5) takes 2.50 times as long as code 1 (median 10.000 s of 5): it is slower, by "
        "more than 2 times, which is an alert"
    )
    _, last = json.loads(said("events", "stats", "a", "b", "--json"))
    assert {name: last[name] for name in ("code_version", "against", "change")} == {
        "code_version": "2",
        "against": "1",
        "change": 1.5,
    }


def test_reconcile_publishes_events_that_were_lost() -> None:
    raw = Partition(Feed.parse("retail/invoices_raw/v1.0"), DAY)
    update_id = write.publish(open_board(settings()), raw, {"part-1.csv": b"InvoiceNo\n"}, utc_now()).id
    said("reconcile")
    with open_ledger(settings().ledger).write() as connection:
        assert connection.execute(sa.delete(event)).rowcount == 1
    assert json.loads(said("reconcile", "--json"))["events"] == [
        {"table": str(raw.feed), "partition": DAY, "update_id": update_id}
    ]
    (row,) = json.loads(said("events", "ls", "--json"))
    assert (row["correlation_id"], row["context"]["update_id"]) == (foreign_correlation(raw, update_id), update_id)
    assert json.loads(said("reconcile", "--json"))["events"] == []


def test_our_events_are_published_besides_where_the_settings_say(tmp_path, monkeypatch) -> None:
    table = f"sqlite:///{tmp_path / 'team.db'}#told"
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", f"blackboard:events,{table}")
    settings.cache_clear()
    publish("shop/orders")
    said("reconcile")
    publish("shop/orders", "2024-01-02T06:00:00Z")
    for _ in range(2):
        said("reconcile")
    board = open_board(settings())
    lines = [line for file in board.files("events") for line in board.get(file.key).splitlines()]
    assert [json.loads(line)["marker"][:10] for line in lines] == ["2024-01-01", "2024-01-02"]
    with sa.create_engine(table.split("#")[0], poolclass=sa.NullPool).connect() as connection:
        rows = connection.execute(sa.text("SELECT table_name, correlation_id FROM told ORDER BY id")).all()
    assert rows == [("shop/orders", "X")] * 2


def test_a_sink_that_does_not_answer_is_reported_and_served_later(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", f"sqlite:///{tmp_path / 'not there' / 'team.db'}#told")
    settings.cache_clear()
    publish("shop/orders")
    assert json.loads(said("reconcile", "--json"))["problems"]
    (tmp_path / "not there").mkdir()
    assert json.loads(said("reconcile", "--json"))["problems"] == []

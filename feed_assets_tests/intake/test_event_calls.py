"""Calls of other teams to a receiver: their write events, and requests to discover a feed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Event

import dagster as dg
import pytest

from feed_assets import EventSource, event_table
from feed_assets.cli.receive import written_sources
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.write import publish
from feed_assets.intake import authentication, event_calls
from feed_assets.intake.event_calls import EVENTS_PER_CALL, WrittenSource
from feed_assets.ledger import event_rejects, event_store, log, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.ingest import ingest, sources_of
from feed_assets.runs.services import Services
from feed_assets_tests.support.receivers import NOW, door_of, lines, listening

RAW, HELD = "ads/raw/v1.0", "ads/held/v1.0"
SCOPES = ("events:shop", "events:strict", "events:nobody", RAW, HELD)


def named(event: WriteEvent, _now) -> WriteEvent | Rejected:
    """Rename the table `orders` to our `shop/orders`; reject events of `secrets`."""
    if event.table_name == "secrets":
        return Rejected(event_rejects.in_json(event), "not a table of this source")
    return replace(event, table_name=f"shop/{event.table_name}")


SOURCES = {
    "shop": WrittenSource("shop", named),
    "strict": WrittenSource("strict", named, refuse_out_of_order=True),
}


@pytest.fixture
def door(local_board, ledger, tmp_path):
    return door_of(local_board, ledger, tmp_path / "spool", sources=SOURCES, polled={RAW: False, HELD: True})


@pytest.fixture
def team(door):
    with listening(door, scopes=SCOPES) as team:
        yield team


def written(hour: int, table: str = "orders") -> dict[str, object]:
    marker = f"2026-01-01T{hour:02}:00:00Z"
    return {"table_name": table, "marker": marker, "correlation_id": f"c{hour}", "write_operation": "INSERT"}


def recorded(ledger) -> list[tuple[str, str, str | None]]:
    with ledger.read() as connection:
        found = event_store.newest(connection, 100)
    return sorted((each.source, f"{each.partition.feed} {each.marker}", each.flag) for each in found)


def test_write_events_are_in_the_ledger_before_the_answer_and_may_be_sent_again(team, ledger):
    first = team.call("/events/shop", lines(written(1), written(2)))
    assert (first.status_code, first.json()) == (200, {"accepted": 2, "rejected": 0, "reasons": []})
    expected = [("shop", "shop/orders 20260101.010000", None), ("shop", "shop/orders 20260101.020000", None)]
    assert recorded(ledger) == expected
    with ledger.read() as connection:
        before = log.last(connection)
    assert team.call("/events/shop", lines(written(1), written(2))).json()["accepted"] == 2
    with ledger.read() as connection:
        assert log.last(connection) == before
    assert recorded(ledger) == expected


def test_lines_that_are_no_event_of_the_source_are_reported_and_kept(team, ledger):
    body = lines(written(1), {"marker": 1}, written(2, "secrets"), 7) + b"nonsense"
    said = team.call("/events/shop", body).json()
    assert (said["accepted"], said["rejected"], [each["index"] for each in said["reasons"]]) == (1, 4, [1, 2, 3, 4])
    assert said["reasons"][1]["reason"] == "not a table of this source"
    with ledger.read() as connection:
        kept = {each.raw for source, each, _ in event_rejects.rejects(connection, 10) if source == "shop"}
    assert {"7", "nonsense"} <= kept
    assert len(kept) == 4


def test_an_event_out_of_order_is_flagged_or_refused_as_its_source_declares(team, ledger):
    team.call("/events/shop", lines(written(2)))
    team.call("/events/shop", lines(written(1)))
    assert [flag for _, _, flag in recorded(ledger)] == ["out of order", None]
    team.call("/events/strict", lines(written(4)))
    said = team.call("/events/strict", lines(written(3))).json()
    assert (said["accepted"], said["rejected"]) == (0, 1)
    assert "is not after" in said["reasons"][0]["reason"]


def test_a_key_is_for_its_sources_alone(team):
    assert team.call("/events/other", lines(written(1))).status_code == 403
    assert team.call("/events/nobody", lines(written(1))).status_code == 404
    assert team.call("/wake/ads/other/v1.0").status_code == 403
    assert replace(team, key="x").call("/events/shop", lines(written(1))).status_code == 401


def test_too_many_events_are_refused_whole(team, ledger):
    body = lines(written(1)) * (EVENTS_PER_CALL + 1)
    assert team.call("/events/shop", body).status_code == 413
    assert recorded(ledger) == []


def test_a_wake_records_what_is_new_in_a_partition_and_the_log_tells_ticks(team, ledger, local_board):
    partition = Partition(Feed.parse(RAW), "2026-01-01")
    update = publish(local_board, partition, {"a.csv": b"id\n1\n"}, NOW - timedelta(hours=1))
    said = team.call(f"/wake/{RAW}?partition=2026-01-01")
    assert (said.status_code, said.json()["updates"]) == (200, {"2026-01-01": update.id})
    with ledger.read() as connection:
        assert updates.newest(connection, [partition])[partition].id == update.id
        assert log.has_after(connection, 0)


def test_a_wake_of_an_appendable_feed_records_its_batches(team, ledger, local_board):
    held = Partition(Feed.parse(HELD), "2026-01-01")
    for name in ("a", "b"):
        publish(local_board, held.batch(name), {"a.csv": b"id\n1\n"}, NOW)
    assert {*team.call(f"/wake/{HELD}?partition=2026-01-01").json()["updates"]} == {"2026-01-01/a", "2026-01-01/b"}
    with ledger.read() as connection:
        assert [pin.partition.name for pin in pins_of(connection, [held])[held]] == ["a", "b"]


def test_a_wake_counts_against_the_rate_of_its_key(local_board, ledger, tmp_path):
    door = door_of(local_board, ledger, tmp_path / "spool", polled={RAW: False}, rate=0.01)
    with listening(door, scopes=SCOPES) as team:
        answers = [team.call(f"/wake/{RAW}?partition=2026-01-01").status_code for _ in range(2)]
    assert answers == [200, 429]


def test_a_wake_of_a_missing_partition_finds_nothing(team):
    assert team.call(f"/wake/{RAW}?partition=2026-01-02").json()["updates"] == {}
    assert team.call(f"/wake/{RAW}?partition=../x").status_code == 400
    assert team.call(f"/wake/{RAW}?partition=20260101.000000").status_code == 400


def test_a_wake_whose_store_never_answers_holds_up_its_own_key_alone(door, ledger, monkeypatch):
    is_asked, answers = Event(), Event()

    def silent(*_: object) -> tuple[None, None]:
        is_asked.set()
        answers.wait(60)
        return None, None

    monkeypatch.setattr(event_calls, "sync", silent)
    wake = f"/wake/{RAW}?partition=2026-01-01"
    key = authentication.add(ledger, "other", (HELD,), NOW)
    with listening(door, scopes=SCOPES) as team, ThreadPoolExecutor(1) as pool:
        other = replace(team, key=key)
        first = pool.submit(team.call, wake)
        try:
            assert is_asked.wait(60)
            refused = team.call(wake)
            assert (refused.status_code, "in progress" in refused.json()["error"]) == (429, True)
            assert other.call(f"/wake/{HELD}?partition=2026-01-01").status_code == 200
            assert team.get("/health").status_code == 200
        finally:
            answers.set()
        assert first.result(60).status_code == 200
        assert team.call(wake).status_code == 200


def test_a_source_cannot_report_events_of_a_table_that_another_location_declares(local_board, ledger, tmp_path):
    """The markers of a stranger must neither stop a table nor say that its data are complete."""
    services = Services(local_board, ledger, lambda: None, lambda: NOW)
    shop, crm = (
        Graph(dg.Definitions([event_table(table, source=EventSource(table.split("/")[0], ()))]).resolve_asset_graph())
        for table in ("shop/orders", "crm/customers")
    )
    for graph in (shop, crm):
        (source,) = sources_of(graph).values()
        ingest(graph, services, source, NOW, lambda: False)
    sources = written_sources(shop) | written_sources(crm)
    door = door_of(local_board, ledger, tmp_path / "spool", sources=sources)
    with listening(door, scopes=("events:shop", "events:crm")) as team:
        refused = team.call("/events/shop", lines(written(23, "crm/customers"), written(1, "shop/orders"))).json()
        assert (refused["accepted"], refused["rejected"]) == (1, 1)
        assert "crm/customers is declared as a table of the event source crm" in refused["reasons"][0]["reason"]
        assert team.call("/events/crm", lines(written(2, "crm/customers"))).json()["accepted"] == 1
    assert [(source, event.split()[0]) for source, event, _ in recorded(ledger)] == [
        ("crm", "crm/customers"),
        ("shop", "shop/orders"),
    ]

"""Changes of an update between its choice and the read: exactly its rows, or an error that says to read again."""

import threading
from datetime import UTC, datetime

import pytest

from feed_assets.core.errors import NoValidUpdate, UpdateChanged
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate, publish
from feed_assets_tests.support.parquet_lake import MONDAY, NEW, OLD, TUESDAY, parquet

GONE = r"part-0.parquet is gone since it was listed. Look for the newest valid update again"
ALTERED = (
    r"part-0.parquet has \d+ bytes \(.*\) and had \d+ \(.*\) when it was listed. Look for the newest valid update again"
)


def part(lake, update_id=OLD):
    return f"{lake.at(MONDAY).path}/{update_id}/part-0.parquet"


@pytest.mark.parametrize("after", ["the look", "the columns"])
@pytest.mark.parametrize("same_size", [True, False])
def test_a_file_that_is_overwritten_is_refused(lake, after, same_size):
    lake.put(MONDAY, {"n": [1]})
    found = lake.read(MONDAY)
    if after == "the columns":
        _ = found.schema
    lake.board.put(part(lake), parquet({"n": [2] if same_size else [*range(1000)]}))
    for rows in (found.to_arrow, lambda: found.to_reader().read_all()):
        with pytest.raises(UpdateChanged, match=ALTERED):
            rows()


@pytest.mark.parametrize("after", ["the look", "the columns"])
def test_an_update_that_is_pruned_is_refused_and_read_again_the_newer_one_comes(lake, after):
    lake.put(MONDAY, {"n": [1]})
    found = lake.read(MONDAY)
    if after == "the columns":
        _ = found.schema
    lake.put(MONDAY, {"n": [2]}, update_id=NEW)
    lake.board.sweep(found.updates[0].path)
    for rows in (found.to_arrow, lambda: found.to_reader().read_all()):
        with pytest.raises(UpdateChanged, match=GONE):
            rows()
    assert lake.rows(MONDAY) == [(2,)]


def test_an_update_that_is_no_longer_valid_is_what_was_valid_then(lake):
    lake.put(MONDAY, {"n": [1]})
    found = lake.read(MONDAY)
    invalidate(lake.board, lake.at(MONDAY), OLD)
    assert found.to_arrow().to_pydict() == {"n": [1]}
    with pytest.raises(NoValidUpdate):
        lake.read(MONDAY)


def test_a_producer_that_was_killed_before_its_manifest_is_not_seen(lake):
    lake.put(MONDAY, {"n": [1]})
    lake.board.put(part(lake, NEW), parquet({"n": [2]}))
    assert lake.rows(MONDAY) == [(1,)]
    lake.board.put(f"{lake.at(MONDAY).path}/{NEW}/_SUCCESS", b"1")
    assert lake.rows(MONDAY) == [(2,)]


def test_a_prune_between_the_name_and_the_manifest_is_looked_through_again(local_lake, monkeypatch):
    """Publish the newer update and remove the older one after names were listed."""
    local_lake.put(MONDAY, {"n": [1]})
    names = Blackboard.names

    def overtaken(board, prefix):
        monkeypatch.setattr(Blackboard, "names", names)
        found = names(board, prefix)
        local_lake.put(MONDAY, {"n": [2]}, update_id=NEW)
        board.put(f"{read.PRUNED}/{prefix}/{NEW}", b"")
        board.sweep(f"{prefix}/{OLD}")
        return found

    monkeypatch.setattr(Blackboard, "names", overtaken)
    assert local_lake.rows(MONDAY) == [(2,)]


def test_while_a_producer_publishes_and_prunes_every_table_is_one_update(local_lake):
    """Number all rows of an update, in three parts; an overtaken reader gets an error, and reads again."""
    lake, stop, seen = local_lake, threading.Event(), []
    lake.put(MONDAY, *[{"n": [0, 0]}] * 3)

    def produce():
        number, before = 0, OLD
        while not stop.is_set():
            number += 1
            rows = {f"part-{each}.parquet": parquet({"n": [number, number]}) for each in range(3)}
            made = publish(lake.board, lake.at(MONDAY), rows, datetime.now(UTC))
            lake.board.put(f"{read.PRUNED}/{lake.at(MONDAY).path}/{made.id}", b"")
            lake.board.delete([f"{lake.at(MONDAY).path}/{before}/_SUCCESS"])
            lake.board.sweep(f"{lake.at(MONDAY).path}/{before}")
            before = made.id

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        while len(seen) < 200:
            try:
                seen.append(lake.read(MONDAY).to_arrow()["n"].to_pylist())
            except UpdateChanged:
                seen.append(None)
    finally:
        stop.set()
        producer.join()
    assert all(rows is None or (len(rows) == 6 and len({*rows}) == 1) for rows in seen)
    assert len({*(rows[0] for rows in seen if rows)}) > 1


def test_a_set_with_a_missing_batch_is_refused_as_a_whole(lake):
    for name in ("a", "b"):
        lake.put(f"{TUESDAY}/{name}", {"n": [1]})
    found = lake.read(TUESDAY, batches=True)
    lake.board.sweep(batch_set.latest(lake.board, lake.at(TUESDAY)).updates[1].path)
    with pytest.raises(UpdateChanged, match=f"{TUESDAY}/b/{OLD}/{GONE}"):
        found.to_arrow()

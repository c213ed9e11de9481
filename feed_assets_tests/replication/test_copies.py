"""Copies of updates: the same ids and bytes, in order, on each pair of stores, and no more requests than needed."""

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.ledger import log, subscriptions, update_changes
from feed_assets.ledger.tables import subscription
from feed_assets.replication import replicator
from feed_assets.replication.places import open_place
from feed_assets.replication.transitions_read import fill, forget_place, readers_of
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.sync import sync
from feed_assets.settings import Settings
from feed_assets_tests.replication.two_ends import DAY, FILES, REJECTS, SALES, history, place_on, visible, wired
from feed_assets_tests.support.own_updates import publish_own

BATCHES = [DAY.batch(f"b0000000{number}") for number in (1, 2)]


def test_a_place_gets_each_update_under_its_id_and_follows_invalidation_and_prunes(any_ends):
    large = {"part-0.parquet": bytes(range(256)) * (70 << 10), "deep/part 1.csv": b"id\n3\n", "empty.csv": b""}
    first, second = any_ends.publish(), any_ends.publish(files=large)

    result = any_ends.replicate()
    assert (result.done, any_ends.waiting()) == (2, [])
    assert history(any_ends.place.board) == {first.id: FILES, second.id: large}

    any_ends.invalidate(second)
    any_ends.replicate()
    assert visible(any_ends.place.board) == (first.id, FILES)

    third = any_ends.publish(files={})
    any_ends.prune()
    any_ends.replicate()
    assert history(any_ends.place.board) == history(any_ends.source) == {third.id: {}}
    assert not any_ends.waiting()
    assert [file.key for file in any_ends.place.board.files(DAY.path)] == [f"{DAY.path}/{third.id}/_SUCCESS"]


def test_a_revalidated_update_is_visible_again_and_no_byte_is_sent_twice(any_ends):
    any_ends.place = place_on(*[wired(any_ends.place.board)[0]])
    wire = any_ends.place.board._client
    update = publish_own(any_ends.services, DAY, any_ends.clock())
    any_ends.replicate()
    sent = wire.sent

    any_ends.invalidate(update)
    any_ends.replicate()
    assert visible(any_ends.place.board) is None

    revalidate(any_ends.services, DAY, update.id)
    any_ends.replicate()
    assert visible(any_ends.place.board) == visible(any_ends.source)
    assert wire.sent == sent


def test_what_is_there_already_is_neither_hidden_nor_sent_again(any_ends):
    """The ledger does not have the copies: it is from a backup, or the place had another name."""
    first, newest = any_ends.publish(), any_ends.publish(files=FILES | {"deep/part 2.csv": b"id\n5\n"})
    any_ends.replicate()
    board, wire = wired(any_ends.place.board)
    seen = list[object]()
    any_ends.on_step = lambda _: seen.append((visible(board) or [None])[0])
    for content in (FILES["part-0.csv"], b"id\n0\n"):
        any_ends.place.board.put(f"{newest.path}/part-0.csv", content)
        with any_ends.ledger.write() as connection:
            forget_place(connection, "b")
        seen.clear()
        wire.operations.clear()
        assert any_ends.replicate(place_on(board)).failed == 0

        assert history(board) == history(any_ends.source)
        is_equal = content == FILES["part-0.csv"]
        assert ("delete" not in wire.operations, {*seen} == {newest.id}) == (is_equal, is_equal)
    assert {*seen} == {first.id, newest.id}, "an update that differs is invalid until it is right"


def test_rejects_are_there_before_their_update_and_a_failed_copy_holds_its_lane_alone(ends):
    rejects, other = Partition(REJECTS, DAY.key), Partition(SALES, "2026-02-01")
    ends.publish(rejects, {"rejects.csv": b"bad\n"})
    ends.publish()
    ends.publish(other)
    board, wire = wired(ends.place.board)
    order = list[str]()
    wire.before = lambda name, key: (
        _refuse(key, "rejects.csv") if name == "put_chunks" else order.append(f"{name} {key}")
    )

    result = ends.replicate(place_on(board))

    assert (result.done, result.failed) == (1, 1)
    assert visible(board) is None
    assert visible(board, other) is not None
    (failed, behind) = ends.waiting()
    assert (failed.partition, failed.tries, behind.partition) == (rejects, 1, DAY)
    assert "no space" in (failed.error or "")

    assert ends.replicate().done == 0, "the next try is after a pause"
    ends.clock.pass_(seconds=5)
    wire.before = lambda name, key: order.append(f"{name} {key}")
    assert ends.replicate(place_on(board)).done == 2
    manifests = [each for each in order if each.startswith("put ") and each.endswith("_SUCCESS")]
    assert [each.split()[1].split("/")[1] for each in manifests] == ["sales", "sales_rejects", "sales"]


def _refuse(key: str, name: str) -> None:
    if key.endswith(name):
        raise OSError(28, "no space left on device")


def test_a_range_of_batches_is_there_before_its_batches_go(ends):
    for each in BATCHES:
        ends.publish(each)
        with ends.ledger.change() as connection:
            update_changes.batch_partitions.join(connection, each)
    ends.replicate()
    together = DAY.batch("b00000001-00000002")
    ends.publish(together, {"all.csv": b"id\n1\n2\n"})
    with ends.ledger.change() as connection:
        update_changes.batch_partitions.join(connection, together)
    ends.prune(BATCHES[0])
    ends.prune(BATCHES[1])
    assert visible(ends.source, BATCHES[0]) is None

    seen = list[tuple[object, ...]]()
    ends.on_step = lambda _: seen.append(
        tuple(visible(ends.place.board, each) is not None for each in (together, *BATCHES))
    )
    ends.with_place(keep=5).replicate()

    assert seen[-1] == (True, False, False)
    assert all(has_range or (first and second) for has_range, first, second in seen)


def test_each_place_keeps_its_own_number_of_updates_and_copies_no_overtaken_one(ends):
    updates = [ends.publish(files={"n.csv": str(number).encode()}) for number in range(5)]
    ends.place = place_on(wired(ends.place.board)[0])
    few = ends.with_place(keep=2)

    assert few.replicate().done == 5
    assert ends.place.board._client.sent == len("34"), "what it would not keep is not sent"
    assert [*history(ends.place.board)] == [updates[4].id, updates[3].id]
    newest = ends.publish()
    few.prune(keep=1)
    few.replicate()
    assert [*history(ends.place.board)] == [newest.id, updates[4].id], "the prune of the source is not followed"
    assert read.kept_from(ends.place.board, DAY) == updates[4].id
    ends.invalidate(newest)
    few.replicate()
    assert visible(ends.place.board) == (updates[4].id, {"n.csv": b"4"}), "also if the source has it no longer"


def test_datasets_of_earlier_patterns_are_copied_first_even_if_their_changes_are_newer(ends):
    order = list[str]()
    for day in range(1, 9):
        ends.publish(Partition(SALES, f"2026-01-{day:02}"))
    place, copied = ends.with_place(at_once=1, datasets=("shop/paid/*", "shop/*")), replicator.copy_update

    def noted(both, update, since):
        order.append(update.partition.key)
        if len(order) == 1:
            ends.publish(Partition(Feed.parse("shop/paid/v1.0"), "paid"))
        return copied(both, update, since)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicator, "copy_update", noted)
        assert place.replicate().done == 9
    assert order.index("paid") == 2, "after the two tasks that were read before"
    assert [each for each in order if each != "paid"] == [f"2026-01-{day:02}" for day in range(1, 9)]


def test_the_older_update_that_readers_of_the_source_get_again_is_copied_again(ends):
    only = ends.with_place(keep=1)
    first, second = only.publish(), only.publish(files={"n.csv": b"2"})
    only.replicate()
    assert [*history(ends.place.board)] == [second.id]

    only.invalidate(second)
    only.replicate()
    assert visible(ends.place.board) == visible(ends.source) == (first.id, FILES)


def test_a_file_that_its_owner_wrote_again_is_copied_again_and_never_mixed(any_ends):
    update = any_ends.publish()
    any_ends.replicate()
    other = {"part-0.csv": b"id\n7\n8\n", "part-1.csv": b"id\n9\n"}
    for name, data in other.items():
        any_ends.source.put(f"{update.path}/{name}", data)
    sync(any_ends.source, any_ends.ledger, DAY, any_ends.clock())
    seen = list[object]()
    any_ends.on_step = lambda _: seen.append(visible(any_ends.place.board))

    any_ends.replicate()

    assert visible(any_ends.place.board) == (update.id, other)
    assert all(each in (None, (update.id, FILES), (update.id, other)) for each in seen)


def test_an_update_invalidated_while_it_is_copied_is_not_published_or_taken_back(ends):
    first, second, third = (ends.publish(files={"n.csv": str(number).encode()}) for number in range(3))

    def invalidate(update, when):
        done = list[str]()

        def on_step(step: str) -> None:
            if step == when and not done:
                done.append(step)
                ends.invalidate(update)

        ends.on_step = on_step

    # Before the look at the source: it is not published. Without the ledger, the blackboard says so.
    write.invalidate(ends.source, DAY, third.id)
    ends.replicate()
    assert visible(ends.place.board) == (second.id, {"n.csv": b"1"})
    assert "no valid update" in (ends.waiting()[0].error or "")
    ends.invalidate(third)
    ends.settle()

    fourth = ends.publish()
    invalidate(fourth, "files recorded")
    ends.replicate()
    assert visible(ends.place.board) == (second.id, {"n.csv": b"1"})
    ends.settle()

    # After the look: it is taken back by the next task of its lane.
    fifth, seen = ends.publish(), list[object]()
    invalidate(fifth, "before the manifest")
    ends.replicate()
    ends.on_step = lambda _: seen.append(visible(ends.place.board))
    ends.settle()
    assert visible(ends.place.board) == visible(ends.source) == (second.id, {"n.csv": b"1"})
    assert first.id in history(ends.place.board)


def test_a_new_place_or_pattern_gets_what_is_there_and_an_old_one_holds_the_log_no_longer(ends):
    other = Partition(read.Feed.parse("ads/shown/v1.0"), "2026-01-31")
    ends.publish()
    newest, _ = ends.publish(), ends.publish(other)
    ends.replicate()
    assert visible(ends.place.board, other) is None

    wider = ends.with_place(datasets=("shop/sales/*", "ads/*"))
    wider.replicate()
    assert visible(ends.place.board, other) is not None
    assert visible(ends.place.board)[0] == newest.id
    with ends.ledger.read() as connection:
        assert readers_of(connection, "b") == {"replicated to b: shop/sales/*", "replicated to b: ads/*"}
        assert {*subscriptions.positions(connection).values()} == {log.last(connection)}
    with ends.ledger.write() as connection:
        assert forget_place(connection, "b") == 3
    with ends.ledger.read() as connection:
        assert connection.execute(subscription.select()).all() == []


def test_feeds_of_other_blackboards_and_events_are_left_out(ends):
    ends.publish()
    assert fill(ends.ledger, ends.place, ends.clock(), elsewhere=[SALES]) == 0


def test_a_copy_needs_no_more_requests_and_bytes_than_its_files(any_ends, request):
    files = {f"part-{number:03}.csv": b"id\n" + b"1\n" * 500 for number in range(200)}
    any_ends.source, reads = wired(any_ends.source)
    board, writes = wired(any_ends.place.board)
    updates = [any_ends.publish(Partition(SALES, f"2026-01-{day:02}"), files) for day in (1, 2)]
    reads.operations.clear()
    any_ends.replicate(place_on(board))

    needed = sum(update.size for update in updates)
    by_store = "s3-s3" in request.node.name or "s3-bucket" in request.node.name
    assert writes.sent <= (0 if by_store else 1.02 * needed)
    data = [each for each in writes.operations if each == "put_chunks"]
    assert len(data) == (0 if by_store else 400)
    # Beside one request for each file: two listings, and the manifest. Local copies are read back.
    read_back = 400 if board._root else 0
    assert len(writes.operations) - len(data) - read_back <= 0.02 * 400
    assert len(reads.operations) <= (0 if by_store else 400) + 0.02 * 400

    sent, operations = writes.sent, len(writes.operations)
    any_ends.replicate(place_on(board))
    assert (writes.sent, len(writes.operations)) == (sent, operations), "nothing is done twice"


def test_a_place_is_another_blackboard_than_the_source(ends, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", f'{{"b": {{"url": "{ends.source.url}", "datasets": ["*"]}}}}')
    with pytest.raises(InvalidSetting, match="our own blackboard"):
        open_place(Settings(), "b", ends.source)
    with pytest.raises(InvalidSetting, match="no data center 'c'"):
        open_place(Settings(), "c", ends.source)

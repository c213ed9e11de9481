"""Damage in transit and at rest, a full place, and a place that differs: found, never published, and repaired."""

import io
import struct
from datetime import UTC, datetime
from hashlib import md5
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feed_assets.core.errors import CopyDamaged, NoValidUpdate
from feed_assets.core.feeds import File, Partition
from feed_assets.feeds import write
from feed_assets.feeds.s3_pages import S3Pages
from feed_assets.ledger import place_copies
from feed_assets.replication import comparison
from feed_assets.replication.comparison import DAMAGED, DIFFERENT, EXTRA, MISSING, repair
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.file_copies import PART, _are_equal, copy_file
from feed_assets.replication.turn import Turn
from feed_assets_tests.replication.two_ends import (
    DAY,
    FILES,
    SALES,
    differences,
    history,
    overwrite,
    place_on,
    repaired,
    visible,
    wired,
)

LARGE = {"part-0.csv": b"1\n" * (PART // 2 + 5), "part-1.csv": b"id\n"}


@pytest.mark.parametrize("files", [FILES, LARGE], ids=["small", "in parts"])
def test_bytes_that_change_on_the_way_are_not_published_and_sent_again(any_ends, files):
    board, wire = wired(any_ends.place.board)
    any_ends.source, _ = wired(any_ends.source)
    place = place_on(board)
    if board._pages and any_ends.source._pages:
        board._pages = None  # The store itself would copy.
    wire.on_chunk = lambda key, chunk: chunk[:-1] + b"X" if key.endswith("part-0.csv") else chunk
    any_ends.publish(files=files)

    assert any_ends.replicate(place).failed == 1
    assert visible(board) is None
    assert any("that were sent" in (each.error or "") for each in any_ends.waiting())
    wire.on_chunk = lambda _, chunk: chunk
    any_ends.settle(place)
    assert visible(board) == visible(any_ends.source)
    assert not differences(any_ends)


@pytest.mark.parametrize(
    "headers",
    [{"ServerSideEncryption": "aws:kms"}, {"ServerSideEncryption": "aws:kms:dsse"}, {"SSECustomerAlgorithm": "AES256"}],
)
def test_an_etag_is_no_md5_if_s3_encrypts_by_a_key_of_its_own(s3_board, local_place, headers, monkeypatch):
    file = File("n.csv", 3, f'"{"0" * 32}"', datetime(2026, 2, 1, tzinfo=UTC))
    monkeypatch.setattr(s3_board, "stream", lambda _key, _start: (file, iter([b"id\n"])))
    monkeypatch.setattr(S3Pages, "head", lambda _pages, _key: {"ServerSideEncryption": "AES256"})
    with pytest.raises(CopyDamaged, match="arrived, expected 0000"):
        copy_file(s3_board, local_place, file, lambda _: None)
    assert local_place.get("n.csv") is None

    monkeypatch.setattr(S3Pages, "head", lambda _pages, _key: headers)
    copied = copy_file(s3_board, local_place, file, lambda _: None)
    assert copied.checksum == md5(b"id\n", usedforsecurity=False).hexdigest()
    assert local_place.get("n.csv") == b"id\n"


def test_bodies_are_compared_in_whatever_chunks_they_arrive():
    chance = Random(1)  # noqa: S311
    data = chance.randbytes(100)

    def chunks(body: bytes):
        at = 0
        while at < len(body):
            size = chance.randrange(1, 40)
            yield body[at : at + size]
            at += size

    for at in range(100):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for other in (changed, data[:at], data + data[: at + 1]):
            assert not _are_equal(chunks(other), chunks(data), lambda _: None)
        assert _are_equal(chunks(data[:at]), chunks(data[:at]), lambda _: None)


def without_end(chunks):
    """Yield a chunk again and again. Fail if somebody reads far beyond the end of LARGE."""
    first = next(chunks)
    yield from [first] * (2 * PART // len(first) + 2)
    pytest.fail("bytes beyond the listed size are still read")


def test_a_source_that_sends_other_bytes_or_breaks_off_leaves_no_file(ends):
    ends.publish(files=LARGE)
    ends.source, wire = wired(ends.source)
    broken = ends.source.stream

    def breaks(key: str, start: int = 0):
        served, chunks = broken(key, start)
        return served, iter([next(chunks)[:100]])

    ends.source.stream = breaks
    assert ends.replicate().failed == 1
    assert "expected" in (ends.waiting()[0].error or "")
    assert not [each.key for each in ends.place.board.files(DAY.path) if "part-0.csv" in each.key]
    assert wire.operations

    for board, kept in ((ends.source, broken), (ends.place.board, ends.place.board.stream)):
        ends.source.stream = broken
        board.stream = lambda key, kept=kept: (kept(key)[0], without_end(kept(key)[1]))
        ends.clock.pass_(minutes=10)
        assert ends.replicate().failed == 1
        assert "still read" not in (ends.waiting()[0].error or "")


def test_a_folder_that_is_removed_while_a_file_is_written_fails_the_task_and_is_made_again(ends):
    update = ends.publish()
    board, wire = wired(ends.place.board)
    place = place_on(board, at_once=1)

    def removed(_key: str, chunk: bytes) -> bytes:
        assert board.sweep(update.path)
        return chunk

    wire.on_chunk = removed
    assert ends.replicate(place).failed == 1
    assert (ends.waiting()[0].error or "").startswith("Cannot write shop/sales/v1.0/")
    wire.on_chunk = lambda _, chunk: chunk
    ends.settle(place)
    assert visible(board) == (update.id, FILES)


def test_a_full_place_publishes_nothing_and_continues_where_it_stopped(ends):
    files = {f"part-{number}.csv": b"1\n" * 100 for number in range(200)}
    board, wire = wired(ends.place.board)
    room = iter(range(130))

    def put(name: str, _key: str) -> None:
        if name == "put_chunks" and next(room, None) is None:
            raise OSError(28, "No space left on device")

    wire.before = put
    ends.publish(files=files)
    place = place_on(board, at_once=1)
    assert ends.replicate(place).failed == 1
    assert visible(board) is None
    assert "No space left" in (ends.waiting()[0].error or "")

    wire.before, wire.sent = lambda *_: None, 0
    ends.settle(place)
    assert visible(board) == visible(ends.source)
    assert wire.sent == 200 * (200 - 128), "the recorded files are not sent again"


def test_a_verified_file_that_is_gone_is_sent_again(ends):
    update = ends.publish()

    def full(step: str) -> None:
        if step == "files recorded":
            raise OSError(28, "No space left on device")

    ends.on_step = full
    assert ends.replicate().failed == 1
    ends.place.board.delete([f"{update.path}/part-0.csv"])
    (ends.place.board._root / update.path / "part-0.csv#1").write_bytes(b"i")  # A process was killed while it wrote.
    ends.on_step = lambda _: None
    ends.clock.pass_(seconds=5)
    assert ends.replicate().done == 1
    assert visible(ends.place.board) == (update.id, FILES)
    assert not ends.place.board.half_written(update.path)


def test_verify_needs_no_ledger_and_repair_makes_the_place_equal(any_ends):
    first, second = any_ends.publish(), any_ends.publish()
    any_ends.replicate()
    assert differences(any_ends) == []
    missing, other = any_ends.publish(Partition(SALES, "2026-02-01")), Partition(SALES, "2026-02-02")
    any_ends.place.board.put(f"{first.path}/part-0.csv", b"id\n0\n")
    any_ends.place.board.put(f"{second.path}/more.csv", b"")
    any_ends.place.board.put(f"{second.path}/_SUCCESS", b"3")
    write.publish(any_ends.place.board, other, FILES, any_ends.clock())

    found = {(each.partition.key, each.update_id): each.kind for each in differences(any_ends)}
    assert [*found.values()].count(EXTRA) == 1
    assert found[missing.partition.key, missing.id] == MISSING
    assert found[DAY.key, first.id] == found[DAY.key, second.id] == DIFFERENT
    quick = {each.update_id: each.reason for each in differences(any_ends, is_deep=False)}
    assert first.id not in quick, "names and sizes are equal"
    assert "more.csv is not at the source" in quick[second.id]
    assert [each.partition for each in differences(any_ends, key=missing.partition.key)] == [missing.partition]

    assert sorted(repaired(any_ends)) == sorted([DIFFERENT, DIFFERENT, EXTRA, MISSING])
    assert differences(any_ends) == []
    assert visible(any_ends.place.board, other) is None
    assert any_ends.settle().failed == 0
    assert differences(any_ends) == []


def test_repair_never_replaces_a_good_copy_by_a_damaged_source(ends):
    update = ends.publish()
    ends.replicate()
    overwrite(ends.source, f"{update.path}/part-0.csv", b"id\n0\n")
    (found,) = differences(ends)
    assert found.kind == DAMAGED
    with pytest.raises(CopyDamaged, match="restore or publish it again"):
        repaired(ends)
    assert visible(ends.place.board) == (update.id, FILES)

    # A file that its owner wrote again has another etag: then the place is behind.
    ends.source.put(f"{update.path}/part-0.csv", b"id\n0\n")
    assert repaired(ends) == [DIFFERENT]
    assert visible(ends.place.board) == visible(ends.source)


def test_repair_copies_files_that_were_restored_before_their_first_copy_and_their_task_ends(ends):
    update = ends.publish()
    for name, data in FILES.items():
        ends.source.put(f"{update.path}/{name}", data)
    assert ends.replicate().failed == 1
    assert repaired(ends) == [MISSING]
    ends.settle()
    assert visible(ends.place.board) == (update.id, FILES)
    with ends.ledger.read() as connection:
        assert place_copies.published(connection, "b", [(DAY, update.id)]), "runs in the place can read it"


def test_repair_never_withdraws_what_the_source_has_lost(ends):
    first, second = ends.publish(), ends.publish()
    ends.replicate()
    ends.source.sweep(first.path)
    ends.source.sweep(second.path)
    assert [(each.update_id, each.kind) for each in differences(ends)] == [(first.id, DAMAGED), (second.id, DAMAGED)]
    with pytest.raises(CopyDamaged, match="the source has lost it"):
        repaired(ends)
    assert [*history(ends.place.board)] == [second.id, first.id]

    for update in (first, second):  # They are restored from the place.
        for file in [*ends.place.board.files(update.path)]:
            ends.source.put(file.key, ends.place.board.get(file.key))
    assert differences(ends) == []


@pytest.mark.parametrize("any_ends", ["local-local", "local-s3"], indirect=True)
def test_damage_of_an_update_that_only_the_place_keeps_is_found_and_withdrawn(any_ends):
    many = any_ends.with_place(keep=5)
    first, second, third = many.publish(), many.publish(), many.publish()
    many.replicate()
    many.prune()
    many.replicate()
    assert differences(many) == []
    overwrite(any_ends.place.board, f"{first.path}/part-0.csv", b"id\n0\n")
    overwrite(any_ends.place.board, f"{second.path}/part-1.csv", b"id\n0\n")
    found = differences(many)
    assert [(each.update_id, each.kind) for each in found] == [(first.id, EXTRA), (second.id, EXTRA)]
    assert "part-1.csv is not what was copied" in found[1].reason
    assert differences(many, is_deep=False) == []
    assert repaired(many) == [EXTRA, EXTRA]
    assert [*history(any_ends.place.board)] == [third.id]


def test_bits_that_change_at_rest_in_the_place_are_repaired(ends):
    update = ends.publish()
    ends.replicate()
    overwrite(ends.place.board, f"{update.path}/part-0.csv", b"id\n0\n")
    board, wire = wired(ends.place.board)
    ends.place = place_on(board)
    assert repaired(ends) == [DIFFERENT]
    assert visible(board) == (update.id, FILES)
    assert wire.sent == len(FILES["part-0.csv"]), "the other file is still right"
    assert visible(ends.source) == (update.id, FILES), "a forged copy is never copied back"


def test_a_difference_that_is_gone_meanwhile_is_not_repaired(ends):
    update = ends.publish()
    (found,) = differences(ends)
    ends.invalidate(update)
    turn = Turn(ends.ledger, "b", ends.clock)
    turn.take_or_raise()
    with pytest.raises(NoValidUpdate):
        repair(CopyEnds(ends.services, ends.place, turn), found)
    assert found.kind == comparison.MISSING
    assert visible(ends.place.board) is None


def test_a_deep_comparison_finds_a_wrong_page_that_was_copied_as_it_is(any_ends):
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": list(range(1000))}), sink, compression="none", write_page_checksum=True)
    good = sink.getvalue()
    bad = bytearray(good)
    bad[good.index(struct.pack("<qq", 500, 501))] ^= 1
    any_ends.publish(files={"part-0.parquet": good})
    damaged = any_ends.publish(files={"part-0.parquet": good, "part-1.parquet": bytes(bad), "part-2.csv": b"id\n"})
    any_ends.replicate()

    assert not differences(any_ends, is_deep=False)
    (difference,) = differences(any_ends)
    assert (difference.kind, difference.update_id) == (DAMAGED, damaged.id)
    assert "part-1.parquet is damaged" in difference.reason
    with pytest.raises(CopyDamaged, match=r"publish"):
        repaired(any_ends)
    assert visible(any_ends.place.board) == visible(any_ends.source)

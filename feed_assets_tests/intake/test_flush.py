"""Flushes from spool to batches: each accepted event is published once, however flushes are killed and repeated."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from zlib import crc32

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.intake import authentication, spool
from feed_assets.intake import flush as module
from feed_assets.intake.batch_publication import publish
from feed_assets.intake.flush import _Gathered, flush, flush_all
from feed_assets.intake.receiver import Receiver
from feed_assets.intake.refused import RefusedRequest
from feed_assets.intake.spool import Spool
from feed_assets.ledger import event_rejects, idempotency, update_counts
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.runs.services import Services
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.receivers import FEEDS, MEN, NOW, WOMEN, event, lines, no_spark, numbers, published

HOURS = ["2026-01-01-03:00", "2026-01-02-10:00", "2026-01-02-11:00"]


class Killed(BaseException):
    """Stands for a kill within this process."""


@pytest.fixture
def receiver(board, ledger, tmp_path):
    opened = receiver_of(board, ledger, tmp_path)
    yield opened
    opened.spool.close()


@pytest.fixture
def quiet(ledger, tmp_path):
    opened = receiver_of(Blackboard.open("memory://"), ledger, tmp_path)
    yield opened
    opened.spool.close()


def receiver_of(board, ledger, folder, name="spool") -> Receiver:
    services = Services(board, ledger, no_spark, lambda: NOW)
    return Receiver(services, FEEDS, Spool(folder / name), timedelta(hours=24))


def push(receiver: Receiver, *events, feed=MEN, key=None, partner="") -> dict[str, object]:
    answer = asyncio.run(receiver.accept(FEEDS[feed], lines(*events), "lines", key, partner))
    return {"accepted": answer.accepted, "rejected": answer.rejected, "repeated": answer.is_repeated}


def restarted(receiver: Receiver) -> Receiver:
    """Return a new receiver on the same folder, as after a kill."""
    receiver.spool.close()
    again = Receiver(receiver.services, FEEDS, Spool(receiver.spool.folder), receiver.ahead)
    again.recover()
    return again


def flushed(receiver: Receiver) -> str:
    receiver.spool.seal()
    return flush_all(receiver, receiver.spool.sealed())


def late_ones() -> list[dict[str, object]]:
    return [
        event(1, "2026-01-02T11:00:00Z"),
        event(2, "2026-01-01T03:20:00Z"),
        event(3, "2026-01-02T11:59:59+01:00"),
        event(4, "2026-01-02T11:59:59Z"),
    ]


def test_events_are_batches_of_their_hours_whenever_they_come(receiver):
    assert push(receiver, *late_ones(), {"id": 7}) == {"accepted": 4, "rejected": 1, "repeated": False}
    push(receiver, event(5), feed=WOMEN)
    segment = receiver.spool.folder.glob("*.spool")
    name = next(segment).stem
    assert flushed(receiver) == ""
    assert numbers(published(receiver.services.board)) == [1, 2, 3, 4]
    assert numbers(published(receiver.services.board, WOMEN)) == [5]
    hours = [Partition(Feed.parse(MEN), hour) for hour in HOURS]
    with receiver.services.ledger.read() as connection:
        known = {at.key: [pin.partition.name for pin in pins] for at, pins in pins_of(connection, hours).items()}
        last = hours[-1].batch(name)
        counted = update_counts.newest(connection, [last])[last][0]
        rejected = event_rejects.rejects(connection, 10)
    assert known == {hour: [name] for hour in HOURS}
    assert counted == '[["2026-01-02-11:00", 1], ["2026-01-02-11:45", 1]]'
    assert [(source, each.raw, each.reason) for source, each, _ in rejected] == [(MEN, '{"id": 7}', "id: not a string")]
    assert [*receiver.spool.folder.glob("*.spool")] == []


def test_a_feed_with_events_of_few_hours_is_published_before_one_with_many(quiet):
    history = [event(number, f"2026-01-01T{number:02}:00:00Z") for number in range(24)]
    push(quiet, *history, feed=MEN)
    push(quiet, event(99), feed=WOMEN)
    quiet.spool.seal()
    batches = [*_Gathered.of(*quiet.spool.sealed(), "a").batches("name")]
    assert [str(each.partition.feed) for each in batches] == [WOMEN, *[MEN] * 24]


def test_a_feed_of_many_hours_delays_no_later_segment_of_others(quiet, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 5)
    history = [event(number, f"2026-01-01T{number:02}:00:00Z") for number in range(24)]
    push(quiet, *history, feed=MEN)
    looks = []
    for number in range(6):
        push(quiet, event(number), feed=WOMEN)
        quiet.spool.seal()
        assert flush_all(quiet, quiet.spool.sealed(), 5) == ""
        looks.append((len(published(quiet.services.board)), len(published(quiet.services.board, WOMEN))))
    assert looks == [(5, 1), (10, 2), (15, 3), (20, 4), (24, 5), (24, 6)]
    assert quiet.spool.sealed() == []
    assert quiet.begun == {}


def test_small_feeds_of_a_segment_that_failed_half_way_wait_for_no_large_one(quiet, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 5)
    push(quiet, *(event(number, f"2026-01-01T{number:02}:00:00Z") for number in range(24)))
    quiet.spool.seal()
    push(quiet, event(1, "2026-01-01T01:00:00Z"), event(2, "2026-01-01T02:00:00Z"), feed=WOMEN)
    push(quiet, *(event(100 + number, f"2026-01-02T{number:02}:00:00Z") for number in range(10)))
    quiet.spool.seal()
    publishes = []

    def fails_once(services, batch, by):
        publishes.append(batch.partition)
        if len(publishes) == 7:
            raise BlackboardUnavailable("no answer")
        return publish(services, batch, by)

    monkeypatch.setattr(module, "publish", fails_once)
    assert "no answer" in flush_all(quiet, quiet.spool.sealed(), 5)
    assert flush_all(quiet, quiet.spool.sealed(), 5) == ""
    assert numbers(published(quiet.services.board, WOMEN)) == [1, 2]


def test_a_feed_of_many_hours_that_was_begun_is_finished_after_a_kill(quiet, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 5)
    push(quiet, *(event(number, f"2026-01-01T{number:02}:00:00Z") for number in range(24)))
    quiet.spool.seal()
    flush_all(quiet, quiet.spool.sealed(), 5)
    quiet = restarted(quiet)
    flush_all(quiet, quiet.spool.sealed(), 5)
    assert len(published(quiet.services.board)) == 5  # Done once more, which changes nothing.
    flush_all(quiet, quiet.spool.sealed())
    assert numbers(published(quiet.services.board)) == [*range(24)]
    quiet.spool.close()


def test_one_key_may_add_so_many_hours_to_those_to_be_published(quiet, monkeypatch):
    monkeypatch.setattr(authentication, "monotonic", lambda: 0.0)
    quiet.hours.per_second = 1
    tens = [[event(hour, f"2026-01-01T{hour:02}:00:00Z") for hour in range(first, first + 10)] for first in (0, 10)]
    push(quiet, *tens[0])
    with pytest.raises(RefusedRequest, match="more than 1 hours to publish a second") as refused:
        push(quiet, *tens[1])
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert push(quiet, *tens[1], partner="another") == {"accepted": 10, "rejected": 0, "repeated": False}


def test_hours_that_the_next_flush_has_anyway_cost_nothing_until_it_is_over(quiet, monkeypatch):
    monkeypatch.setattr(authentication, "monotonic", lambda: 0.0)
    quiet.hours.per_second = 0.3
    for _ in range(5):
        push(quiet, event(1))
    quiet.spool.seal()
    push(quiet, event(1))
    push(quiet, event(1, "2026-01-01T03:00:00Z"))
    with pytest.raises(RefusedRequest, match="hours to publish"):
        push(quiet, event(1))


def test_a_flush_killed_anywhere_is_repeated_without_loss_or_duplicates(quiet):
    board, step = quiet.services.board, 0
    while True:
        push(quiet, event(10 * step, "2026-01-02T10:00:00Z"), event(10 * step + 1), key=f"key {step}")
        quiet.spool.seal()
        dying = replace(quiet, services=dies_at(quiet.services, step))
        try:
            flush(dying, quiet.spool.sealed()[0])
        except Killed:
            quiet = restarted(quiet)
            flush_all(quiet, quiet.spool.sealed())
            step += 1
        else:
            break
    quiet.spool.close()
    assert step > 10
    expected = sorted(10 * number + more for number in range(step + 1) for more in (0, 1))
    assert numbers(published(board)) == expected


def dies_at(services: Services, step: int) -> Services:
    """Killed before the request to the blackboard, or after the step, with this number."""
    left = [step]

    def before(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    each = dict.fromkeys(("list", "children", "get", "put", "create", "delete"), before)
    return replace(services, board=Counting.around(services.board, each).board, on_step=before)


def test_removing_a_segment_before_its_ledger_record_loses_events(quiet, monkeypatch):
    def removed_first(services, batch, who):
        for segment in quiet.spool.sealed():
            segment.unlink()
        raise Killed

    push(quiet, event(1))
    quiet.spool.seal()
    with monkeypatch.context() as patch:
        patch.setattr(module, "publish", removed_first)
        with pytest.raises(Killed):
            flush(quiet, quiet.spool.sealed()[0])
    assert flushed(quiet) == ""
    assert published(quiet.services.board) == [], "the oracle of the test above sees it"


def test_a_blackboard_that_does_not_answer_keeps_everything_for_later(quiet, ledger):
    def down():
        raise BlackboardUnavailable("no answer")

    board = Counting.around(quiet.services.board, {"put": down, "create": down}).board
    push(quiet, event(1))
    without = replace(quiet, services=replace(quiet.services, board=board))
    assert "waits: no answer" in flushed(without)
    push(quiet, event(2))
    assert flushed(quiet) == ""
    assert numbers(published(quiet.services.board)) == [1, 2]


def test_a_segment_that_cannot_be_flushed_is_kept_and_holds_up_no_other(quiet):
    (quiet.spool.folder / "aaaa-odd-000001.spool").write_bytes(b"00000000 2 0\n{}")
    odd = quiet.spool.folder / "aaaa-worse-000001.spool"
    header = b'["..", [], [], null, "", ""]'
    odd.write_bytes(b"%08x %d 0\n" % (crc32(header), len(header)) + header)
    push(quiet, event(1))
    assert "aaaa-worse-000001.spool cannot be published, and is kept" in flushed(quiet)
    assert numbers(published(quiet.services.board)) == [1]
    assert quiet.spool.sealed() == [odd]


def test_a_damaged_segment_publishes_its_intact_frames_and_is_kept(quiet, caplog):
    for number in range(3):
        push(quiet, event(number), key=f"key {number}")
    quiet.spool.seal()
    (segment,) = quiet.spool.sealed()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    for again in (quiet, restarted(quiet)):
        assert flushed(again) == ""
        assert numbers(published(quiet.services.board)) == [0, 2]
        assert again.spool.damaged() == [f"{segment.stem}.damaged"]
        assert again.spool.size == 0
        again.spool.close()
    assert (segment.with_suffix(".damaged").read_bytes(), segment.exists()) == (data, False)
    third = len(data) // 3
    assert f"the bytes {third} to {2 * third} are damaged frames" in caplog.text


def test_a_key_means_its_first_request_before_and_after_the_flush_and_a_restart(quiet):
    first = push(quiet, event(1), key="k")
    assert first == {"accepted": 1, "rejected": 0, "repeated": False}
    again = {"accepted": 0, "rejected": 0, "repeated": True}
    assert push(quiet, event(1), key="k") == again
    quiet = restarted(quiet)
    assert push(quiet, event(1), key="k") == again
    flushed(quiet)
    assert push(quiet, event(1), key="k") == again
    assert push(quiet, event(2), feed=WOMEN, key="k") == first
    with pytest.raises(RefusedRequest, match="another body") as refused:
        push(quiet, event(3), key="k")
    assert refused.value.status == 422
    flushed(quiet)
    quiet.spool.close()
    assert numbers(published(quiet.services.board)) == [1]


@pytest.mark.parametrize("end", ["is answered", "is answered and published", "fails"])
def test_a_retry_during_a_slow_ledger_read_is_accepted_once(quiet, monkeypatch, end):
    """Repeat a request whose client got no answer in time, while the ledger is slow."""
    take, at = idempotency.take, (MEN, "/k")
    push(quiet, event(1), key="k")
    answer = quiet.spooled[at]

    def slow(*asked):
        found = take(*asked)
        if end == "is answered":
            quiet.spooled[at] = answer
        else:
            del quiet.spooled[at]
        return found

    quiet.spooled[at] = None
    monkeypatch.setattr(idempotency, "take", slow)
    if end == "is answered":
        assert push(quiet, event(1), key="k")["repeated"]
    else:
        with pytest.raises(RefusedRequest, match="is in progress: send the request again later"):
            push(quiet, event(1), key="k")
    assert flushed(quiet) == ""
    assert numbers(published(quiet.services.board)) == [1]


def test_a_key_holds_for_seven_days(quiet):
    push(quiet, event(1), key="k")
    flushed(quiet)
    later = replace(quiet, services=replace(quiet.services, now=lambda: NOW + timedelta(days=7, seconds=1)))
    assert push(later, event(2, "2026-01-09T11:00:00Z"), key="k")["accepted"] == 1


def test_a_key_that_another_receiver_has_taken_waits_until_it_is_sure(quiet, tmp_path):
    other = receiver_of(quiet.services.board, quiet.services.ledger, tmp_path, "other")
    push(quiet, event(1), key="k")
    with pytest.raises(RefusedRequest, match="in progress") as refused:
        push(other, event(1), key="k")
    assert (refused.value.status, refused.value.retry_after) == (409, 1)
    flushed(quiet)
    assert push(other, event(1), key="k")["repeated"]
    other.spool.close()


def test_a_key_that_was_taken_by_a_request_that_was_killed_is_taken_again(quiet, monkeypatch):
    async def killed(_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(quiet, "_append", killed)
        with pytest.raises(Killed):
            push(quiet, event(1), key="k")
    quiet = restarted(quiet)
    assert push(quiet, event(1), key="k")["accepted"] == 1
    flushed(quiet)
    quiet.spool.close()
    assert numbers(published(quiet.services.board)) == [1]


def test_of_many_simultaneous_requests_with_one_key_one_is_accepted(quiet):
    async def all_at_once():
        asked = [quiet.accept(FEEDS[MEN], lines(event(1)), "lines", "k") for _ in range(20)]
        return await asyncio.gather(*asked, return_exceptions=True)

    outcomes = asyncio.run(all_at_once())
    assert sum(getattr(each, "accepted", 0) for each in outcomes) == 1
    assert {each.status for each in outcomes if isinstance(each, RefusedRequest)} <= {409}
    flushed(quiet)
    assert numbers(published(quiet.services.board)) == [1]


def test_many_requests_in_flight_are_synced_together(quiet, monkeypatch):
    syncs = []
    sync = spool.os.fdatasync
    monkeypatch.setattr(spool.os, "fdatasync", lambda file: (syncs.append(file), sync(file)))

    async def all_at_once():
        asked = [quiet.accept(FEEDS[MEN], lines(event(number)), "lines") for number in range(200)]
        return await asyncio.gather(*asked)

    assert len(asyncio.run(all_at_once())) == 200
    assert len(syncs) < 20
    flushed(quiet)
    assert numbers(published(quiet.services.board)) == [*range(200)]


def test_old_keys_are_forgotten(quiet):
    push(quiet, event(1), key="k")
    flushed(quiet)
    with quiet.services.ledger.write() as connection:
        idempotency.forget(connection, NOW + timedelta(days=8))
        assert idempotency.take(connection, [idempotency.Taken(MEN, "/k", "d", "r")], NOW)[MEN, "/k"].digest == "d"

"""Links that are slow or break off: large files arrive, and a place holds only a few of them in memory."""

from functools import partial
from threading import Event, Lock

import pytest

from feed_assets.core.errors import BlackboardUnavailable, UpdateChanged
from feed_assets.core.feeds import Partition
from feed_assets.feeds.stores import PATIENCE
from feed_assets.replication import copy_ends, places, publication, replicator, turn
from feed_assets.replication.bandwidth import Bandwidth
from feed_assets.replication.comparison import compare
from feed_assets.replication.file_copies import PART, copy_file
from feed_assets_tests.replication.two_ends import SALES, place_on, visible, wired

LARGE = {"part-0.csv": bytes(range(256)) * (PART // 100)}


def breaking(board, chunks: int, meanwhile=lambda: None):
    """Return a view of a blackboard whose bodies break off after some chunks, and the offsets that are read from."""
    view, _ = wired(board)
    stream, offsets = board.stream, list[int]()

    def broken(key: str, start: int = 0):
        offsets.append(start)
        served, body = stream(key, start)

        def few():
            for number, chunk in enumerate(body):
                if number == chunks:
                    meanwhile()
                    raise BlackboardUnavailable("the time of the request is over. Try again.")
                yield chunk

        return served, few()

    view.stream = broken
    return view, offsets


def test_a_source_that_breaks_off_is_read_on_behind_the_last_byte(any_ends):
    any_ends.publish(files=LARGE)
    board, wire = wired(any_ends.place.board)
    board._pages = None  # Another service: the store itself cannot copy.
    source, any_ends.source = any_ends.source, breaking(any_ends.source, 5)[0]

    result = any_ends.replicate(place_on(board))

    assert (result.done, result.failed) == (1, 0), any_ends.waiting()
    assert visible(any_ends.place.board) == visible(source)
    assert wire.sent == len(LARGE["part-0.csv"])
    any_ends.place = place_on(breaking(any_ends.place.board, 3)[0])
    assert not [*compare(any_ends.services, any_ends.place, [SALES])], "a comparison, too, is read on"


def test_a_source_that_brings_nothing_or_changes_meanwhile_is_not_copied(ends):
    update = ends.publish(files=LARGE)
    (file,) = update.files
    silent, offsets = breaking(ends.source, 0)
    with pytest.raises(BlackboardUnavailable):
        copy_file(silent, ends.place.board, file, lambda _: None)
    assert offsets == [0], "a store without an answer is not asked again and again"

    changing, _ = breaking(ends.source, 5, lambda: ends.source.put(file.key, bytes(file.size)))
    with pytest.raises(UpdateChanged):
        copy_file(changing, ends.place.board, file, lambda _: None)
    assert ends.place.board.file(file.key) is None


def test_a_place_copies_at_once_no_more_files_than_it_says(ends, monkeypatch):
    lock, now, most = Lock(), [0], [0]

    def counted(*arguments):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            return copy_file(*arguments)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(publication, "copy_file", counted)
    files = {f"part-{number}.csv": bytes(1 << 20) for number in range(8)}
    for day in range(1, 5):
        ends.publish(Partition(SALES, f"2026-01-{day:02}"), files)
    assert ends.with_place(at_once=2).replicate().done == 4
    assert most == [2], "of all updates together"


def test_a_long_copy_does_not_hold_what_is_published_meanwhile(ends, monkeypatch):
    monkeypatch.setattr(replicator, "_SECONDS_PER_LOOK", 0.01)
    small, is_there, waited = Partition(SALES, "2026-02-01"), Event(), list[bool]()

    def on_step(step: str) -> None:
        if step == "file copied" and not waited:
            waited.append(False)
            ends.publish(small, {"n.csv": b"1"})
            waited[0] = is_there.wait(60)
        elif step == "manifest" and visible(ends.place.board, small):
            is_there.set()

    ends.publish(files={"part-0.csv": b"long"})
    ends.on_step = on_step
    assert ends.replicate().done == 2
    assert waited == [True], "it was there before the long copy was"


def test_a_request_to_a_place_has_the_time_of_a_slow_link_and_less_than_a_turn(ends, monkeypatch):
    opened = list[dict]()
    monkeypatch.setattr(places.Blackboard, "open", lambda url, **options: opened.append(options) or ends.place.board)
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", '{"b": {"url": "s3://bucket", "datasets": ["*"]}}')
    places.open_place(places.Settings(), "b", ends.source)
    assert 3 * PATIENCE.timeout < opened[0]["patience"].timeout < turn.LASTS.total_seconds()
    assert opened[0]["patience"].retry_config["retry_timeout"].total_seconds() == 100


def test_the_bandwidth_is_shared_by_all_files_and_the_turn_is_kept_while_waiting(ends, monkeypatch):
    times, waits, kept = [100.0], list[float](), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        times[0] += seconds

    slow = partial(Bandwidth, clock=lambda: times[0], wait=wait)
    monkeypatch.setattr(copy_ends, "Bandwidth", slow)
    ends.publish(files={f"part-{number}.csv": bytes(3_000_000) for number in range(4)})
    assert ends.with_place(at_once=1, bandwidth=0.5).replicate().done == 1
    assert sum(waits) == pytest.approx(24)
    slow(0.1).take(3_000_000, lambda: kept.append(times[0]))
    assert [kept[-1] - each for each in kept] == pytest.approx([30, 20, 10, 0])


def test_without_a_bandwidth_nothing_is_waited_for():
    Bandwidth(None, wait=pytest.fail).take(10**12, lambda: None)

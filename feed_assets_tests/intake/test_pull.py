"""Pulling: each file once, for any action of a partner and any time limit."""

from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from unittest.mock import Mock

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, File, Partition
from feed_assets.core.pulls import FileState, Pull
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.intake import pull as module
from feed_assets.intake import pull_room
from feed_assets.intake.pull_room import RESERVE
from feed_assets.intake.pull_turns import PullSource, due
from feed_assets.ledger import log
from feed_assets_tests.support.pull_partners import (
    FEED,
    FIRST,
    HOUR,
    NOW,
    Partner,
    at_once,
    key_of,
    rename_file,
    wrong_files,
)


@pytest.fixture
def partner(ledger) -> Partner:
    return Partner(Blackboard.open("memory://"), Blackboard.open("memory://"), ledger)


def test_a_file_is_one_batch_of_the_hour_that_its_name_says_and_is_pulled_once(partner):
    partner.put(FIRST, "id\n1\n")
    partner.put("2024-02-27/23/b.csv", "id\n2\n")
    assert partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"], "2024-02-27-23:00": ["id\n2\n"]}
    assert partner.known() == {HOUR: 1, "2024-02-27-23:00": 1}
    assert partner.registered().state is FileState.DONE
    assert partner.look()
    assert partner.updates() == 2


def test_a_pulled_file_is_recorded_in_the_ledger_in_the_same_call(partner):
    partner.put(FIRST, "id\n1\n")
    partner.look()
    with partner.ledger.read() as connection:
        kinds = [each.kind for each in log.after(connection, 0, 10**9, 100, [FEED])]
    assert log.UPDATE in kinds


def test_files_outside_of_the_lookback_are_not_pulled(partner):
    partner.declare(lookback=1)
    for day in (27, 28, 29):
        partner.put(f"2024-02-{day}/05/a.csv", f"id\n{day}\n")
    partner.put("2024-03-01/05/a.csv", "id\n1\n")
    partner.look()
    assert [*partner.held()] == ["2024-02-28-05:00", HOUR]


def test_a_replaced_file_is_a_new_update_of_its_batch(partner):
    partner.put(FIRST, "id\n1\n")
    partner.look()
    partner.put(FIRST, "id\n1\n2\n")
    partner.look()
    assert partner.held() == {HOUR: ["id\n1\n2\n"]}
    assert (partner.updates(), partner.known()) == (2, {HOUR: 1})
    partner.put(FIRST, "id\n")  # The partner truncates it.
    partner.look()
    assert partner.held() == {HOUR: ["id\n"]}
    assert wrong_files(partner) == []


def test_a_changed_file_with_the_alert_policy_keeps_its_pulled_content(on_disk):
    on_disk.declare(changed="alert")
    on_disk.put(FIRST, "id\n1\n")
    on_disk.look()
    rename_file(on_disk, FIRST, "2024-02-29/05/kept")
    on_disk.put(FIRST, "id\n1\n2\n")
    for _ in range(2):
        on_disk.look()
        (said,) = wrong_files(on_disk)
    assert said.startswith(f"out/{FIRST}: it was pulled with 5 bytes")
    assert "has 7" in said
    assert on_disk.held() == {HOUR: ["id\n1\n"]}
    rename_file(on_disk, "2024-02-29/05/kept", FIRST)
    on_disk.look()
    assert (wrong_files(on_disk), on_disk.registered().state) == ([], FileState.DONE)


def test_an_emptied_file_keeps_its_pulled_content(partner):
    partner.put(FIRST, "id\n1\n")
    partner.look()
    partner.put(FIRST, "")
    partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"]}
    assert "has 0" in wrong_files(partner)[0]


def test_an_empty_file_is_reported_and_pulled_once_it_has_content(partner):
    partner.put(FIRST, "")
    partner.look()
    assert (partner.held(), wrong_files(partner)) == ({}, [f"out/{FIRST}: it is empty: it is pulled when it has data"])
    partner.put(FIRST, "id\n1\n")
    partner.look()
    assert (partner.held(), wrong_files(partner)) == ({HOUR: ["id\n1\n"]}, [])


def test_a_wrong_file_is_reported_until_it_is_gone(partner):
    partner.declare(changed="alert")
    partner.put(FIRST, "id\n1\n")
    partner.look()
    partner.put(FIRST, "id\n1\n2\n")
    partner.put("2024-02-29/05/empty.csv", "")
    partner.put("2024-02-28/05/empty.csv", "")
    partner.look_at_all()
    assert len(wrong_files(partner)) == 3
    partner.remove(FIRST)
    partner.remove("2024-02-29/05/empty.csv")
    partner.look_at_all()
    assert [each.partition(":")[0] for each in wrong_files(partner)] == ["out/2024-02-28/05/empty.csv"]
    assert partner.held() == {HOUR: ["id\n1\n"]}
    partner.put(FIRST, "id\n1\n2\n")  # It is there again, and still another one than was pulled.
    partner.look()
    assert [each.partition(":")[0] for each in wrong_files(partner)] == [f"out/{FIRST}", "out/2024-02-28/05/empty.csv"]


def test_a_changed_file_renamed_back_to_its_pulled_content_is_one_file(on_disk):
    on_disk.declare(changed="alert")
    on_disk.put(FIRST, "id\n1\n")
    on_disk.look()
    rename_file(on_disk, FIRST, "2024-02-29/05/kept")
    on_disk.put(FIRST, "id\n1\n2\n")
    on_disk.look()
    on_disk.remove(FIRST)
    rename_file(on_disk, "2024-02-29/05/kept", "2024-02-29/05/b.csv")
    on_disk.look()
    assert (wrong_files(on_disk), on_disk.registered("2024-02-29/05/b.csv").state) == ([], FileState.DONE)
    with pytest.raises(KeyError):
        on_disk.registered()


def test_a_file_that_vanishes_after_its_pull_is_kept(partner):
    partner.put(FIRST, "id\n1\n")
    partner.look()
    partner.remove(FIRST)
    partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"]}
    assert wrong_files(partner) == []


def test_a_file_that_vanishes_after_its_listing_is_ignored(partner, monkeypatch):
    partner.put(FIRST, "id\n1\n")
    partner.put("2024-02-29/06/b.csv", "id\n2\n")
    download = Blackboard.download

    def gone(board, key, target, listed):
        partner.remove(FIRST)
        return download(board, key, target, listed)

    monkeypatch.setattr(Blackboard, "download", gone)
    assert partner.look()
    assert partner.held() == {"2024-02-29-06:00": ["id\n2\n"]}


@pytest.mark.parametrize("content", ["id\n7\n", "id\n1\n2\n", ""])
def test_a_file_replaced_after_its_listing_is_pulled_by_the_next_poll(partner, monkeypatch, content):
    partner.put(FIRST, "id\n1\n")
    download = Blackboard.download

    def replaced(board, key, target, listed):
        partner.put(FIRST, content)
        return download(board, key, target, listed)

    with monkeypatch.context() as patch:
        patch.setattr(Blackboard, "download", replaced)
        partner.look()
    assert partner.held() == {}
    partner.look()
    assert partner.held() == ({HOUR: [content]} if content else {})


def test_a_copy_that_is_cut_short_is_not_published(partner, monkeypatch):
    partner.put(FIRST, "id\n1\n")
    download = Blackboard.download

    def cut(board, key, target, listed):
        served = download(board, key, target, listed)
        target.write_bytes(target.read_bytes()[:-1])
        return served

    with monkeypatch.context() as patch:
        patch.setattr(Blackboard, "download", cut)
        partner.look()
    assert partner.held() == {}
    partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"]}


@pytest.mark.parametrize(
    "name", ["män 1.csv", "_hidden.csv", "a%2F.csv", "a" * 220 + ".csv", "..csv", "a..b.csv", "20240229.000000.csv"]
)
def test_odd_names_are_pulled_under_names_that_every_store_takes(partner, name):
    partner.put(f"2024-02-29/05/{name}", "id\n1\n")
    partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"]}


def test_names_without_a_time_or_partition_are_reported(partner):
    partner.put("2024-02-29/25/a.csv", "id\n1\n")
    partner.put("2024-02-29/05/a.csv.part", "id\n1\n")
    partner.now = NOW
    partner.look()
    assert (partner.held(), len(wrong_files(partner))) == ({}, 1)
    assert "which is not a real day and hour" in wrong_files(partner)[0]


def test_a_file_without_a_partition_is_reported_until_the_partition_exists(partner, monkeypatch):
    partner.put(FIRST, "id\n1\n")
    with monkeypatch.context() as patch:
        patch.setattr("feed_assets_tests.support.pull_partners.key_of", lambda _: None)
        partner.look()
    assert "has no such partition" in wrong_files(partner)[0]
    partner.look()
    assert (partner.held(), wrong_files(partner)) == ({HOUR: ["id\n1\n"]}, [])


def test_without_time_each_poll_pulls_one_file_and_none_starves(partner):
    for hour in range(5):
        partner.put(f"2024-02-29/{hour:02}/a.csv", f"id\n{hour}\n")
        partner.put(f"2024-02-28/{hour:02}/a.csv", f"id\n{hour}\n")
    assert partner.look(at_once) is False
    assert partner.updates() == 1
    partner.look_at_all()
    assert partner.updates() == 10


def test_an_endless_listing_blocks_no_other_day(partner, monkeypatch):
    """List endless pages: each tick resumes where the last one stopped, up to the limit of a day."""
    monkeypatch.setattr(module, "FILES_PER_DAY", 30)
    file_pages = Blackboard.file_pages

    def endless(board, begins, after=""):
        if "02-29" not in begins:
            yield from file_pages(board, begins, after)
            return
        for number in count(0):
            yield tuple(File(f"out/2024-02-29/05/README-{number * 10 + n}", 1, "x") for n in range(10))

    partner.put("2024-02-28/05/a.csv", "id\n1\n")
    monkeypatch.setattr(Blackboard, "file_pages", endless)
    assert partner.look_at_all() < 10
    assert partner.held() == {"2024-02-28-05:00": ["id\n1\n"]}
    assert "more than 30 files of 2024-02-29" in wrong_files(partner)[0]


def test_two_hosts_that_copy_a_file_at_once_publish_two_updates_of_one_batch(partner, monkeypatch):
    partner.put(FIRST, "id\n1\n")
    publish = write.publish

    def meanwhile(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(write, "publish", publish)
            partner.look()
        return publish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(write, "publish", meanwhile)
        partner.look()
    assert (partner.updates(), partner.held(), partner.known()) == (2, {HOUR: ["id\n1\n"]}, {HOUR: 1})
    partner.look()
    assert partner.updates() == 2


def test_an_invalidated_pulled_update_stays_invalid(partner):
    partner.put(FIRST, "id\n1\n")
    partner.look()
    row = partner.registered()
    (update,) = partner.ours.children(f"{FEED}/{row.batch}")
    write.invalidate(partner.ours, Partition(FEED, row.batch), update)
    partner.look()
    assert partner.held() == {HOUR: []}


def test_a_poll_is_due_at_a_cron_tick_until_it_is_complete(partner):
    source = PullSource(FEED, Pull("women", "%Y-%m-%d/%H/*.csv", prefix="out", cron="0 */6 * * *"), key_of)
    other = PullSource(FEED, source.pull, key_of)

    def is_due() -> bool:
        return bool(due(partner.services, [other], partner.now))

    partner.put(FIRST, "id\n1\n")
    assert is_due()
    assert not module.pull(partner.services, source, partner.now, at_once)
    assert is_due()
    assert module.pull(partner.services, source, partner.now, lambda: False)
    assert not is_due()
    partner.now = NOW.replace(hour=18)
    assert is_due()


def test_the_least_recently_polled_source_is_pulled_first(partner):
    a, b, c = (PullSource(Feed.parse(f"partners/{name}/v1.0"), partner.pull, key_of) for name in "abc")
    for hours, source in enumerate((b, a)):
        assert module.pull(partner.services, source, NOW + timedelta(hours=hours), lambda: False)
    assert due(partner.services, [a, b, c], NOW + timedelta(hours=12)) == [c, b, a]


def test_a_partner_whose_turn_takes_an_hour_lets_the_others_go_first_for_an_hour(partner):
    slow, quick = (PullSource(Feed.parse(f"partners/{name}/v1.0"), partner.pull, key_of) for name in ("slow", "quick"))

    def turn(source: PullSource, duration: timedelta) -> list[PullSource]:
        partner.on_step = lambda step: setattr(partner, "now", partner.now + duration * (step == module.PUT))
        assert not module.pull(partner.services, source, partner.now, at_once)
        return due(partner.services, [slow, quick], partner.now)

    for number in range(60):
        partner.put(f"2024-02-29/05/{number}.csv", "id\n1\n")
    assert turn(slow, timedelta(hours=1)) == [quick, slow]
    assert turn(quick, timedelta(minutes=20)) == [quick, slow]
    assert turn(quick, timedelta(minutes=20)) == [slow, quick]


def test_a_turn_that_fails_counts_as_a_turn(partner, monkeypatch):
    sources = [PullSource(Feed.parse(f"partners/{name}/v1.0"), partner.pull, key_of) for name in "ab"]
    pages = Mock(side_effect=BlackboardUnavailable("away"))
    monkeypatch.setattr(Blackboard, "file_pages", pages)
    with pytest.raises(BlackboardUnavailable, match="away"):
        module.pull(partner.services, sources[0], NOW, at_once)
    assert due(partner.services, sources, NOW) == sources[::-1]


def test_a_store_that_answers_slowly_ends_its_turn_after_an_hour_and_goes_on_in_the_next(partner, monkeypatch):
    monkeypatch.setattr(module, "FORGOTTEN_TOGETHER", 2)
    for number in range(20):
        partner.put(f"2024-02-29/05/{number}.csv", "")
    partner.look()
    for number in range(20):
        partner.remove(f"2024-02-29/05/{number}.csv")
    get = Blackboard.get

    def slow(board, key, limit=None):
        partner.now += timedelta(minutes=10)
        return get(board, key, limit)

    monkeypatch.setattr(Blackboard, "get", slow)
    for turn in range(3):
        with pytest.raises(BlackboardUnavailable, match="answers so slowly that a pull took more than 1 h"):
            partner.look()
        assert len(wrong_files(partner)) == 14 - 6 * turn
    assert (partner.look(), wrong_files(partner)) == (True, [])


class Disks:
    """Free bytes of the disk of TMPDIR and of the blackboard's disk. Both are one disk unless `are_apart`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, board: Path, *, are_apart: bool = False) -> None:
        self.free, self.on_board = 0, 1 << 60
        monkeypatch.setattr(pull_room, "_device", lambda folder: int(are_apart and folder == board))
        free = lambda folder: Mock(free=self.on_board if are_apart and folder == board else self.free)  # noqa: E731
        monkeypatch.setattr(pull_room, "disk_usage", free)


@pytest.fixture
def copies(monkeypatch) -> list[str]:
    """Return the keys whose copy has begun."""
    keys, download = list[str](), Blackboard.download
    monkeypatch.setattr(
        Blackboard, "download", lambda board, key, *options: keys.append(key) or download(board, key, *options)
    )
    return keys


@pytest.mark.parametrize("are_apart", [False, True])
def test_a_file_without_room_for_copy_part_and_reserve_waits_uncopied_and_the_next_is_pulled(
    on_disk, monkeypatch, copies, are_apart
):
    disks = Disks(monkeypatch, on_disk.ours._root, are_apart=are_apart)
    on_disk.put(FIRST, large := "id\n" + "1\n" * 100)
    on_disk.put("2024-02-29/06/b.csv", small := "id\n2\n")
    need = RESERVE + len(large) * (1 if are_apart else 2)
    disks.free = need - 1
    assert on_disk.look()
    (wrong,) = wrong_files(on_disk)
    assert f"{FIRST}: this machine has no room for it: expected {need:,} free bytes at " in wrong
    assert f"of which 1 GiB are a reserve; found {need - 1:,}. Make room, or set TMPDIR" in wrong
    disks.free = need - 2
    assert on_disk.look()
    assert (wrong_files(on_disk), copies) == ([wrong], ["out/2024-02-29/06/b.csv"])
    disks.free = need
    assert on_disk.look()
    assert (wrong_files(on_disk), on_disk.held()) == ([], {HOUR: [large], "2024-02-29-06:00": [small]})


def test_a_file_without_room_on_the_disk_of_the_blackboard_waits(on_disk, monkeypatch, copies):
    disks = Disks(monkeypatch, on_disk.ours._root, are_apart=True)
    on_disk.put(FIRST, "id\n1\n")
    disks.free, disks.on_board = 1 << 60, RESERVE + 4
    assert on_disk.look()
    assert f"free bytes at {on_disk.ours._root}" in wrong_files(on_disk)[0]
    assert copies == []


def test_on_a_blackboard_elsewhere_a_file_needs_room_for_its_copy_alone(partner, monkeypatch):
    disks = Disks(monkeypatch, Path("nowhere"))
    partner.put(FIRST, "id\n1\n")
    disks.free = RESERVE + 5
    assert partner.look()
    assert (wrong_files(partner), partner.held()) == ([], {HOUR: ["id\n1\n"]})


def test_a_folder_of_thousands_of_files_comes_in_pages(local_board):
    """Keep below the ledger's limit on values in one statement."""
    for number in range(2001):
        local_board.put(f"out/{number:04}", b"")
    assert [len(page) for page in local_board.file_pages("out/")] == [1000, 1000, 1]


def test_pages_are_listed_from_a_key_on_and_by_a_text_that_need_not_be_a_folder(board):
    names = [f"out/men_{day}_{number}.csv" for day in (28, 29) for number in range(3)]
    for name in [*names, "out/men_29/deep.csv", "other/men_29.csv"]:
        board.put(name, b"1")
    found = [file.key for page in board.file_pages("out/men_29_") for file in page]
    assert found == names[3:]
    assert [file.key for page in board.file_pages("out/men_29_", names[4]) for file in page] == names[5:]
    assert [file.key for page in board.file_pages("nowhere/x") for file in page] == []
    assert [*islice((file.key for page in board.file_pages("out/") for file in page), 1)] == [names[0]]

"""Ends of chunks: at the grid, at schema changes, when full, and when their time is over."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.kafka import cutter as module
from feed_assets.kafka.cutter import Cutter
from feed_assets.kafka.messages import SnapshotMarker
from feed_assets_tests.kafka.cut import TEN, cut, dead, lines, row, said, tombstone


def test_a_chunk_ends_at_a_grid_line_without_waiting_for_the_next_message():
    assert said(cut(Cutter(0, TEN), *map(row, range(25)))) == [(0, 10, 10, 1), (10, 20, 10, 1)]
    assert said(cut(Cutter(7, TEN), *map(row, range(7, 25)))) == [(7, 10, 3, 1), (10, 20, 10, 1)]


def test_a_chunk_has_a_line_of_names_and_one_of_each_record():
    (chunk,) = cut(Cutter(8, TEN), row(8), tombstone(9))
    assert lines(chunk) == [
        ["_operation", "_offset", "id", "v0"],
        ["update", "8", "k8", "0"],
        ["delete", "9", "k9", None],
    ]


def test_a_schema_change_begins_a_chunk_that_ends_at_the_same_grid_line():
    chunks = cut(Cutter(0, TEN), *map(row, range(3)), *(row(each, 2) for each in range(3, 7)), *map(row, range(7, 10)))
    assert said(chunks) == [(0, 3, 3, 1), (3, 7, 4, 2), (7, 10, 3, 1)]


def test_a_snapshot_begins_and_ends_with_a_chunk():
    marked = [row(3)._replace(marker="begin"), row(4), row(5)._replace(marker="end"), row(6)]
    marked += [SnapshotMarker(7, "begin"), row(8), SnapshotMarker(9, "end"), SnapshotMarker(10, "begin"), row(19)]
    chunks = cut(Cutter(0, TEN), *map(row, range(3)), *marked)
    assert [(*each.offsets, {*each.markers}) for each in chunks] == [
        (0, 3, set()), (3, 6, {"begin", "end"}), (6, 7, set()), (7, 10, {"begin", "end"}), (10, 20, {"begin"}),
    ]  # fmt: skip
    assert (chunks[3].records, sum(chunks[3].minutes.values())) == (1, 3)


def test_tombstones_and_dead_letters_are_of_any_schema():
    chunks = cut(
        Cutter(0, TEN), tombstone(0), dead(1), row(2), tombstone(3), dead(4), row(5, 2), *map(row, range(6, 10))
    )
    assert said(chunks) == [(0, 5, 3, 1), (5, 6, 1, 2), (6, 10, 4, 1)]
    assert lines(chunks[0])[1] == ["delete", "0", "k0", None]
    assert [each.offset for each in chunks[0].dead] == [1, 4]


def test_tombstones_alone_have_the_key_and_no_schema():
    (chunk,) = cut(Cutter(8, TEN), tombstone(8), tombstone(9))
    assert said([chunk]) == [(8, 10, 2, None)]
    assert lines(chunk) == [["_operation", "_offset", "id"], ["delete", "8", "k8"], ["delete", "9", "k9"]]


def test_dead_letters_alone_are_a_range_without_content():
    (chunk,) = cut(Cutter(8, TEN), dead(8), dead(9))
    assert (said([chunk]), chunk.content, len(chunk.dead)) == ([(8, 10, 0, None)], b"", 2)


def test_missing_offsets_are_covered_up_to_the_grid():
    found = cut(Cutter(0, TEN), row(1), row(4), row(12), row(57), row(60))
    assert said(found) == [(0, 10, 2, 1), (10, 20, 1, 1), (20, 50, 0, None), (50, 60, 1, 1)]


def test_an_already_cut_message_is_skipped():
    cutter = Cutter(0, TEN)
    assert said(cut(cutter, row(0), row(1), row(0), row(1), *map(row, range(2, 10)))) == [(0, 10, 10, 1)]
    assert cut(cutter, row(9)) == []


def test_the_time_limit_ends_a_chunk_early_and_the_next_one_ends_where_it_would_have():
    cutter = Cutter(0, TEN)
    cut(cutter, row(0), now=5)
    cut(cutter, row(1), now=64)
    assert cutter.due(64.9) is None
    assert said([cutter.due(65)]) == [(0, 2, 2, 1)]
    assert cutter.due(1000) is None
    assert said(cut(cutter, *map(row, range(2, 12)))) == [(2, 10, 8, 1)]


def test_a_full_chunk_ends_early(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 60)
    size = len(row(0).line)
    first = -(-60 // size)
    found = said(cut(Cutter(0, TEN), *map(row, range(10))))
    assert found == [(0, first, first, 1), (first, 2 * first, first, 1), (2 * first, 10, 10 - 2 * first, 1)]


def test_dead_letters_of_many_bytes_do_not_wait_in_memory_without_end():
    long, many = "\U0001f600" * (3 << 18), [("", None)] * (3 << 17)
    for size, headers in ((3 << 20, ()), (1, [("a", b"x" * (3 << 20))]), (1, [(long, None)]), (1, many)):
        chunks = cut(Cutter(0, TEN), *(dead(each, size, headers) for each in range(10)))
        assert said(chunks) == [(start, start + 2, 0, None) for start in range(0, 10, 2)]


def test_nor_do_tombstones_of_many_bytes_before_the_first_row(monkeypatch):
    monkeypatch.setattr(module, "HELD_BYTES", 40)  # A line of one has 16.
    before = cut(Cutter(0, TEN), *map(tombstone, range(5)), row(5), *map(tombstone, range(6, 10)))
    assert said(before) == [(0, 3, 3, None), (3, 10, 7, 1)]


def test_nor_do_many_of_both(monkeypatch):
    monkeypatch.setattr(module, "HELD", 4)
    chunks = cut(Cutter(0, TEN), dead(0), tombstone(1), dead(2), *map(tombstone, range(3, 8)), row(8), tombstone(9))
    assert said(chunks) == [(0, 4, 2, None), (4, 8, 4, None), (8, 10, 2, 1)]


def test_a_chunk_has_no_more_minutes_than_its_signal_can_say(monkeypatch):
    monkeypatch.setattr(module, "MINUTES", 3)
    messages = [row(each)._replace(timestamp=20_000 * each) for each in range(10)]
    assert said(cut(Cutter(0, TEN), *messages)) == [(0, 7, 7, 1), (7, 10, 3, 1)]


def test_an_unsignalled_chunk_is_cut_again_identically():
    chunks = cut(Cutter(20, TEN, until=23), *map(row, range(20, 40)))
    assert said(chunks) == [(20, 23, 3, 1), (23, 30, 7, 1), (30, 40, 10, 1)]


def test_an_unsignalled_chunk_of_another_grid_is_cut_again_identically():
    chunks = cut(Cutter(0, TEN, until=25), *map(row, range(40)))
    assert said(chunks) == [(0, 25, 25, 1), (25, 30, 5, 1), (30, 40, 10, 1)]


def test_time_does_not_end_what_was_left_before_its_end():
    """Cut it identically, since another process may have signalled it already."""
    cutter = Cutter(20, TEN, until=23)
    cut(cutter, row(20), row(21))
    assert cutter.due(1000) is None
    assert said(cut(cutter, row(22))) == [(20, 23, 3, 1)]
    cut(cutter, row(23))
    assert said([cutter.due(1000)]) == [(23, 24, 1, 1)]


KINDS = st.sampled_from([row, row, row, lambda offset: row(offset, 2), tombstone, dead, None])
TOPICS = st.lists(KINDS, min_size=1, max_size=80)


def messages(kinds, start=0):
    """Return messages with gaps in their offsets, as after compaction."""
    return [kind(offset) for offset, kind in enumerate(kinds, start) if kind]


@given(TOPICS, st.integers(0, 25))
def test_every_message_is_in_one_chunk_and_chunks_have_no_hole(kinds, start):
    cutter, given_ = Cutter(start, TEN), messages(kinds, start)
    chunks = [*cut(cutter, *given_), *filter(None, [cutter.due(100)])]
    taken = Counter(int(line[1]) for each in chunks if each.content for line in lines(each)[1:])
    taken += Counter(letter.offset for each in chunks for letter in each.dead)
    assert taken == Counter(each.offset for each in given_)
    assert [each.offsets.start for each in chunks[:1]] == [start][: len(chunks)]
    assert all(one.offsets.end == other.offsets.start for one, other in pairwise(chunks))
    assert all(each.records == len(lines(each)) - 1 for each in chunks if each.content)


@given(TOPICS, st.data())
def test_cutting_from_any_chunk_start_gives_the_same_bytes(kinds, data):
    given_ = messages(kinds)
    whole = cut(Cutter(0, TEN), *given_)
    for chunk in data.draw(st.lists(st.sampled_from(whole), max_size=3) if whole else st.just([])):
        again = cut(Cutter(chunk.offsets.start, TEN), *(each for each in given_ if each.offset >= chunk.offsets.start))
        assert again[0] == chunk


@given(TOPICS, st.lists(st.integers(0, 80), max_size=4))
def test_whenever_the_time_was_over_every_line_of_the_grid_is_an_end(kinds, looks):
    cutter, chunks = Cutter(0, TEN), []
    for message in messages(kinds):
        chunks += cut(cutter, message)
        if message.offset in looks and (early := cutter.due(100)):
            chunks.append(early)
    ends = {each.offsets.end for each in chunks}
    assert {each for each in range(10, cutter._start + 1, 10) if not inside_a_hole(each, chunks)} <= ends


def inside_a_hole(line, chunks):
    return any(each.offsets.start < line < each.offsets.end and not each.records and not each.dead for each in chunks)

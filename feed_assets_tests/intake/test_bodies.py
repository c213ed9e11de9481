"""Bodies of requests: each event is kept as sent; too large bodies are refused before they are in memory."""

import asyncio
import gzip
import json
import re
import time
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable
from pathlib import Path

import pytest

from feed_assets.core.limits import HEADERS, ROW_BYTES
from feed_assets.intake.api import HELD_BYTES, HELD_OF_PARTNER
from feed_assets.intake.bodies import VALUES, events
from feed_assets.intake.connections import (
    CONNECTIONS,
    HEAD_BYTES,
    HEAD_SECONDS,
    PER_ADDRESS,
    PER_PARTNER,
    REQUEST_SECONDS,
    WITHOUT_KEY,
)
from feed_assets.intake.receiver import (
    ANSWERED_REASON_BYTES,
    EVENTS_PER_REQUEST,
    HOURS_PER_REQUEST,
    HOURS_PER_SECOND,
    REASONS_TOLD,
    REJECTED_BYTES,
)
from feed_assets.intake.refused import RefusedRequest
from feed_assets.intake.unpacking import (
    BODY_BYTES,
    EVENT_BYTES,
    LARGE_BYTES,
    LARGE_EVENTS,
    MOST_LINES,
    SPARED_BYTES,
    SPARED_OF_PARTNER,
    UNPACKED_BYTES,
    Body,
    BodyMemory,
)
from feed_assets_tests.support.each_case import each_case


async def _at_once() -> None:
    pass


def read(data: bytes, packing: str = "", held: int = 1 << 30, piece: int = 1000) -> bytes:
    async def chunks():
        for start in range(0, len(data), piece):
            yield data[start : start + piece]
        yield b""

    return asyncio.run(received(Body(BodyMemory(held), packing), chunks()))


async def received(body: Body, chunks: AsyncIterable[bytes], turn: Callable[[], Awaitable[None]] = _at_once) -> bytes:
    await body.receive(chunks)
    return await body.unpacked(turn)


def raws(body: bytes, kind: str) -> list[bytes]:
    return [each.raw for each in events(body, kind)]


def test_a_body_is_read_as_it_was_sent_packed_or_not():
    data = bytes(range(256)) * 40
    assert read(data) == data
    assert read(gzip.compress(data, mtime=0), "gzip") == data
    assert read(gzip.compress(data, mtime=0), "gzip", piece=1) == data


def test_a_decompression_bomb_is_refused_before_it_is_in_memory():
    bomb = gzip.compress(bytes(8 * UNPACKED_BYTES), mtime=0)
    assert len(bomb) < BODY_BYTES
    held = BodyMemory(2 * UNPACKED_BYTES)
    with pytest.raises(RefusedRequest, match="bytes unpacked") as refused:
        asyncio.run(received(Body(held, "gzip"), _once(bomb)))
    assert refused.value.status == 413
    assert held._remaining > UNPACKED_BYTES - (1 << 20), "no more than the limit was ever held"


async def _once(data: bytes):
    yield data


@each_case(
    ("data", "packing", "status"),
    [
        (bytes(BODY_BYTES + 1), "", 413),
        (b"no gzip at all", "gzip", 400),
        (gzip.compress(b"x" * 100, mtime=0)[:-4], "gzip", 400),
        (gzip.compress(b"x", mtime=0) + gzip.compress(b"y", mtime=0), "gzip", 400),
        (zlib.compress(b"x"), "deflate", 415),
        (b"x", "br", 415),
    ],
)
def test_a_body_that_is_too_large_or_wrongly_packed_is_refused(data, packing, status):
    with pytest.raises(RefusedRequest) as refused:
        read(data, packing)
    assert refused.value.status == status


@each_case(
    ("data", "kind", "cost", "turns"),
    [
        (b"\n" * MOST_LINES, "lines", MOST_LINES, 1),
        (b'{"a": 1}\n\n' * (MOST_LINES // 2), "lines", MOST_LINES, 1),
        (b'{"a": 1}\n' * LARGE_EVENTS, "lines", LARGE_EVENTS, 0),
        (b"x" * EVENT_BYTES * 200, "lines", 200, 1),
        (b"1," * 6000, "array", 5, 1),
        (b" " * 1000, "array", 0, 0),
    ],
)
def test_a_body_costs_its_lines_or_its_bytes_and_waits_for_its_turn_if_it_is_large(data, kind, cost, turns):
    waited = list[bool]()

    async def turn() -> None:
        waited.append(True)

    body = Body(BodyMemory(1 << 30), "gzip", kind)
    assert asyncio.run(received(body, _once(gzip.compress(data, mtime=0)), turn)) == data
    assert (body.cost, len(waited)) == (cost, turns)


def test_lines_without_end_are_refused_by_the_first_of_them_and_counted():
    body = Body(held := BodyMemory(UNPACKED_BYTES), "gzip")
    with pytest.raises(RefusedRequest, match="lines, including blank ones") as refused:
        asyncio.run(received(body, _once(gzip.compress(b"\n" * UNPACKED_BYTES, mtime=0))))
    assert refused.value.status == 413
    assert MOST_LINES < body.cost < 2 * MOST_LINES
    body.let_go()
    assert held._remaining == UNPACKED_BYTES


def test_others_have_their_turn_while_a_body_is_unpacked():
    async def turns() -> int:
        turns, body = 0, Body(BodyMemory(1 << 30), "gzip", "array")
        task = asyncio.create_task(received(body, _once(gzip.compress(b" " * UNPACKED_BYTES, mtime=0))))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(turns()) >= UNPACKED_BYTES >> 20


def test_bytes_in_flight_are_bounded_and_given_back():
    held = BodyMemory(1000)
    body = Body(held)
    assert asyncio.run(received(body, _once(b"x" * 450))) == b"x" * 450
    with pytest.raises(RefusedRequest, match="in flight") as refused:
        asyncio.run(received(Body(held), _once(b"x" * 200)))
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    body.let_go()
    assert asyncio.run(received(Body(held), _once(b"x" * 200))) == b"x" * 200
    total = BodyMemory(4 * SPARED_BYTES, spared=SPARED_BYTES)
    greedy = [BodyMemory(2 * SPARED_BYTES, total) for _ in range(2)]
    greedy[0].take(2 * SPARED_BYTES)
    greedy[1].take(SPARED_BYTES)
    for size in (1, SPARED_BYTES):
        with pytest.raises(RefusedRequest, match="in flight"):
            greedy[1].take(size)
    other = BodyMemory(2 * SPARED_BYTES, total)
    other.take(SPARED_OF_PARTNER)
    with pytest.raises(RefusedRequest, match="in flight"):
        other.take(1)
    greedy[0].give_back(2 * SPARED_BYTES)
    other.take(1)


def test_lines_are_events_each_for_itself():
    body = b'{"a": 1}\r\n\n  {"a": 1.50}\nnonsense\n{"a": NaN}\n\xff\n{"b":2}'
    found = [*events(body, "lines")]
    assert [each.raw for each in found] == [
        b'{"a": 1}',
        b'{"a": 1.50}',
        b"nonsense",
        b'{"a": NaN}',
        b"\xff",
        b'{"b":2}',
    ]
    assert [bool(each.broken) for each in found] == [False, False, True, True, True, False]


@each_case(
    "body",
    [
        b'[{"a": 1.50, "b": "x,]"},{"a":\n2}]',
        b' [ {"a": 1.50, "b": "x,]"} , {"a":\n2} ] \n',
    ],
)
def test_an_array_gives_its_elements_as_they_stand_there_in_one_line(body):
    assert raws(body, "array") == [b'{"a": 1.50, "b": "x,]"}', b'{"a": 2}']


@each_case(("body", "kind"), [(b"\xef\xbb\xbf[7]", "array"), (b"\xef\xbb\xbf7\n", "lines")])
def test_a_byte_order_mark_is_no_part_of_an_event(body, kind):
    assert [(each.value, each.broken) for each in events(body, kind)] == [(7, "")]


def test_an_empty_array_has_no_events():
    assert raws(b"[]", "array") == []


@each_case(
    "body",
    [b"", b"{}", b"[", b"[1,]", b"[1 2]", b"[1]x", b"[1", b"[,1]", b"[NaN]", b"[" * 100_000, b"\xff", b'["\n"]'],
)
def test_an_invalid_json_array_is_refused_as_a_whole(body):
    with pytest.raises(RefusedRequest, match="not a JSON array") as refused:
        raws(body, "array")
    assert refused.value.status == 400


def test_an_array_of_more_than_is_text_at_a_time_gives_all_its_elements():
    """Put characters of two to four bytes, and blanks, at the end of a piece."""
    sizes = [0, 1, 7, 1000, 200_000, ROW_BYTES // 4 - 10, 5, ROW_BYTES // 8, 200_000, 3]
    elements = [{"a": "é\N{GRINNING FACE}x"[number % 3] * size} for number, size in enumerate(sizes * 3)]
    texts = [json.dumps(each, ensure_ascii=False).encode() for each in elements]
    for blanks in (b"", b" " * 100_001):
        body = b"[" + (b"," + blanks).join(texts) + blanks + b"]"
        assert [*map(json.loads, raws(body, "array"))] == elements


def test_an_event_of_many_fields_with_one_twice_takes_no_longer_than_its_length():
    """Take linear time: comparing each field with all others took 90 s for a line of 1 MiB."""
    fields = ", ".join(f'"k{number}": 1' for number in range(50_000))
    line, started = f'{{{fields}, "k7": 2}}'.encode(), time.process_time()
    assert next(events(line, "lines")).broken == "malformed: field 'k7' occurs twice"
    with pytest.raises(RefusedRequest, match="field 'k7' occurs twice"):
        raws(b"[" + line + b"]", "array")
    assert time.process_time() - started < 5, "of CPU, where the other way takes 30"


@each_case(("text", "is_read"), [(b'"' + b"," * 200_000 + b'"', True), (b"[" + b"1," * 100_000 + b"1]", False)])
def test_an_event_of_more_values_than_any_feed_has_columns_is_one_reject(text, is_read):
    found = next(events(b'{"id": ' + text + b"}", "lines"))
    assert found.broken == ("" if is_read else "it has more than 100000 values: expected one for each column")


def test_a_line_of_an_open_string_takes_no_longer_than_its_length():
    """Take linear time: reading again from each quote took 30 s for 250 kB."""
    line, started = b'{"id": ' + b"," * 100_000 + b'"' + b'\\"' * 450_000, time.process_time()
    assert next(events(line, "lines")).broken.startswith("it has more than 100000 values")
    assert time.process_time() - started < 2, "of CPU, where the other way takes many minutes"


def test_a_list_that_is_longer_than_any_event_is_not_read():
    with pytest.raises(RefusedRequest, match="or it has more than 2097152 bytes"):
        raws(b"[[" + b"[" * 3 * ROW_BYTES + b"]]", "array")
    with pytest.raises(RefusedRequest, match="its element at character 4 has more than 100000 values"):
        raws(b"[1, [" + b"[]," * ROW_BYTES + b"0]]", "array")
    few = b'["' + b"," * VALUES + b'", [1, 2], "' + b"," * VALUES + b'"]'
    assert len(raws(few, "array")) == 3


@each_case("kind", ["lines", "array"])
@each_case("text", [r'"\ud800"', r'{"\uDFFF": 1}', r'["\ud83d", "\ude00"]', r'"\ude00\ud83d"'])
def test_a_lone_surrogate_is_no_text_in_a_line_or_in_an_array(kind, text):
    pair = r'"\ud83d\ude00"'
    body = f"{text}\n{pair}" if kind == "lines" else f"[{text},{pair}]"
    first, second = events(body.encode(), kind)
    assert (first.broken[:9], second.broken, second.value) == ("malformed", "", "\N{GRINNING FACE}")


@each_case("kind", ["lines", "array"])
def test_an_event_that_is_too_long_is_one_reject(kind):
    long, short = json.dumps({"a": "x" * ROW_BYTES}), '{"a": 1}'
    body = f"{long}\n{short}" if kind == "lines" else f"[{long}, {short}]"
    found = [*events(body.encode(), kind)]
    assert [each.broken[:7] for each in found] == ["it has ", ""]


@each_case("before", [0, 600_000, ROW_BYTES - 2000, ROW_BYTES + 2000])
def test_a_long_event_of_an_array_is_one_reject_wherever_it_stands(before):
    small, long = json.dumps({"a": "y" * 1000}), json.dumps({"a": "x" * (ROW_BYTES * 3 // 2)})
    many = ", ".join([small] * (before // len(small)))
    found = [*events(f"[{many + ', ' if many else ''}{long}, {small}]".encode(), "array")]
    assert [each.broken[:7] for each in found if each.broken] == ["it has "]


@each_case(
    ("bounded", "bounds"),
    [
        ("head of a request", f"{HEAD_BYTES >> 10} KiB and {HEADERS} headers"),
        ("body, as sent and unpacked", f"{BODY_BYTES >> 20} MiB, {UNPACKED_BYTES >> 20} MiB"),
        ("event", f"{ROW_BYTES >> 20} MiB, and {VALUES:,} values"),
        ("events of a request, and its lines with blank ones", f"{EVENTS_PER_REQUEST:,}, {MOST_LINES:,}"),
        ("hours of which a request has events", f"{HOURS_PER_REQUEST:,}"),
        ("hours that one partner adds to those to be published", f"{HOURS_PER_SECOND} a second"),
        ("reasons of an answer, and bytes of each", f"{REASONS_TOLD}, {ANSWERED_REASON_BYTES}"),
        ("rejected events of a request, with their reasons", f"{REJECTED_BYTES >> 20} MiB"),
        ("time for the head of a request, and for all of it", f"{HEAD_SECONDS} s, {REQUEST_SECONDS} s"),
        (
            "bodies in memory, of one partner and of all",
            f"{HELD_OF_PARTNER >> 20} MiB and {HELD_BYTES >> 20} MiB as sent, the last "
            f"{SPARED_BYTES >> 20} MiB for partners with up to {SPARED_OF_PARTNER >> 20} MiB, then 503",
        ),
        (f"bodies of more than {LARGE_BYTES >> 10} KiB or {LARGE_EVENTS:,} events", "one by one"),
        ("connections", f"{CONNECTIONS:,}"),
        ("connections whose last answered request had no valid key, or that had none yet", f"{WITHOUT_KEY}"),
        ("requests of one partner that are under way, from their head to their answer", f"{PER_PARTNER}, then 429"),
        ("connections whose last answered request had a valid key of the same partner", f"{PER_PARTNER};"),
        ("connections of one address, or of one IPv6 network of 64 bits", f"{PER_ADDRESS}"),
    ],
)
def test_the_limits_are_those_that_the_docs_say(bounded, bounds):
    page = (Path(__file__).parents[2] / "docs" / "receiver.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {re.escape(f'{bounded} | {bounds}')}(?![\d,]*\d)", page, re.MULTILINE)

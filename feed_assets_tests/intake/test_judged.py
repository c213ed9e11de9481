"""Judging a request: other requests get their turn, and kept rejects are limited."""

import asyncio
import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.intake.bodies import SLICE_BYTES
from feed_assets.intake.receiver import EVENTS_PER_REQUEST, HOURS_PER_REQUEST, REASONS_TOLD, _Judging
from feed_assets.intake.refused import RefusedRequest
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import FEEDS, MEN, NOW, event, lines


async def judged(body: bytes, kind: str, feed=FEEDS[MEN]) -> tuple[_Judging, int]:
    """Judge a body, and count how often other requests had their turn meanwhile."""
    judging, turns = _Judging(feed, NOW.timestamp()), 0
    task = asyncio.create_task(judging.judge(body, kind))
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    task.result()
    return judging, turns


@each_case("kind", ["lines", "array"])
@each_case(("count", "size"), [(40, SLICE_BYTES), (5000, 10)])
def test_others_have_their_turn_after_each_slice_of_bytes_or_of_events(kind, count, size):
    events = [{**event(number), "id": "x" * size} for number in range(count)]
    body = lines(*events) if kind == "lines" else json.dumps(events).encode()
    judging, turns = asyncio.run(judged(body, kind))
    assert (judging.count, judging.rejected) == (count, [])
    assert turns >= max(count * size // SLICE_BYTES, count // 500) - 1


def test_all_rejected_events_of_a_full_request_are_kept():
    wrong = {**event(1), "n": "1", "id": "x" * 100}
    judging, _ = asyncio.run(judged(lines(wrong) * EVENTS_PER_REQUEST, "lines"))
    assert (len(judging.rejected), len(judging.reasons)) == (EVENTS_PER_REQUEST, REASONS_TOLD)
    for name in ("\u00fc" * 1000, "\x85" * 1000, '\\"' * 1000, "\u202e" * 1000):
        judging, _ = asyncio.run(judged(lines({**event(1), name: 1}) * REASONS_TOLD, "lines"))
        assert len(judging.answer().text.encode()) < 60_000, "the ledger keeps it with its idempotency key"


@each_case(("hours", "is_refused"), [(HOURS_PER_REQUEST, False), (HOURS_PER_REQUEST + 1, True)])
def test_a_request_has_events_of_a_thousand_hours_at_most(hours, is_refused):
    last = datetime(2026, 1, 2, 10, tzinfo=UTC)
    sent = [event(hour, f"{last - timedelta(hours=hour):%Y-%m-%dT%H:59:00Z}") for hour in range(hours)]
    feed = replace(FEEDS[MEN], first=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(RefusedRequest, match="events of 1001 hours") if is_refused else nullcontext():
        asyncio.run(judged(lines(*sent), "lines", feed))


@each_case(
    ("line", "count", "reason"),
    [(b"\xff" * 2000, 8000, "malformed"), (b'{"%b": 1}' % (b"x" * 900), 8000, "unknown fields: x")],
)
def test_kept_rejects_and_their_reasons_are_limited(line, count, reason):
    with pytest.raises(RefusedRequest, match=f"rejected events, the first because of '{reason}") as refused:
        asyncio.run(judged((line + b"\n") * count, "lines"))
    assert refused.value.status == 413

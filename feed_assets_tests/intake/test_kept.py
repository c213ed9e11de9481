"""Answers to each kind of wrong request, and the part of it that is kept."""

import gzip
import json

import pytest

from feed_assets.core.errors import LedgerUnavailable
from feed_assets.core.limits import ROW_BYTES
from feed_assets.intake.unpacking import BODY_BYTES, UNPACKED_BYTES
from feed_assets.ledger import event_rejects, idempotency
from feed_assets_tests.support.receivers import (
    ARRAY,
    LINES,
    MEN,
    Partner,
    door_of,
    event,
    lines,
    listening,
    numbers,
    published,
)

PACKED = {**LINES, "Content-Encoding": "gzip"}
LONG = json.dumps({**event(9), "id": "x" * ROW_BYTES}).encode()


@pytest.mark.parametrize(
    ("data", "headers", "status", "reason"),
    [
        pytest.param(b"{nonsense", LINES, 200, "malformed", id="malformed"),
        pytest.param(lines({**event(9), "n": "9"}), LINES, 200, "n: not an int", id="of another type"),
        pytest.param(lines({**event(9), "id": {"a": "b"}}), LINES, 200, "id: not a string", id="nested"),
        pytest.param(LONG, LINES, 200, "expected at most 1048576", id="an oversized event"),
        pytest.param(lines(event(9, "2030-01-01T00:00:00Z")), LINES, 200, "is ahead of", id="future-dated"),
        pytest.param(lines(event(9, "1999-01-01T00:00:00Z")), LINES, 200, "before the feed's first", id="ancient"),
        pytest.param(b'[{"id": "9"', ARRAY, 400, None, id="a malformed array"),
        pytest.param(bytes(BODY_BYTES + 1), LINES, 413, None, id="oversized"),
        pytest.param(gzip.compress(b" " * (UNPACKED_BYTES + 1)), PACKED, 413, None, id="a bomb"),
        pytest.param(gzip.compress(lines(event(9)))[:-1], PACKED, 400, None, id="a cut stream"),
        pytest.param(lines(event(9)), {**LINES, "Authorization": "Bearer x"}, 401, None, id="unauthenticated"),
        pytest.param(lines(event(9)), {**LINES, "Idempotency-Key": "k"}, 422, None, id="replayed with another body"),
        pytest.param(lines(event(1)), {**LINES, "Idempotency-Key": "k"}, 200, None, id="replayed"),
    ],
)
def test_rejected_events_are_kept_with_reasons_and_refused_requests_are_not(
    local_board, ledger, tmp_path, data, headers, status, reason
):
    with listening(door_of(local_board, ledger, tmp_path / "spool")) as partner:
        assert posted(partner, lines(event(1)), {**LINES, "Idempotency-Key": "k"}) == 200
        assert posted(partner, data, headers) == status
        assert posted(partner, lines(event(2)), LINES) == 200, "who comes next is taken"
    with ledger.read() as connection:
        kept = [(source, each.reason) for source, each, _ in event_rejects.rejects(connection, 10)]
    assert [source for source, _ in kept] == ([MEN] if reason else [])
    assert all(reason in why for _, why in kept)
    assert numbers(published(local_board)) == [1, 2]


def posted(partner: Partner, data: bytes, headers: dict[str, str]) -> int:
    return partner.post(data, headers=headers).status_code


def test_without_the_ledger_a_request_with_a_key_waits_and_others_are_taken(local_board, ledger, tmp_path, monkeypatch):
    def away(*_):
        raise LedgerUnavailable("no answer")

    with listening(door_of(local_board, ledger, tmp_path / "spool")) as partner:
        keyed = {**LINES, "Idempotency-Key": "k"}
        with monkeypatch.context() as patch:
            patch.setattr(idempotency, "take", away)
            assert posted(partner, lines(event(1)), keyed) == 503
            assert posted(partner, lines(event(2)), LINES) == 200
        assert posted(partner, lines(event(1)), keyed) == 200
    assert numbers(published(local_board)) == [1, 2]

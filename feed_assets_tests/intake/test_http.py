"""The receiver behind a real socket: requests of partners, and its answers."""

import asyncio
import errno
import gzip
import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import count
from threading import Event

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.intake import api, authentication, connections, serve, spool, unpacking
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.unpacking import BODY_BYTES, UNPACKED_BYTES
from feed_assets.ledger import api_keys
from feed_assets.runs.services import Services
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import (
    ARRAY,
    FEEDS,
    LINES,
    MEN,
    NOW,
    WOMEN,
    Partner,
    door_of,
    event,
    lines,
    listening,
    no_spark,
    numbers,
    published,
)
from feed_assets_tests.support.servers import wait_until


@pytest.fixture
def door(local_board, ledger, tmp_path):
    return door_of(local_board, ledger, tmp_path / "spool")


@pytest.fixture
def partner(door):
    with listening(door) as partner:
        yield partner


def test_accepted_events_are_published_on_each_kind_of_store(board, ledger, tmp_path):
    door = door_of(board, ledger, tmp_path / "spool")
    with listening(door) as partner:
        said = partner.post(lines(event(1), event(2)))
        other = partner.post(json.dumps([event(3), {"id": 1}]).encode(), headers=ARRAY)
    assert (said.status_code, said.json()) == (200, {"accepted": 2, "rejected": 0, "reasons": []})
    expected = {"accepted": 1, "rejected": 1, "reasons": [{"index": 1, "reason": "id: not a string"}]}
    assert (other.status_code, other.json()) == (200, expected)
    assert numbers(published(board)) == [1, 2, 3]


def test_old_events_are_published_while_the_receiver_listens(door, local_board):
    with listening(door, flush_seconds=0.1) as partner:
        partner.post(lines(event(1)))
        while not published(local_board):
            time.sleep(0.05)
        while partner.get("/health").json()["spool"]["bytes"]:
            time.sleep(0.05)
        assert partner.post(lines(event(2))).ok


def test_a_packed_body_is_unpacked(partner):
    packed = {**LINES, "Content-Encoding": "gzip"}
    assert partner.post(gzip.compress(lines(event(1))), headers=packed).json()["accepted"] == 1


@each_case(
    ("key", "feed", "status"),
    [
        ("", MEN, 401),
        ("nonsense", MEN, 401),
        ("fa_0123456789ab_" + "x" * 43, MEN, 401),
        (None, WOMEN, 403),
        (None, "partners/nobody/v1.0", 403),
    ],
)
def test_a_key_is_for_its_feeds_alone(partner, key, feed, status):
    other = Partner(partner.url, partner.key if key is None else key)
    answer = other.post(lines(event(1)), feed)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_a_key_with_one_wrong_letter_is_refused(partner):
    changed = partner.key[:-1] + ("A" if partner.key[-1] != "A" else "B")
    assert Partner(partner.url, changed).post(lines(event(1))).status_code == 401


@pytest.mark.parametrize("key", ["", "fa_0123456789ab_" + "x" * 43, None])
def test_every_key_is_compared_in_constant_time_even_an_unknown_one(partner, monkeypatch, key):
    compared = []
    monkeypatch.setattr(
        authentication.hmac, "compare_digest", lambda a, b: (compared.append((len(a), len(b))), a == b)[1]
    )
    Partner(partner.url, partner.key if key is None else key).post(lines(event(1)))
    assert compared == [(64, 64)] * (2 if key is None else 1), "a valid key is compared again after the body"


def test_keys_rotate_with_an_overlap_and_are_revoked(door, partner, ledger):
    def status(key: str) -> int:
        door.keys.load()
        return Partner(partner.url, key).post(lines(event(1))).status_code

    second = authentication.rotate(ledger, "men", timedelta(hours=1), NOW)
    assert (status(partner.key), status(second)) == (200, 200)
    authentication.rotate(ledger, "men", timedelta(0), NOW)
    assert (status(partner.key), status(second)) == (401, 401)
    third = authentication.rotate(ledger, "men", timedelta(hours=1), NOW)
    authentication.revoke(ledger, "men", None, NOW)
    assert status(third) == 401


def test_a_key_revoked_under_load_accepts_nothing_more_and_loses_nothing(local_board, ledger, tmp_path):
    door, sent, accepted = door_of(local_board, ledger, tmp_path / "spool"), count(), list[int]()

    def post(key: str) -> int:
        number = next(sent)
        status = Partner(partner.url, key).post(lines(event(number))).status_code
        accepted.extend([number] if status == 200 else [])
        return status

    with listening(door) as partner, ThreadPoolExecutor(8) as pool:
        key = partner.key
        for ended in ("rotated", "rotated", "revoked"):
            at_once = [pool.submit(post, key) for _ in range(20)]
            following = authentication.rotate(ledger, "men", timedelta(0), NOW)
            if ended == "revoked":
                authentication.revoke(ledger, "men", None, NOW)
            door.keys.load()
            late, next_ones = ([pool.submit(post, each) for _ in range(20)] for each in (key, following))
            assert {each.result() for each in late} == {401}
            assert {each.result() for each in next_ones} == {401 if ended == "revoked" else 200}
            assert {each.result() for each in at_once} <= {200, 401}
            key = following
    assert len(accepted) >= 40
    assert numbers(published(local_board)) == sorted(accepted)


def test_a_key_that_ends_keeps_its_end_when_keys_are_rotated_again(ledger):
    authentication.add(ledger, "men", [MEN], NOW)
    for number, hours in enumerate((1, 24), 1):
        authentication.rotate(ledger, "men", timedelta(hours=hours), NOW + timedelta(minutes=number))
    with ledger.read() as connection:
        ends = [row.ends for row in api_keys.every(connection, "men")]
    assert ends == [NOW + timedelta(hours=1, minutes=1), NOW + timedelta(hours=24, minutes=2), None]


@each_case(
    ("data", "headers", "status"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {**LINES, "Content-Encoding": "br"}, 415),
        (b"nonsense", {**LINES, "Content-Encoding": "gzip"}, 400),
        (b"[1", ARRAY, 400),
        (bytes(BODY_BYTES + 1), LINES, 413),
        (gzip.compress(bytes(UNPACKED_BYTES + 1)), {**LINES, "Content-Encoding": "gzip"}, 413),
        (b"1\n" * 60_000, LINES, 413),
        (b"{}", {**LINES, "Idempotency-Key": "x" * 300}, 422),
    ],
)
def test_a_request_that_cannot_be_accepted_is_refused_as_a_whole(partner, local_board, data, headers, status):
    assert partner.post(data, headers=headers).status_code == status
    assert partner.post(lines(event(1))).ok
    assert partner.get("/health").json()["takes"]


def test_a_body_without_a_length_is_limited(partner):
    pieces = (b"x" * 100_000 for _ in range(BODY_BYTES // 100_000 + 2))
    assert partner.post(pieces).status_code == 413


def test_a_used_port_is_reported_before_the_spool_is_touched(local_board, ledger, tmp_path, capsys):
    calls = Calls(Services(local_board, ledger, no_spark))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InvalidSetting, match="choose another --port"):
        serve.serve(calls, FEEDS, tmp_path / "spool", "127.0.0.1", taken.getsockname()[1])
    assert not (tmp_path / "spool").exists()
    assert "takes events" not in capsys.readouterr().out


def test_a_slash_too_many_is_no_redirect_that_clients_take_for_success_and_a_line_break_is_ignored(partner):
    answer = partner.call(f"/v1/{MEN}/events/", lines(event(1)))
    assert (answer.status_code, answer.history) == (404, [])
    assert partner.call(f"/v1/{MEN}/events%0A", lines(event(1))).json()["accepted"] == 1


def test_too_many_events_wait(local_board, ledger, tmp_path):
    partner_door = door_of(local_board, ledger, tmp_path / "spool", rate=1)
    with listening(partner_door) as partner:
        assert partner.post(lines(*map(event, range(50)))).ok
        answer = partner.post(lines(event(1)))
        second = replace(partner, key=authentication.rotate(ledger, "men", timedelta(hours=24), NOW))
        partner_door.keys.load()
        assert second.post(lines(event(1))).status_code == 429, "its second key has no rate of its own"
    assert answer.status_code == 429
    assert 30 <= int(answer.headers["Retry-After"]) <= 45


@each_case(("body", "status"), [(b"\n" * 90_000, 200), (b"\n" * 110_000, 413), (b"1\n" * 60_000, 413)])
def test_a_refused_body_counts_by_its_lines_against_the_rate(local_board, ledger, tmp_path, body, status):
    packed = gzip.compress(body, mtime=0)
    with listening(door_of(local_board, ledger, tmp_path / "spool", rate=500)) as partner:
        answer = partner.post(packed, headers={**LINES, "Content-Encoding": "gzip"})
        assert (answer.status_code, answer.json().get("accepted")) == (status, 0 if status == 200 else None)
        assert partner.post(lines(event(1))).status_code == 429


class Turn:
    """Turn of a large body; requests of its partner that came earlier are counted."""

    def __init__(self, door: api.Door) -> None:
        self._door = door

    async def __aenter__(self) -> None:
        for partner in self._door.held_of_partners:
            self._door.rates.count(partner, 10**9)

    async def __aexit__(self, *_: object) -> None:
        """Release the turn for the next request."""


def test_a_large_body_waits_for_its_turn_and_is_refused_beyond_the_rate(door, partner):
    door.large = Turn(door)
    assert partner.post(lines(*map(event, range(unpacking.LARGE_EVENTS + 1)))).status_code == 429


class HeldTurn:
    """The turn of a large body, which nobody gets before `open` is set; `waiting` counts who waits for it."""

    def __init__(self) -> None:
        self.waiting, self.open = 0, Event()

    async def __aenter__(self) -> None:
        self.waiting += 1
        await asyncio.to_thread(self.open.wait, 60)

    async def __aexit__(self, *_: object) -> None:
        """Let the next one have it."""


def test_one_large_body_of_each_partner_waits_for_the_turn(local_board, ledger, tmp_path):
    door = door_of(local_board, ledger, tmp_path / "spool", rate=10**9)
    door.large = turn = HeldTurn()
    key = authentication.add(ledger, "women", (WOMEN,), NOW)
    body = lines(*map(event, range(unpacking.LARGE_EVENTS + 1)))
    with listening(door) as men, ThreadPoolExecutor(5) as pool:
        women = replace(men, key=key)
        answers = [pool.submit(men.post, body) for _ in range(4)]
        try:
            wait_until(lambda: [len(each._waiters or ()) for each in door.turns.values()] == [3], "three to wait")
            answers.append(pool.submit(women.post, body, WOMEN))
            wait_until(lambda: turn.waiting == 2, "the other partner's body")
        finally:
            turn.open.set()
        assert [each.result(60).status_code for each in answers] == [200] * 5


@each_case("path", ["/v1//events", "/v1/partners/nobody/v1.0/events", "/events/", "/wake/"])
def test_a_refusal_does_not_reveal_feeds_of_other_keys(partner, path):
    answer = partner.call(path, lines(event(1)))
    assert answer.status_code in (403, 404)
    assert WOMEN not in answer.text


def test_a_repeated_idempotency_key_is_marked_in_the_answer(door):
    """Another partner with a key for the same feed must not take the keys of this one in advance."""
    rival_key = authentication.add(door.receiver.services.ledger, "rival", [MEN], NOW)
    headers = {**LINES, "Idempotency-Key": "k"}
    with listening(door) as partner:
        first, again = (partner.post(lines(event(1)), headers=headers) for _ in range(2))
        refused = partner.post(lines(event(2)), headers=headers)
        of_rival = Partner(partner.url, rival_key).post(lines(event(2)), headers=headers)
    assert first.json() == again.json() == of_rival.json() == {"accepted": 1, "rejected": 0, "reasons": []}
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (refused.status_code, "the Idempotency-Key 'k' was used" in refused.text) == (422, True)


def test_a_full_disk_is_reported_and_nothing_is_acknowledged(partner, monkeypatch, door):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spool.os, "fdatasync", full)
        answer = partner.post(lines(event(1)), headers={**LINES, "Idempotency-Key": "k"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (507, "5")
    again = partner.post(lines(event(1)), headers={**LINES, "Idempotency-Key": "k"})
    assert (again.status_code, "Idempotency-Replayed" in again.headers) == (200, False)


def test_a_disk_that_fails_ends_what_is_taken_until_a_restart(partner, monkeypatch):
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(spool.os, "fdatasync", fails)
        patch.setattr(spool.os, "ftruncate", fails)
        assert partner.post(lines(event(1))).status_code == 503
    assert partner.post(lines(event(2))).status_code == 503
    assert partner.get("/health").status_code == 503


def test_a_body_that_does_not_come_is_given_up_however_long_its_head_may_take(partner, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 3600)
    answer = spoken(partner, head(partner, 1000) + b"{")
    assert b" 408 " in answer.splitlines()[0]


def test_a_head_that_does_not_come_is_given_up(door, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with listening(door) as partner:
        assert spoken(partner, b"POST /v1/") == b""
        assert spoken(partner, b"") == b""
        assert partner.post(lines(event(1))).ok


@pytest.mark.parametrize(("name", "begun", "said"), [("REQUEST_SECONDS", True, b" 408 "), ("HEAD_SECONDS", False, b"")])
def test_a_client_that_sends_byte_by_byte_is_given_up_as_one_that_sends_nothing(
    partner, monkeypatch, name, begun, said
):
    monkeypatch.setattr(connections, name, 0.5)
    host, port = partner.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head(partner, 2000) if begun else b"POST /v1/ HTTP/1.1\r\nX: ")
        for _ in range(1500):
            if select.select([connection], [], [], 0.02)[0]:
                break
            connection.sendall(b"x")
        answer = connection.recv(10_000).partition(b"\r\n")[0]
    assert said in answer
    assert bool(answer) is begun
    assert partner.post(lines(event(1))).ok


def head(partner: Partner, size: int) -> bytes:
    return (
        f"POST /v1/{MEN}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {partner.key}\r\n"
        f"Content-Type: application/x-ndjson\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


def spoken(partner: Partner, data: bytes) -> bytes:
    """Return all bytes until the receiver closes the connection."""
    host, port = partner.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(10_000):
            answer += piece
    return answer


def test_a_connection_beyond_the_limit_is_asked_to_retry(door, monkeypatch):
    assert connections.CONNECTIONS == 1000
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    with listening(door) as partner:
        host, port = partner.url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port)), timeout=30) for _ in range(3)]
        assert partner.get("/health").status_code == 503
        for connection in idle:
            connection.close()
        while partner.get("/health").status_code == 503:
            time.sleep(0.05)


def test_a_client_that_goes_in_the_middle_leaves_nothing_behind(partner, local_board, door):
    host, port = partner.url.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head(partner, 1000) + lines(event(1)))
    assert partner.post(lines(event(2))).ok
    before = unpacking.BodyMemory(api.HELD_BYTES)._remaining
    while door.held._remaining != before:
        time.sleep(0.01)


def test_two_receivers_of_one_blackboard_never_share_a_batch(local_board, ledger, tmp_path):
    doors = [door_of(local_board, ledger, tmp_path / name) for name in ("one", "two")]
    with listening(doors[0]) as one, listening(doors[1]) as two:
        doors[0].keys.load()
        for number in range(20):
            assert (one, two)[number % 2].post(lines(event(number))).ok
    assert numbers(published(local_board)) == [*range(20)]
    assert len(local_board.children(f"{MEN}/2026-01-02-11:00")) == 2


def test_the_openapi_description_names_formats_and_answers(partner):
    said = partner.get("/openapi.json").json()
    route = said["paths"]["/v1/{feed}/events"]["post"]
    assert {"application/json", "application/x-ndjson"} == {*route["requestBody"]["content"]}
    assert {"200", "401", "413", "429", "507"} <= {*route["responses"]}
    assert route["summary"] == "Push Events"


def test_the_api_page_needs_no_script_and_no_foreign_resource(partner):
    page = partner.get("/docs")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    for call in ("POST /v1/{feed}/events", "POST /events/{source}", "POST /wake/{feed}", "GET /health"):
        assert f"<code>{call}</code>" in page.text
    assert (
        "<code>429</code></td><td>Too many events, hours of events, requests in progress or wakes in progress of "
        "this partner." in page.text
    )
    assert not re.search(r"<script|src=|url\(|https?://", page.text)
    assert (partner.get("/redoc").status_code, partner.get("/openapi.json").ok) == (404, True)


def test_prometheus_reads_the_accepted_events(partner):
    partner.post(lines(event(1), {"id": 1}))
    said = partner.get("/metrics").text
    assert f'feed_assets_receiver_events_total{{fate="accepted",feed="{MEN}"}} 1.0' in said
    assert f'feed_assets_receiver_events_total{{fate="rejected",feed="{MEN}"}} 1.0' in said
    assert re.search(r"feed_assets_receiver_spool_bytes [1-9]", said)


def test_refusals_are_counted_by_partner_and_strangers_together(partner):
    partner.post(b"{}", headers={"Content-Type": "text/plain"})
    partner.post(lines(event(1)), WOMEN)
    partner.post(lines(event(1)), headers={**LINES, "Idempotency-Key": ""})
    for number in range(3):
        partner.post(lines(event(1)), headers={**LINES, "Authorization": f"Bearer {number}"})
    found = re.findall(r"^feed_assets_receiver_refused_total(.*) (.*)$", partner.get("/metrics").text, re.MULTILINE)
    assert dict(found) == {
        '{partner="men",status="415"}': "1.0",
        '{partner="men",status="403"}': "1.0",
        '{partner="men",status="422"}': "1.0",
        '{partner="unknown",status="401"}': "3.0",
    }


def test_a_damaged_segment_is_reported_until_it_is_moved_away(partner, door):
    (kept := door.receiver.spool.folder / "one.damaged").write_bytes(b"x")
    for names in (["one.damaged"], []):
        health = partner.get("/health")
        assert (health.status_code, health.json()["damaged"]) == (200, len(names))
        assert f"feed_assets_receiver_damaged_segments {len(names)}.0" in partner.get("/metrics").text
        kept.unlink(missing_ok=True)


def test_no_secret_is_in_the_ledger_or_in_listings(door, ledger, tmp_path):
    key = authentication.add(ledger, "men", [MEN], NOW)
    secret = key.split("_", 2)[2]
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret.encode() not in data
    door.receiver.spool.close()


def test_a_receiver_without_its_ledger_keeps_its_known_keys_for_a_while(partner, door, monkeypatch):
    monkeypatch.setattr(authentication, "HOLD_SECONDS", 0)
    assert partner.post(lines(event(1))).status_code == 503
    monkeypatch.setattr(authentication, "HOLD_SECONDS", 3600)
    assert partner.post(lines(event(1))).ok

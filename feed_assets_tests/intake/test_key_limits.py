"""Limits of one partner: its requests in progress, and its connections. Other partners are served meanwhile."""

import socket
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

from feed_assets.intake import authentication, connections
from feed_assets.intake.authentication import InProgress
from feed_assets.intake.event_calls import WrittenSource
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import MEN, NOW, WOMEN, Partner, door_of, event, lines, listening
from feed_assets_tests.support.servers import wait_until


def begun(partner: Partner, path: str, size: int) -> socket.socket:
    """Return a connection with a complete head, whose body of `size` bytes does not arrive."""
    connection = socket.create_connection(("127.0.0.1", int(partner.url.rsplit(":", 1)[1])), timeout=20)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {partner.key}\r\nContent-Length: {size}\r\n"
    connection.sendall(head.encode() + b"Content-Type: application/x-ndjson\r\n\r\n")
    return connection


@each_case("path", [f"/v1/{MEN}/events", "/events/tables"])
def test_a_partner_with_many_requests_in_progress_gets_429_until_one_is_answered(local_board, ledger, tmp_path, path):
    sources = {"tables": WrittenSource("tables", lambda event, _: event)}
    door = door_of(local_board, ledger, tmp_path / path.replace("/", "_"), sources=sources)
    door.in_progress = InProgress(2)
    other = authentication.add(ledger, "women", (WOMEN,), NOW)
    with listening(door, scopes=(MEN, "events:tables")) as partner:
        second = replace(partner, key=authentication.rotate(ledger, "men", timedelta(hours=24), NOW))
        door.keys.load()
        busy = [begun(partner, path, 1) for _ in range(2)]
        wait_until(lambda: not door.in_progress.has_room("men"), "two requests in progress")
        for each in (partner, second):
            refused = each.call(path, b"\n")
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1"), "a second key has no own room"
        assert "2 requests of men are in progress" in refused.json()["error"]
        assert 'feed_assets_receiver_refused_total{partner="men",status="429"} 2.0' in partner.get("/metrics").text
        assert Partner(partner.url, other).post(lines(event(1)), WOMEN).ok, "another partner"
        busy[0].sendall(b"\n")
        assert busy[0].recv(65_536).split()[1] == b"200"
        assert partner.call(path, b"\n").ok
        busy[0].close()
        again = begun(partner, path, 1)
        wait_until(lambda: not door.in_progress.has_room("men"), "the next request")
        for gone in (again, busy[1]):
            gone.close()
        wait_until(lambda: partner.call(path, b"\n").ok, "clients that are gone to count no longer")


def test_every_call_with_a_key_counts_and_a_refused_one_only_until_its_answer(local_board, ledger, tmp_path):
    door = door_of(local_board, ledger, tmp_path / "spool")
    door.in_progress = InProgress(0)
    with listening(door, scopes=(MEN, "events:tables")) as partner:
        for path in (f"/v1/{MEN}/events", f"/v1/{WOMEN}/events", "/events/tables", f"/wake/{MEN}"):
            assert partner.call(path).status_code == 429
        door.in_progress.most = 1
        for path, status in ((f"/v1/{WOMEN}/events", 403), ("/events/tables", 404), (f"/wake/{MEN}", 404)) * 2:
            assert partner.call(path).status_code == status
        assert partner.post(lines(event(1))).ok


@each_case("size", [1, 0])
def test_one_partner_cannot_take_the_connections_of_others(local_board, ledger, tmp_path, monkeypatch, size):
    """Open connections whose request has no body yet, or was answered. None of them ends by itself."""
    limits = {"CONNECTIONS": 20, "WITHOUT_KEY": 4, "PER_PARTNER": 3, "LINGER_SECONDS": 60, "HEAD_SECONDS": 60}
    for name, value in limits.items():
        monkeypatch.setattr(connections, name, value)
    door = door_of(local_board, ledger, tmp_path / f"spool{size}")
    door.in_progress = InProgress(connections.PER_PARTNER)
    other = authentication.add(ledger, "women", (WOMEN,), NOW)
    with listening(door) as partner, ExitStack() as stack:
        second = replace(partner, key=authentication.rotate(ledger, "men", timedelta(hours=24), NOW))
        door.keys.load()
        for number in range(30):
            greedy = stack.enter_context(begun((partner, second)[number % 2], f"/v1/{MEN}/events", size))
            if size and number < connections.PER_PARTNER:
                continue
            assert greedy.recv(65_536).split()[1] == (b"429" if size else b"200")
        assert Partner(partner.url, other).post(lines(event(1)), WOMEN).ok
        assert partner.get("/health").ok

"""Connections of strangers: limits of number, duration and header size, and their log lines."""

import logging
import re
import socket
from contextlib import suppress
from http.client import parse_headers
from types import SimpleNamespace
from typing import BinaryIO

import pytest
import requests

from feed_assets.intake import authentication, connections, limited_log
from feed_assets.intake.connections import PIPELINED, Admission, BoundedHttp
from feed_assets.intake.limited_log import LimitedLog
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import LINES, MEN, NOW, Partner, door_of, event, lines, listening
from feed_assets_tests.support.servers import wait_until

READ_BYTES = 1 << 18
"""Bytes that the event loop reads at once."""

HEAD = b"POST /v1/%s/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n" % MEN.encode()


@pytest.fixture
def door(local_board, ledger, tmp_path):
    return door_of(local_board, ledger, tmp_path / "spool")


@pytest.fixture
def partner(door):
    with listening(door) as partner:
        yield partner


def connected(partner: Partner, source: str = "127.0.0.1") -> socket.socket:
    port = int(partner.url.rsplit(":", 1)[1])
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))


def answer_of(connection: socket.socket) -> bytes:
    """Return all bytes until the receiver closes the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


@each_case(
    ("request_line", "status"),
    [
        (HEAD, b"401"),
        (b"POST /v1/nobody/events HTTP/1.1\r\nHost: x\r\n", b"401"),
        (b"POST /nowhere HTTP/1.1\r\nHost: x\r\n", b"404"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n", b"200"),
    ],
)
def test_a_request_that_is_answered_before_its_body_has_come_holds_no_connection(
    partner, monkeypatch, request_line, status
):
    """Send the body byte by byte; each byte would restart uvicorn's timeout for the next request."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.2)
    with connected(partner) as connection:
        connection.sendall(request_line + b"Content-Length: 1000\r\n\r\n{")
        assert connection.recv(65_536).split()[1] == status
        wait_until(lambda: is_ended(connection, b"x"), "the end of the connection", seconds=10)


def is_ended(connection: socket.socket, piece: bytes) -> bool:
    """Send a piece; return True if the receiver no longer reads."""
    try:
        connection.sendall(piece)
    except ConnectionError:
        return True
    return False


@each_case(
    ("begin", "piece", "status"),
    [
        (HEAD + b"X: ", b"x" * 1000, b"431"),
        (HEAD, b"X: y\r\n" * 100, b"431"),
        (HEAD, b"X: " + b"y" * 5000 + b"\r\n", b"431"),
        (b"GET /", b"x" * 1000, b"431"),
        (HEAD + b"Transfer-Encoding: chunked\r\nAuthorization: Bearer KEY\r\n\r\n0\r\nX: ", b"x" * 1000, b"431"),
        (b"\r\n", b"\r\n" * 500, b"431"),
    ],
)
def test_a_head_or_trailer_without_end_is_refused_before_it_is_in_memory(partner, begin, piece, status):
    with connected(partner) as connection:
        connection.sendall(begin.replace(b"KEY", partner.key.encode()))
        for _ in range((connections.HEAD_BYTES + READ_BYTES) // len(piece) + 1):
            connection.sendall(piece)
        assert answer_of(connection).split()[1] == status


def test_a_huge_request_head_is_refused_a_tenfold_one_accepted_and_a_key_behind_the_body_is_none(partner):
    for size, status in ((8000, 200), (connections.HEAD_BYTES, 431)):
        answer = partner.post(lines(event(1)), headers={**LINES, **{f"X-{n}": "x" * (size // 8) for n in range(8)}})
        assert answer.status_code == status
    assert "send fewer or shorter headers" in answer.json()["error"]
    body = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(lines(event(1))), lines(event(1)))
    with connected(partner) as connection:
        connection.sendall(HEAD + body + b"Authorization: Bearer %b\r\n\r\n" % partner.key.encode())
        assert answer_of(connection).split()[1] == b"401"


@each_case("protocol", [b"h2c", b"websocket"])
def test_a_request_for_another_protocol_is_refused_and_its_body_is_neither_lost_nor_a_request(partner, protocol):
    """Request h2c, as Java's client does by default; the parser stops behind such a header."""
    body = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(partner) as connection:
        upgrade = b"Authorization: Bearer %b\r\nConnection: Upgrade\r\nUpgrade: %b\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(HEAD + upgrade % (partner.key.encode(), protocol, len(body)) + body)
        answer = answer_of(connection)
    assert answer.split()[1] == b"400"
    assert b"without the header Upgrade" in answer
    assert answer.count(b"HTTP/1.1 ") == 1, "one answer"


@each_case("sent", [b"GET /health HTTP/1.1\r\n\r\n", b"GET /openapi.json HTTP/1.1\r\n\r\n" * 1000])
def test_line_breaks_hold_no_connection_behind_an_answer_or_many_that_nobody_reads(partner, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with connected(partner) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(sent)
        wait_until(lambda: is_ended(connection, b"\r\n"), "the end of the connection", seconds=20)


def test_an_unparsable_body_is_answered_without_waiting_for_the_rest(partner, monkeypatch, caplog):
    monkeypatch.setattr(connections, "LINGER_SECONDS", 60)
    head = HEAD + b"Authorization: Bearer %b\r\nTransfer-Encoding: chunked\r\n\r\n" % partner.key.encode()
    refused = 'feed_assets_receiver_refused_total{partner="men",status="400"} 1.0'
    with connected(partner) as connection:
        connection.sendall(head + b"%x\r\n%b" % (100_000, bytes(100_000)) + b"nonsense")
        connection.sendall(bytes(16 << 20))
        wait_until(lambda: refused in partner.get("/metrics").text, "the end of the request")
        assert b"found no HTTP/1.1 request" in connection.recv(65_536)
    with connected(partner) as connection:
        connection.sendall(head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") + b"zz\r\n")
        wait_until(lambda: refused.replace(" 1.0", " 2.0") in partner.get("/metrics").text, "the end of the next one")
        answer = connection.recv(65_536)
        assert (answer.split()[1], b"Continue" in answer) == (b"400", False)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


def test_what_cannot_be_parsed_behind_requests_is_answered_in_place_of_none_of_them(partner):
    with connected(partner) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"nonsense\r\n\r\n")
        assert answer_of(connection) == b""


def test_strangers_hold_connections_of_strangers_alone(partner, monkeypatch):
    monkeypatch.setattr(connections, "WITHOUT_KEY", 3)
    with requests.Session() as session:
        headers = {**LINES, "Authorization": f"Bearer {partner.key}"}
        session.post(f"{partner.url}/v1/{MEN}/events", lines(event(1)), headers=headers)
        kept = [each.pool.queue[-1] for each in session.adapters["http://"].poolmanager.pools._container.values()]
        strangers = [connected(partner) for _ in range(9)]
        for stranger in strangers[:6]:
            assert answer_of(stranger) == b""
        assert session.post(f"{partner.url}/v1/{MEN}/events", lines(event(2)), headers=headers).ok
        assert kept == [
            each.pool.queue[-1] for each in session.adapters["http://"].poolmanager.pools._container.values()
        ]
        for stranger in strangers:
            stranger.close()


def status_of_next(answers: BinaryIO) -> int:
    status = int(answers.readline().split()[1])
    answers.read(int(parse_headers(answers)["content-length"]))
    return status


def test_a_connection_belongs_to_a_partner_until_its_key_is_revoked(door, partner, ledger, monkeypatch):
    """Strangers cannot displace it while its next header arrives, or before the next key is checked."""
    monkeypatch.setattr(connections, "WITHOUT_KEY", 1)
    admitted, states, admit, look_up = list[BoundedHttp](), list[bool](), Admission.admit, door.keys.of
    monkeypatch.setattr(Admission, "admit", lambda all_, new: (admitted.append(new), admit(all_, new))[1])
    monkeypatch.setattr(door.keys, "of", lambda *key: (states.append(bool(admitted[0].partner)), look_up(*key))[1])
    request = HEAD + b"Content-Length: 1\r\nAuthorization: Bearer %b\r\n\r\n1" % partner.key.encode()
    with connected(partner) as theirs, theirs.makefile("rb") as answers:
        theirs.sendall(request * 2 + HEAD)
        assert [status_of_next(answers) for _ in range(2)] == [200, 200]
        assert partner.get("/health").ok, "of a stranger"
        theirs.sendall(request.removeprefix(HEAD))
        assert status_of_next(answers) == 200
        before = len(states)
        theirs.sendall(request[:-1])
        wait_until(lambda: len(states) > before, "the key is looked at")
        authentication.revoke(ledger, "men", None, NOW)
        door.keys.load()
        theirs.sendall(request[-1:])
        assert status_of_next(answers) == 401, "revoked while its body arrived"
        theirs.sendall(request)
        assert (status_of_next(answers), states) == (401, [False, *[True] * 8]), "at the head and after the body"
        assert partner.get("/health").ok
        theirs.setblocking(False)
        assert theirs.recv(1) == b"", "it was the oldest without a valid key"


def test_a_connection_that_ends_before_its_answer_is_no_error_of_the_receiver(door, partner, monkeypatch, caplog):
    """If a second request waits, uvicorn reports the end only to that one, and uvloop refuses the first answer."""
    admitted, admit, look_up = list[BoundedHttp](), Admission.admit, door.keys.of
    monkeypatch.setattr(Admission, "admit", lambda all_, new: (admitted.append(new), admit(all_, new))[1])
    monkeypatch.setattr(door.keys, "of", lambda *key: (admitted[0].pipeline and admitted[0].abort(), look_up(*key))[1])
    request = HEAD + b"Content-Length: 1\r\nAuthorization: Bearer %b\r\n\r\n1" % partner.key.encode()
    with connected(partner) as connection, suppress(ConnectionError):
        connection.sendall(request * 2)
        assert answer_of(connection) == b""
    assert partner.get("/health").ok
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


class Connection(SimpleNamespace):
    """A connection with only the attributes that admission reads."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def abort(self) -> None:
        self.ended = True


def admitted(
    admission: Admission, network: str, has_key: bool = False, address: str = "", partner: str = "one"
) -> tuple[Connection, bool]:
    place = {"network": network, "address": address or network}
    connection = Connection(**place, partner="", ended=False, is_counted=False)
    is_taken = admission.admit(connection)
    connection.partner = partner if has_key else ""
    return connection, is_taken


def test_a_full_address_drops_its_oldest_connection_without_a_key(monkeypatch):
    monkeypatch.setattr(connections, "PER_ADDRESS", 3)
    admission = Admission({"proxy", "2001:db8::5"}, LimitedLog())
    first = [admitted(admission, "a", has_key=number == 0)[0] for number in range(3)]
    assert admitted(admission, "a", has_key=True)[1]
    assert [each.ended for each in first] == [False, True, False]
    assert admitted(admission, "a", has_key=True)[1]
    assert first[2].ended
    assert not admitted(admission, "a")[1]
    assert admitted(admission, "b")[1]
    assert all(admitted(admission, "proxy", has_key=True)[1] for _ in range(9))
    assert all(admitted(admission, "2001:db8::/64", True, "2001:db8::5")[1] for _ in range(9))


def test_connections_that_have_shown_a_key_end_no_stranger(monkeypatch):
    monkeypatch.setattr(connections, "WITHOUT_KEY", 3)
    admission = Admission((), LimitedLog())
    stranger, _ = admitted(admission, "a")
    for _ in range(5):
        admitted(admission, "b", has_key=True)
    others = [admitted(admission, "c")[0] for _ in range(2)]
    assert not stranger.ended, "three have no key"
    others.append(admitted(admission, "c")[0])
    assert [each.ended for each in (stranger, *others)] == [True, False, False, False]


def test_connections_beyond_the_limit_of_their_partner_end_as_those_without_one(monkeypatch):
    monkeypatch.setattr(connections, "WITHOUT_KEY", 3)
    monkeypatch.setattr(connections, "PER_PARTNER", 2)
    admission = Admission((), LimitedLog())
    greedy = [admitted(admission, "a", has_key=True)[0] for _ in range(6)]
    others = [admitted(admission, "b", has_key=True, partner=name)[0] for name in ("two", "three") for _ in range(2)]
    assert [each.ended for each in greedy] == [False, False, True, True, False, False]
    admission.release(greedy[0])
    others += [admitted(admission, "c")[0] for _ in range(3)]
    assert [each.ended for each in greedy[1:]] == [False, True, True, False, True], "two of a partner stay"
    assert not any(each.ended for each in others)


def test_a_connection_that_has_ended_counts_no_longer(monkeypatch):
    monkeypatch.setattr(connections, "PER_ADDRESS", 1)
    admission = Admission((), LimitedLog())
    for _ in range(5):
        connection, is_taken = admitted(admission, "a", has_key=True)
        assert is_taken
        admission.release(connection)
        admission.release(connection)


def test_an_address_with_too_many_is_answered_what_to_do(partner, monkeypatch):
    monkeypatch.setattr(connections, "PER_ADDRESS", 2)
    request = HEAD + b"Content-Length: 1\r\nAuthorization: Bearer %s\r\n\r\n1" % partner.key.encode()
    busy = [connected(partner, "127.0.0.2") for _ in range(2)]
    for connection in busy:
        connection.sendall(request)
        assert connection.recv(65_536).split()[1] == b"200"
    with connected(partner, "127.0.0.2") as late:
        late.sendall(request)
        answer = answer_of(late)
    assert answer.split()[1] == b"503"
    assert b"send more requests over fewer connections" in answer
    for connection in busy:
        connection.close()


@each_case(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_client_has_a_whole_network_of_ipv6(address, network):
    assert connections._network(address) == network


def test_nonsense_of_a_stranger_is_logged_once_a_minute_with_its_count(door, monkeypatch, caplog):
    monkeypatch.setattr(limited_log, "monotonic", lambda: 0.0)
    with listening(door) as partner:
        for _ in range(20):
            with connected(partner) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                assert b"found no HTTP/1.1 request" in answer_of(connection)
        monkeypatch.setattr(limited_log, "monotonic", lambda: 100.0)
    line = "Invalid HTTP request received. (from '127.0.0.1')"
    assert [each.getMessage() for each in caplog.records] == [line, f"{line}: 20 times in the last minute"]


def test_the_log_counts_what_comes_again_and_knows_no_more_than_some_lines(monkeypatch, caplog):
    clock = iter([0.0, *[1.0] * 10_000])
    monkeypatch.setattr(limited_log, "monotonic", lambda: next(clock))
    log = LimitedLog()
    for _ in range(3):
        log.add("it failed", "a" * 1000, logging.ERROR)
    for number in range(500):
        log.add("it failed", f"{number}")
    log.add("it failed otherwise", "a", logging.ERROR)
    assert caplog.records.pop().levelno == logging.ERROR, "warnings of 500 addresses hide no error"
    assert len(caplog.records) == limited_log.LINES_A_MINUTE + 2
    assert max(len(each.getMessage()) for each in caplog.records) < 100
    caplog.clear()
    monkeypatch.setattr(limited_log, "monotonic", lambda: 100.0)
    log.write_counts()
    log.write_counts()
    assert [re.findall(r"\d+ times", each.getMessage()) for each in caplog.records] == [["3 times"], ["400 times"]]


def test_eight_requests_wait_behind_one_and_more_end_the_connection(partner):
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(partner) as honest, honest.makefile("rb") as answers:
        honest.sendall(request * (PIPELINED + 1))
        assert [status_of_next(answers) for _ in range(PIPELINED + 1)] == [200] * (PIPELINED + 1)
    with connected(partner) as greedy:
        greedy.sendall(request * 5_000)
        with suppress(ConnectionResetError):
            assert answer_of(greedy).count(b"HTTP/1.1 200") <= PIPELINED + 1
    assert partner.get("/health").status_code == 200

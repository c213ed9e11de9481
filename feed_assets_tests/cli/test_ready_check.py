"""Readiness of services, red if one does not work, and figures of a ledger with known content."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from time import sleep, time

import dagster as dg
import pytest
import uvicorn
from dagster._daemon.types import DaemonHeartbeat
from dagster._grpc.client import DagsterGrpcClient
from prometheus_client.parser import text_string_to_metric_families

import feed_assets.cli.web as web_process  # `from feed_assets.cli import web` is the command
from feed_assets import heartbeats
from feed_assets.cli import metrics_server, ready_check
from feed_assets.cli.exporter import metrics
from feed_assets.cli.front import Front, proof
from feed_assets.cli.metrics_server import text_of_metrics
from feed_assets.core.allotment import QueueEntry
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.resources import Amount, Resources
from feed_assets.core.target_room import Probe, Room
from feed_assets.heartbeats import BEAT_SECONDS, FOLDER, FRESH_SECONDS, Heartbeat, NotReady, signs
from feed_assets.ledger import alerts, due, resource_queue, runs, target_probes
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.ledger_records import new_run
from feed_assets_tests.support.main_call import exit_and_errors
from feed_assets_tests.support.servers import ROOT, free_ports, stop, wait_until

HOST = socket.gethostname()
NOW = datetime.now(UTC).timestamp()


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def server(answer):
    """Yield the port of a server whose answers `answer` makes of a request's handler."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(answer(self))
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        try:
            yield http.server_port
        finally:
            http.shutdown()
            thread.join()


def test_a_service_is_ready_while_its_sign_of_life_is_fresh(home, monkeypatch, capsys):
    code, lines = exit_and_errors(monkeypatch, capsys, "ready", "connector")
    assert (code, "has given no sign of life" in lines[-1]) == (1, True)
    heartbeat = Heartbeat("connector")
    heartbeat.beat(lambda: {"messages_behind": 7})
    assert exit_and_errors(monkeypatch, capsys, "ready", "connector")[0] == 0
    assert exit_and_errors(monkeypatch, capsys, "ready", "loader-main")[0] == 1
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert exit_and_errors(monkeypatch, capsys, "ready", "connector")[0] == 1
    monkeypatch.undo()
    heartbeat.close()
    with pytest.raises(NotReady):
        heartbeats.check(home, "connector", NOW)


def test_an_old_sign_of_life_is_none(home):
    heartbeat = Heartbeat("connector", now=lambda: NOW)
    heartbeat.beat(dict)
    assert heartbeats.check(home, "connector", NOW + FRESH_SECONDS - 1).at == NOW
    with pytest.raises(NotReady, match=r"gave its last sign of life 60 s ago: expected one within 60 s"):
        heartbeats.check(home, "connector", NOW + FRESH_SECONDS)


def test_a_sign_of_life_is_given_at_most_each_five_seconds_and_is_private(home):
    clock, counted = Clock(), []
    heartbeat = Heartbeat("connector", clock=clock)
    for _ in range(3):
        heartbeat.beat(lambda: counted.append(1) or {})
    clock.now += BEAT_SECONDS
    heartbeat.beat(lambda: counted.append(1) or {})
    assert len(counted) == 2
    (path,) = (home / FOLDER).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_disk_that_takes_no_file_does_not_end_a_service(home):
    heartbeat = Heartbeat("connector")
    (home / FOLDER).rmdir()
    heartbeat.beat(dict)
    heartbeat.close()
    assert signs(home) == ()


@each_case("text", ["", "{", "[]", '{"service": "a", "at": "x", "figures": {}}', '{"service": "a", "at": 1}', "\x00"])
def test_a_file_that_is_no_sign_of_life_is_left_out(home, text):
    (home / FOLDER).mkdir(exist_ok=True)
    (home / FOLDER / "a@b.json").write_text(text)
    assert signs(home) == ()


@pytest.fixture
def ready(home, monkeypatch, capsys):
    """Return a function that runs `feed-assets ready` and returns its exit code and the lines on stderr."""

    def run(*arguments):
        settings.cache_clear()
        return exit_and_errors(monkeypatch, capsys, "ready", *arguments)

    yield run
    settings.cache_clear()


def test_a_url_is_ready_if_it_answers_200(ready, monkeypatch):
    statuses = {"/health": 200, "/broken": 503, "/moved": 302}
    with server(lambda handler: statuses.get(handler.path, 403)) as port:
        assert ready(f"http://127.0.0.1:{port}/health")[0] == 0
        for path, status in (("broken", 503), ("moved", 302), ("", 403)):
            code, lines = ready(f"http://127.0.0.1:{port}/{path}")
            assert (code, lines[-1]) == (
                1,
                f"feed-assets: http://127.0.0.1:{port}/{path} answered {status}: expected 200. See its log.",
            )
    code, lines = ready("https://127.0.0.1/")
    assert (code, "is no service: expected connector" in lines[-1]) == (1, True)
    monkeypatch.setattr(ready_check, "SECONDS", 0.5)
    with server(drip) as port:
        code, lines = ready(f"http://127.0.0.1:{port}/")
    assert (code, "does not answer (the time is over): expected 200 within 0.5 s" in lines[-1]) == (1, True)
    monkeypatch.setattr(ready_check, "SECONDS", 60)
    with server(long_status_line) as port:
        code, lines = ready(f"http://127.0.0.1:{port}/a?token=of-the-operator")
    assert (code, f"http://127.0.0.1:{port}/a does not answer" in lines[-1]) == (1, True)
    assert len(lines[-1]) < 1000
    assert "of-the-operator" not in "".join(lines)


def long_status_line(handler: BaseHTTPRequestHandler) -> int:
    """Send a status line of 60,000 bytes with an invalid status."""
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 " + b"A" * 60_000 + b"\r\n\r\n")
    return 200


def drip(handler: BaseHTTPRequestHandler) -> int:
    """Send the head of an answer byte by byte for two seconds, or until the client ends the connection."""
    with suppress(OSError):
        for _ in range(20):
            handler.wfile.write(b"H")
            sleep(0.1)
    return 200


def test_a_code_server_is_ready_once_its_code_has_loaded(tmp_path, home, monkeypatch, capsys):
    """Dagster's own check passes while the server answers, also if its code cannot be imported."""
    (tmp_path / "of_somebody.py").write_text("import a_module_that_is_missing\n")
    port, program = str(free_ports(1)[0]), Path(sys.executable).with_name("dagster")

    def ready():
        return exit_and_errors(monkeypatch, capsys, "ready", "code", "--port", port)

    code, lines = ready()
    assert (code, "does not answer" in lines[-1]) == (1, True)
    command = [program, "code-server", "start", "--host", "127.0.0.1", "--port", port, "--module-name", "of_somebody"]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        client = DagsterGrpcClient(host="127.0.0.1", port=int(port))
        wait_until(lambda: client.health_check_query() == "SERVING", "the code server to answer")
        code, lines = ready()
    finally:
        stop(server)
    assert (code, "No module named 'a_module_that_is_missing'" in lines[-1]) == (1, True)
    assert "Correct it" in lines[-1]


def test_a_daemon_is_ready_while_all_its_parts_have_a_fresh_heartbeat(home, monkeypatch, capsys):
    """Dagster's own check takes half an hour to see that a daemon hangs."""

    def ready():
        return exit_and_errors(monkeypatch, capsys, "ready", "daemon")

    code, lines = ready()
    assert (code, "has no Dagster instance" in lines[-1]) == (1, True)
    shutil.copy(ROOT / "dagster.yaml", home)
    with dg.DagsterInstance.get() as instance:
        code, lines = ready()
        assert (code, "gave no heartbeat of ASSET, BACKFILL, " in lines[-1]) == (1, True)
        now = time()
        for name in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(now - 60, name, "one"))
        assert ready()[0] == 0
        instance.add_daemon_heartbeat(DaemonHeartbeat(now - 121, "SENSOR", "one"))
        code, lines = ready()
    assert (code, "no heartbeat of SENSOR for 120 s" in lines[-1]) == (1, True)


UI_TOKEN = "t" * 32


@contextmanager
def web_ui(status, token=UI_TOKEN, address="127.0.0.1", port=0, began=None):
    """Yield the port of a web UI with our access control, behind which each request gets `status`.

    A WebSocket is accepted. If `began` is given, it is set instead, and the handshake gets no answer.
    """

    async def app(scope, receive, send):
        if scope["type"] == "websocket":
            began.set() if began else await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
            return
        paths.append(scope["path"])
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    paths: list[str] = []
    with socket.create_server((address, port)) as listener:
        port = listener.getsockname()[1]
        uvicorn_server = uvicorn.Server(web_process.server_config(Front(app, port, token), address, port))
        thread = Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield port
        finally:
            uvicorn_server.should_exit = True
            thread.join()
    assert set(paths) <= {"/server_info"}


def test_the_web_ui_is_ready_if_it_has_the_token_and_dagster_answers(ready, monkeypatch):
    with web_ui(200) as port:
        code, lines = ready("web", "--port", str(port))
        assert (code, "FEED_ASSETS_UI_TOKEN is not set" in lines[-1]) == (1, True)
        monkeypatch.setenv("FEED_ASSETS_UI_TOKEN", UI_TOKEN)
        assert ready("web", "--port", str(port))[0] == 0
    code, lines = ready("web", "--port", str(port))
    assert (code, "does not answer" in lines[-1], UI_TOKEN in lines[-1]) == (1, True, False)
    with web_ui(500) as port:
        code, lines = ready("web", "--port", str(port))
        assert (code, lines[-1].partition("/server_info ")[2]) == (1, "answered 500: expected 200. See its log.")


def proven(port, challenge):
    return proof("127.0.0.1", port, UI_TOKEN, challenge=challenge).encode()


STRANGERS = {
    "accepts anything": lambda port, challenge: b"ok",
    "repeats the challenge": lambda port, challenge: challenge.encode(),
    "has the answer of a web UI on another port": lambda port, challenge: proven(port + 1, challenge),
    "has the answer to another challenge": lambda port, challenge: proven(port, "0" * 64),
    "answers without end": lambda port, challenge: b"0" * (1 << 24),
    "leaves the connection to another one": lambda port, challenge: proven(port, challenge),
}


@contextmanager
def answering(answer, protocol="HTTP/1.0"):
    """Yield a server on 127.0.0.1 and the heads of its requests. `answer` makes its answer of port and challenge."""
    heads = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self):
            heads.append(f"{self.requestline} {self.headers}")
            body = answer(http.server_port, self.path.partition("challenge=")[2])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield http, heads
        finally:
            http.shutdown()
            thread.join()


@pytest.mark.parametrize("stranger", STRANGERS)
def test_who_has_the_port_in_place_of_the_web_ui_does_not_get_the_token(ready, monkeypatch, stranger):
    monkeypatch.setenv("FEED_ASSETS_UI_TOKEN", UI_TOKEN)
    with answering(STRANGERS[stranger]) as (http, heads):
        code, lines = ready("web", "--port", str(http.server_port))
    assert (code, len(heads)) == (1, 1)
    assert UI_TOKEN not in heads[0] + "".join(lines)


def test_who_passes_the_challenge_on_to_a_web_ui_at_another_address_does_not_get_the_token(ready, monkeypatch):
    def passed_on(port, challenge):
        with closing(HTTPConnection("127.0.0.2", port)) as there:
            there.request("GET", f"/feed_assets_proof?challenge={challenge}", headers={"Host": f"127.0.0.1:{port}"})
            return there.getresponse().read()

    monkeypatch.setenv("FEED_ASSETS_UI_TOKEN", UI_TOKEN)
    with answering(passed_on, "HTTP/1.1") as (http, heads):
        port = http.server_port  # Nobody has it at another address, either.
        with web_ui(200, address="127.0.0.2", port=port):
            assert len(passed_on(port, "").strip()) == len(proven(port, ""))
            assert ready("web", "--port", str(port))[0] == 1
    assert len(heads) == 1


def test_more_idle_connections_than_the_web_ui_takes_are_closed_and_it_goes_on(ready, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_UI_TOKEN", UI_TOKEN)
    monkeypatch.setattr(web_process, "CONNECTIONS", 3)
    with web_ui(200) as port:
        with ExitStack() as idle:
            opened = [idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(4)]
            with suppress(ConnectionError):
                assert opened[-1].recv(1) == b""
            opened[0].sendall(b"x\r\n\r\n")
            assert opened[0].recv(8) == b"HTTP/1.1", "those that came first go on"
        wait_until(lambda: ready("web", "--port", str(port))[0] == 0, "the web UI, once those are closed")


HANDSHAKE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
MALFORMED = {
    "more headers than a request may have": ([b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * 100 + b"\r\n"], b"400"),
    "a head in one piece that is larger than a head may be": (
        [b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 60_000 + b"\r\n\r\n"],
        b"400",
    ),
    "a malformed body behind the answer": (
        [b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"zz\r\n"],
        b"403",
    ),
    "a malformed body in one piece with its head": (
        [b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
        b"400",
    ),
    "a WebSocket with a body": ([HANDSHAKE + b"content-length: 1\r\n\r\n"], b""),
    "a WebSocket by POST": ([HANDSHAKE.replace(b"GET", b"POST") + b"\r\n"], b"405"),
}


def test_malformed_requests_to_the_web_ui_end_their_connections_and_fill_no_log(caplog, capfd):
    with web_ui(200) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
            with pytest.raises(ConnectionError):
                client.sendall(b"a:\r\n" * (16 << 20))
        for case, (parts, status) in MALFORMED.items():
            answers = bytearray()
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client, suppress(ConnectionError):
                for part in parts:
                    client.sendall(part)
                    answers += client.recv(1 << 16)
                while received := client.recv(1 << 16):
                    answers += received
            assert answers[9:12] == status, case
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def handshake(port, cookie=b""):
    """Return a valid handshake of one of the web UI's pages."""
    own = b"host: 127.0.0.1:%d\r\ncookie: feed_assets_%d=%s%s\r\n" % (port, port, UI_TOKEN.encode(), cookie)
    version = b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    return HANDSHAKE.replace(b"host: x\r\n", own) + version


def test_a_websocket_may_have_as_many_cookies_as_a_page():
    """Browsers send the cookies of all tools on 127.0.0.1 to each port."""
    with web_ui(200) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(handshake(port, b"; other=" + b"x" * 30_000))
        assert client.recv(1 << 16)[9:12] == b"101"


def test_bytes_before_the_answer_to_a_handshake_end_the_websocket_and_fill_no_log(caplog, capfd):
    began = Event()
    with web_ui(200, began=began) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(handshake(port))
        assert began.wait(60)
        client.sendall(b"\xff\0\r\n\r\n")
        with suppress(ConnectionError):
            assert client.recv(1 << 16) == b""
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def figure(text, name, **labels):
    """Return the value of a figure in Prometheus' text."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    (value,) = [each.value for each in samples if (each.name, each.labels) == (f"feed_assets_{name}", labels)]
    return value


@pytest.fixture
def ledger(home):
    settings.cache_clear()
    yield open_ledger(settings().ledger)
    settings.cache_clear()


def test_metrics_have_the_due_list_runs_and_alerts_of_the_ledger(home, ledger):
    now = datetime.now(UTC)
    out, other = (Partition(Feed.parse(f"a/{name}/v1.0"), "2026-01-01") for name in ("out", "other"))
    with ledger.write() as connection:
        due.wake(connection, [due.AffectedOutput(out, 1, now)], now - timedelta(minutes=10))
    alerts.keep(ledger, "person", {"person:a/out": "look"}, now)
    runs.start(ledger, new_run("r1", other))
    Heartbeat("loader-main").beat(lambda: {"tables": 3, "not a name": 1})
    text = text_of_metrics()
    assert figure(text, "waiting_partitions", feed="a/out/v1.0", state="not decided") == 1
    assert 600 <= figure(text, "waiting_seconds", feed="a/out/v1.0", state="not decided") < 700
    assert (figure(text, "runs_running"), figure(text, "alerts_open")) == (1, 1)
    assert figure(text, "service_tables", service="loader-main", host=HOST) == 3
    assert figure(text, "service_heartbeat_seconds", service="loader-main", host=HOST) < 60
    parts = ("ledger", "targets", "dagster", "services")
    assert {figure(text, "up", part=part) for part in parts} == {1}
    assert "not a name" not in text


def test_metrics_have_the_cores_of_compute_targets_and_the_requests_that_wait(home, ledger, monkeypatch):
    now = datetime.now(UTC)
    local = {"kind": "local", "cores": 8, "memory": "8g"}
    monkeypatch.setenv("FEED_ASSETS_TARGETS", json.dumps({"here": local, "away": local, "new": local}))
    settings.cache_clear()
    free = Probe(now, Amount(8, 8 << 30), Amount(5, 8 << 30))
    target_probes.keep(ledger, {"here": free, "away": Probe(now, offline="no answer", since=now)})
    entry = QueueEntry("one", Resources(cores=2), is_history=False, since=now)
    room = Room(free.total, free.free)
    for name, rooms in (("one", {"here": room}), ("two", {"here": replace(room, closed="offline")})):
        found = resource_queue.Rooms(frozenset(rooms), lambda _, rooms=rooms: rooms)
        resource_queue.ask(ledger, replace(entry, name=name, since=now - timedelta(minutes=2)), name, found, now)
    text = text_of_metrics()
    cores = [figure(text, f"target_cores{which}", target="here") for which in ("", "_free", "_given")]
    assert cores == [8, 5, 2]
    assert [figure(text, "target_offline", target=name) for name in ("here", "away")] == [0, 1]
    assert figure(text, "resource_requests_waiting") == 1
    assert 120 <= figure(text, "resource_requests_seconds") < 200


def test_a_ledger_that_is_away_leaves_the_other_figures(home, monkeypatch, capsys):
    monkeypatch.setenv("FEED_ASSETS_LEDGER", f"sqlite:///{home}/away.db")
    settings.cache_clear()
    Heartbeat("connector").beat(lambda: {"messages_behind": 7})
    text = text_of_metrics()
    assert (figure(text, "up", part="ledger"), figure(text, "up", part="services")) == (0, 1)
    assert figure(text, "service_messages_behind", service="connector", host=HOST) == 7
    assert "metrics: no figures of ledger: there is no ledger at" in capsys.readouterr().err
    assert not (home / "away.db").exists()


def test_metrics_are_served_on_loopback_at_one_path(home, ledger, monkeypatch, capsys):
    stopping = Event()
    monkeypatch.setattr(metrics_server, "stopped_by_signals", lambda: stopping)
    ports = []
    listening = metrics_server.listening

    def listens(host, port):
        made = listening(host, port)
        ports.append(made.server_address)
        return made

    monkeypatch.setattr(metrics_server, "listening", listens)
    thread = Thread(target=metrics, kwargs={"port": 0, "host": "127.0.0.1"})
    thread.start()
    try:
        while not ports:
            os.sched_yield()
        with monkeypatch.context() as patched, socket.create_connection(ports[0], timeout=30) as slow:
            patched.setattr(metrics_server._Answer, "timeout", 600)  # as for a client that sends a byte now and then
            patched.setattr(metrics_server, "READ_SECONDS", 0.1)
            slow.sendall(b"G")
            slow.recv(1)  # An answer or the end within the time limit: it holds the only place for no longer.
        statuses = {}
        for path in ("/metrics", "/other"):
            connection = HTTPConnection(*ports[0], timeout=30)
            connection.request("GET", path)
            answer = connection.getresponse()
            statuses[path] = answer.status, b"feed_assets_runs_running 0.0" in answer.read()
            connection.close()
    finally:
        stopping.set()
        thread.join()
    assert statuses == {"/metrics": (200, True), "/other": (404, False)}


def test_a_client_that_goes_away_leaves_one_line_and_no_stack_trace(home, capsys):
    listener = metrics_server.listening("127.0.0.1", 0)
    try:
        {}["gone"]
    except KeyError:
        listener.handle_error(None, ("127.0.0.1", 1))
    listener.server_close()
    assert capsys.readouterr().err == "feed-assets: metrics: a request was not answered: 'gone'\n"

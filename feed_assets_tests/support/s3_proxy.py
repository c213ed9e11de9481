"""A proxy before an S3 server: it counts requests, and injects faults of networks and servers into some of them.

It passes on every header unchanged, also Host, which SeaweedFS checks against the signature.
"""

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit

from feed_assets_tests.support.servers import S3Server

TARGETS = ("put part", "put manifest", "list page 2", "get manifest", "create")
KINDS = ("503", "500", "reset before", "reset after", "timeout", "truncated body", "access denied", "stale list")
_ERRORS = {"503": "SlowDown", "500": "InternalError", "403": "AccessDenied"}


@dataclass(frozen=True)
class Reply:
    """An answer of the server."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass
class Fault:
    """A fault for the next `times` requests of a kind; `is_applied`: a request that times out still takes effect."""

    target: str
    kind: str
    times: int = 1
    is_applied: bool = False


@dataclass
class Proxy:
    """Address for clients, requests so far, and the fault in force."""

    server: S3Server
    upstream: tuple[str, int]
    asked: list[str] = field(default_factory=list)
    fault: Fault | None = None
    fired: int = 0
    listings: dict[str, Reply] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    @property
    def requests(self) -> Counter[str]:
        """Return how often each kind of request was made; `list` counts all listings."""
        found = Counter(self.asked)
        found["list"] += found["list page 2"]
        return found

    def begin(self, fault: Fault | None = None) -> None:
        """Forget the requests so far, and set the fault from now on."""
        with self.lock:
            self.asked, self.fault, self.fired = [], fault, 0

    def fault_of(self, kind: str) -> Fault | None:
        """Record a request, and return the fault to inject into it."""
        with self.lock:
            self.asked.append(kind)
            fault = self.fault
            if fault is None or fault.times <= 0:
                return None
            if fault.kind == "stale list" and self.fired and kind.startswith("list"):
                pass  # After the request that it was meant for, the next listing is stale.
            elif fault.target != kind:
                return None
            self.fired += 1
            is_listing = kind.startswith("list")
            self.fault = replace(fault, times=fault.times - (is_listing or fault.kind != "stale list"))
            return fault


def kind_of(method: str, path: str, is_conditional: bool) -> str:
    """Return the kind of a request, by the words of the grid."""
    parts = urlsplit(path)
    query = parse_qs(parts.query)
    if "list-type" in query:
        return "list page 2" if "continuation-token" in query else "list"
    if method == "PUT":
        return "create" if is_conditional else f"put {_what(parts.path)}"
    return f"{method.lower()} {_what(parts.path)}"


def _what(path: str) -> str:
    return "manifest" if unquote(path).endswith("/_SUCCESS") else "part"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # The client is gone, or the proxy ended the connection itself.
            self.close_connection = True

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = kind_of(self.command, self.path, "If-None-Match" in self.headers)
        fault = self.proxy.fault_of(kind)
        if fault is None:
            self._reply(self._forward(body, kind))
        elif fault.kind in ("503", "500", "access denied"):
            self._reply(_error(fault.kind.replace("access denied", "403")))
        elif fault.kind == "stale list":
            fresh = self._forward(body, kind, remember=False)
            self._reply(self.proxy.listings.get(self.path, fresh) if kind.startswith("list") else fresh)
        else:
            self._break(fault, body, kind)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815

    def _break(self, fault: Fault, body: bytes, kind: str) -> None:
        """End the connection without a whole reply."""
        if fault.kind == "truncated body" and self.command == "PUT":
            self._forward(body[: len(body) // 2], kind, is_cut=True)
        elif fault.kind == "truncated body":
            reply = self._forward(body, kind)
            self._reply(reply, len(reply.body) // 2)
        elif fault.kind == "reset after" or (fault.kind == "timeout" and fault.is_applied):
            self._forward(body, kind)
        if fault.kind == "timeout":
            self.connection.settimeout(20)
            self.connection.recv(1)  # Until the client has had enough.
        self._reset()

    def _reset(self) -> None:
        self.wfile.flush()
        if self.connection.fileno() >= 0:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.rfile.close()  # This file keeps the socket open.

    def _forward(self, body: bytes, kind: str, *, is_cut: bool = False, remember: bool = True) -> Reply:
        upstream = HTTPConnection(*self.proxy.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            if is_cut:  # The server waits for a length that never arrives.
                upstream.sock.shutdown(socket.SHUT_WR)
            response = upstream.getresponse()
            reply = Reply(response.status, tuple(response.getheaders()), response.read())
        finally:
            upstream.close()
        if remember and kind.startswith("list") and reply.status == 200:
            self.proxy.listings[self.path] = reply
        return reply

    def _reply(self, reply: Reply, length: int | None = None) -> None:
        self.send_response_only(reply.status)
        dropped = ("content-length", "transfer-encoding", "connection")
        for name, value in reply.headers:
            if name.lower() not in dropped or (self.command == "HEAD" and name.lower() == "content-length"):
                self.send_header(name, value)
        if self.command != "HEAD" and reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[:length])
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Be silent."""


def _error(status: str) -> Reply:
    code = _ERRORS[status]
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}, says the proxy</Message></Error>'
    return Reply(int(status), (("Content-Type", "application/xml"),), body.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Ignore errors of connections that were broken on purpose."""


@contextmanager
def proxied(server: S3Server) -> Iterator[Proxy]:
    """Run a proxy before the server until the block ends; clients use `proxy.server`."""
    partition = urlsplit(server.endpoint)
    handler = type("Handler", (_Handler,), {})
    listener = _Server(("127.0.0.1", 0), handler)
    shown = replace(server, endpoint=f"http://127.0.0.1:{listener.server_address[1]}")
    handler.proxy = Proxy(shown, (partition.hostname or "", partition.port or 80))
    Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield handler.proxy
    finally:
        listener.shutdown()
        listener.server_close()

"""Limits of connections before a request is read: their number and duration, and the size of a head.

uvicorn limits connections only once a head is complete, and limits neither its size nor its time. It has no hook for
that, so this overrides methods that may change in each minor version: pyproject.toml allows only one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Container, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from feed_assets.intake.limited_log import ConnectionLog, LimitedLog

HEAD_SECONDS = 10
"""Seconds for a connection to send the head of its first or next request."""

REQUEST_SECONDS = 30
"""Seconds from the first to the last byte of a request."""

LINGER_SECONDS = 5
"""Seconds in which the rest of a refused body is discarded: a reset would keep the answer from its sender."""

HEAD_BYTES = 65_536
"""Bytes of a request's head, the limit of h11 and most proxies, too."""

CONNECTIONS = 1000
"""The most open connections. Requests of further ones are answered with 503."""

WITHOUT_KEY = 200
"""The most connections without a valid key: a further one ends the oldest. Partners have the other 800."""

PIPELINED = 8
"""Requests of a connection that wait while an earlier one is answered: each takes some 10 kB."""

PER_ADDRESS = 100
"""The most connections of one address, or one IPv6 network of 64 bits, unless it is a trusted proxy."""


class Admission:
    """The open connections of a server.

    Args:
        trusted: Addresses of proxies, which have many clients.
        log: The log for addresses with too many connections.
    """

    def __init__(self, trusted: Container[str], log: LimitedLog) -> None:
        self._trusted, self.log = trusted, log
        self._of_address = Counter[str]()
        self._open = dict[BoundedHttp, None]()  # In their order of arrival.

    def admit(self, connection: "BoundedHttp") -> bool:
        """Count a connection, which may end the oldest one without a key. Return False if it is one too many."""
        network, connection.is_counted = connection.network, True
        self._open[connection] = None
        self._of_address[network] += 1
        if connection.address not in self._trusted and self._of_address[network] > PER_ADDRESS:
            self.log.add(f"more than {PER_ADDRESS} connections from one address", network)
            oldest = next(each for each in self._keyless() if each.network == network)
            if oldest is connection:
                return False
            self._end(oldest)
        elif len(self._open) > WITHOUT_KEY and len(keyless := self._keyless()) > WITHOUT_KEY:
            self.log.add(f"more than {WITHOUT_KEY} connections without a valid key", network)
            self._end(keyless[0])
        return True

    def _end(self, connection: "BoundedHttp") -> None:
        """End a connection, which no longer counts from now on, though the loop closes it later."""
        self.release(connection)
        connection.abort()

    def _keyless(self) -> "list[BoundedHttp]":
        """Return the connections without a valid key, the oldest first. The new one is last."""
        return [each for each in self._open if not each.has_key]

    def release(self, connection: "BoundedHttp") -> None:
        """Stop counting a connection."""
        if not connection.is_counted:
            return
        connection.is_counted = False
        del self._open[connection]
        self._of_address[connection.network] -= 1
        if not self._of_address[connection.network]:
            del self._of_address[connection.network]


class BoundedHttp(HttpToolsProtocol):
    """A connection that ends after refusing an unread body, and if its client is too slow or sends too much."""

    address = network = ""
    is_counted = False
    _has_key = _is_over = False
    _state: Mapping[str, Any] = MappingProxyType({})
    """State of the request in progress. Further requests may already have arrived."""
    _timer: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes since the last complete head or piece of a body: the parser keeps unfinished heads and trailers."""
    _refusal = (400, "found no HTTP/1.1 request: nothing was accepted")

    def __init__(self, admission: Admission, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admission = admission

    @property
    def has_key(self) -> bool:
        """Return whether the last answered request, or the one in progress, had a valid key."""
        return self._has_key or "partner" in self._state

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start waiting for a head, or refuse the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.network = _network(self.address)
        self.logger = cast(Any, ConnectionLog(self._admission.log, self.address))
        self._end_in(HEAD_SECONDS)
        if not self._admission.admit(self):
            problem = f"found more than {PER_ADDRESS} connections from {self.address}"
            self._refuse(503, f"{problem}: send more requests over fewer connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        self._admission.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse arrived bytes, unless the connection is already refused."""
        if self._is_over:
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES and not self._is_over:
            self._refuse(*_too_long())

    def on_message_begin(self) -> None:
        """Start the time limits of a request and of its head."""
        super().on_message_begin()
        self.scope["state"]["deadline"] = self.loop.time() + REQUEST_SECONDS  # pyright: ignore[reportTypedDictNotRequiredAccess]
        self._end_in(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """Stop waiting: the application has the rest of the request's time for the body."""
        self._stop()
        self._unread = 0
        if self.parser.should_upgrade():  # pyright: ignore[reportOptionalMemberAccess]
            self._refusal = _NO_UPGRADE
            raise ValueError(self._refusal)
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._refusal = _too_long()
            raise ValueError(self._refusal)
        if len(self.pipeline) >= PIPELINED:
            self._refusal = _TOO_MANY
            raise ValueError(self._refusal)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that the parser keeps none of the bytes that arrived."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the parser keeps none of the bytes that arrived."""
        self._unread = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Remember the state that the application gets. After a valid key it contains the partner."""
        self._state = cycle.scope.get("state", {})
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request; if this one's body was not read, end the connection."""
        self._has_key = "partner" in self._state
        is_unread = not self.pipeline and self.cycle.more_body
        is_last = not self.pipeline
        super().on_response_complete()
        if is_unread and not self.transport.is_closing():
            self._linger()
        elif is_last:
            self._end_in(HEAD_SECONDS)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's own words)
        """Answer a request that cannot be parsed with the reason."""
        self._refuse(*self._refusal)

    def pause_writing(self) -> None:
        """Start waiting for a client that does not read."""
        super().pause_writing()
        self._end_in(HEAD_SECONDS)

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        super().resume_writing()
        if not self._is_over:
            self._stop() if self._is_answering else self._end_in(HEAD_SECONDS)

    def _refuse(self, status: int, why: str) -> None:
        """Answer instead of the application, which sees a disconnect, and end the connection."""
        if self.transport.is_closing():
            return
        if self._is_answering:
            if self.pipeline or self.cycle.response_started:
                self.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": why}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self._linger()

    def _linger(self) -> None:
        """End our side, and discard what still arrives, for some seconds."""
        self._is_over = True
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._end_in(LINGER_SECONDS)

    def _end_in(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """End the connection, also if its client does not read."""
        self.transport.abort()

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


_TOO_MANY = (
    400,
    f"found more than {PIPELINED} requests behind one that is being answered: wait for answers before sending more",
)

_NO_UPGRADE = (
    400,
    "found a request to upgrade to another protocol, whose body the parser would not read; expected HTTP/1.1: send it "
    "without the header Upgrade (in Java: HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1))",
)


def _too_long() -> tuple[int, str]:
    return 431, f"the head of the request has more than {HEAD_BYTES} bytes: send fewer or shorter headers"


def _network(address: str) -> str:
    """Return an address; for IPv6 its network of 64 bits, which one client usually has as a whole."""
    if ":" not in address:
        return address
    parsed = cast(IPv6Address, ip_address(address.partition("%")[0]))
    return str(parsed.ipv4_mapped or (parsed if parsed.is_loopback else ip_network((parsed, 64), strict=False)))

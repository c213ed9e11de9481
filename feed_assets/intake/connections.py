"""Limits for connections: how many are open, how long they may wait, and how large the head of a request is.

uvicorn limits connections only after it has read a complete head. It limits neither the size nor the time of a head,
and has no hook for such limits. So this module overrides methods that may change in any minor version of uvicorn, and
pyproject.toml allows only one minor version.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Container, Mapping
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from feed_assets.core.limits import HEADERS
from feed_assets.intake.limited_log import ConnectionLog, LimitedLog

HEAD_SECONDS = 10
"""Seconds for a connection to send the head of its first or next request."""

REQUEST_SECONDS = 30
"""Seconds from the first to the last byte of a request."""

LINGER_SECONDS = 5
"""Seconds in which the server still reads and discards the rest of a refused body.

Closing at once would reset the connection, and the client would not see the answer.
"""

HEAD_BYTES = 65_536
"""The most bytes of a request's head. h11 and most proxies have the same limit."""

CONNECTIONS = 1000
"""The most open connections. Requests of further connections are answered with 503."""

WITHOUT_KEY = 200
"""The most connections without a valid key. One more closes the oldest of them. So 800 stay free for valid keys."""

PIPELINED = 8
"""The most requests of a connection that wait while an earlier one is answered. Each takes about 10 kB."""

PER_ADDRESS = 100
"""The most connections from one IPv4 address or one IPv6 /64 network. Trusted proxies are exempt."""


PER_PARTNER = CONNECTIONS // 10
"""The most requests in progress of one partner, with all its keys. Further requests are answered with 429.

The oldest connections of a partner, up to this number, are not closed for new ones. Others may be closed.
"""


class Admission:
    """The open connections of a server.

    Args:
        trusted: Addresses of proxies. They have many clients, so they may open more connections.
        log: The log for addresses with too many connections.
    """

    def __init__(self, trusted: Container[str], log: LimitedLog) -> None:
        self._trusted, self.log = trusted, log
        self._of_address = Counter[str]()
        self._open = dict[BoundedHttp, None]()  # In their order of arrival.

    def admit(self, connection: "BoundedHttp") -> bool:
        """Count a new connection. If there are too many, close the oldest one that `_unprotected` returns.

        Return False if the new connection is the one to close. The caller then refuses it.
        """
        network, connection.is_counted = connection.network, True
        self._open[connection] = None
        self._of_address[network] += 1
        if connection.address not in self._trusted and self._of_address[network] > PER_ADDRESS:
            self.log.add(f"more than {PER_ADDRESS} connections from one address", network)
            oldest = next(each for each in self._unprotected() if each.network == network)
            if oldest is connection:
                return False
            self._end(oldest)
        elif len(self._open) > WITHOUT_KEY and len(unprotected := self._unprotected()) > WITHOUT_KEY:
            self.log.add(f"more than {WITHOUT_KEY} connections without a valid key", network)
            self._end(unprotected[0])
        return True

    def _end(self, connection: "BoundedHttp") -> None:
        """Close a connection. From now on it is not counted, although the event loop closes it a little later."""
        self.release(connection)
        connection.abort()

    def _unprotected(self) -> "list[BoundedHttp]":
        """Return the connections without a valid key, and those beyond `PER_PARTNER` of a partner, oldest first."""
        of_partner, unprotected = Counter[str](), list[BoundedHttp]()
        for each in self._open:
            of_partner[each.partner] += 1
            if not each.partner or of_partner[each.partner] > PER_PARTNER:
                unprotected.append(each)
        return unprotected

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
    """A connection that closes if its client is too slow, sends too much, or is answered before its body is read."""

    address = network = _partner = ""
    is_counted = _is_over = _has_head = False
    _state: Mapping[str, Any] = MappingProxyType({})
    """State of the request in progress. Further requests may already have arrived."""
    _timer: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes received since the last complete head or piece of a body. The parser keeps them in memory."""
    _refusal = (400, "found no HTTP/1.1 request: nothing was accepted")

    def __init__(self, admission: Admission, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admission = admission

    @property
    def partner(self) -> str:
        """Return the partner of the request in progress, or else of the last answered request; '' without a key."""
        return self._state.get("partner", self._partner)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the time limit for a head, or refuse the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.network = _network(self.address)
        self.logger = cast(Any, ConnectionLog(self._admission.log, self.address))
        self._end_in(HEAD_SECONDS)
        if not self._admission.admit(self):
            problem = f"found more than {PER_ADDRESS} connections from {self.address}"
            self._refuse(503, f"{problem}: send more requests over fewer connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and stop counting the connection."""
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
        self._has_head = False
        self.scope["state"]["deadline"] = self.loop.time() + REQUEST_SECONDS  # pyright: ignore[reportTypedDictNotRequiredAccess]
        self._end_in(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header of the head. Drop a header after the body (a trailer), because proxies check only the head."""
        if len(self.headers) >= HEADERS:
            self._refusal = 431, f"the request has more than {HEADERS} headers: send fewer"
            raise ValueError(self._refusal)
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete head, and stop its time limit. The application limits the time for the body."""
        self._stop()
        self._unread, self._has_head = 0, True
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
        """Reset the count of unread bytes, because the parser keeps none of them."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Reset the count of unread bytes, because the parser keeps none of them."""
        self._unread = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Keep a reference to the request's state.

        When the application accepts an API key, it adds the partner to this state.
        """
        self._state = cycle.scope.get("state", {})
        super()._start_asgi_task(cycle, partial(self._answer, cycle, app))

    async def _answer(self, cycle: RequestResponseCycle, app: Any, scope: Any, receive: Any, send: Any) -> None:
        """Run the application. A closed transport counts as a disconnect, even before `connection_lost` is called.

        Otherwise uvloop would raise RuntimeError for each use of the transport, as if the application had failed.
        """

        def if_open(call: Any) -> Any:
            def called(*message: Any) -> Any:
                cycle.disconnected = cycle.disconnected or self.transport.is_closing()
                return call(*message)

            return called

        await app(scope, if_open(receive), if_open(send))

    def on_response_complete(self) -> None:
        """Wait for the next request, or close the connection if the body of this request was not read."""
        self._partner = self._state.get("partner", "")
        is_unread = not self.pipeline and self.cycle.more_body
        is_last = not self.pipeline
        super().on_response_complete()
        if is_unread and not self.transport.is_closing():
            self._linger()
        elif is_last:
            self._end_in(HEAD_SECONDS)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's own words)
        """Answer a request that cannot be parsed. The answer contains our reason."""
        self._refuse(*self._refusal)

    def pause_writing(self) -> None:
        """Start a time limit, because the client does not read its answer."""
        super().pause_writing()
        self._end_in(HEAD_SECONDS)

    def resume_writing(self) -> None:
        """End the time limit of `pause_writing`, because the client reads again."""
        super().resume_writing()
        if not self._is_over:
            self._stop() if self._is_answering else self._end_in(HEAD_SECONDS)

    def _refuse(self, status: int, why: str) -> None:
        """Send an error instead of the application's answer, and close the connection.

        The application sees a disconnect.
        """
        if self.transport.is_closing():
            return
        if self._is_answering:
            if self.pipeline or self.cycle.response_started:
                self.abort()
                return
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False  # Otherwise `100 Continue` would follow our end of file.
            self.cycle.message_event.set()
        body = json.dumps({"error": why}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self._linger()

    def _linger(self) -> None:
        """Close our side of the connection. For some seconds, discard what the client still sends."""
        self._is_over = True
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._end_in(LINGER_SECONDS)

    def _end_in(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """Close the connection at once, even if its client does not read."""
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
    """Return an IPv4 address as it is, and the /64 network of an IPv6 address: one client usually has all of it."""
    if ":" not in address:
        return address
    parsed = cast(IPv6Address, ip_address(address.partition("%")[0]))
    return str(parsed.ipv4_mapped or (parsed if parsed.is_loopback else ip_network((parsed, 64), strict=False)))

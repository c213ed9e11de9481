"""HTTP sessions for foreign servers. Another thread can close the connections, and the size of answers is limited.

`time_limits.in_time` closes the connections when the time is over.
"""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from feed_assets.core.silent_loggers import silent
from feed_assets.core.size_limits import LimitedResponse
from feed_assets.core.time_limits import Opened, noting


class ListingAdapter(HTTPAdapter):
    """An adapter that adds each connection that it opens to a list, and limits the bytes read of each answer."""

    def __init__(self, opened: list[Opened]) -> None:
        super().__init__()
        self._opened = opened

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return a connection pool that adds each connection to the list, and limits the bytes read of an answer."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = noting(pool.ConnectionCls, self._opened)
        pool.ConnectionCls.response_class = LimitedResponse
        return pool


class _Session(requests.Session):
    """A session that follows no redirect. To prepare a redirect, `requests` would read and unpack the whole answer."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, without log lines of urllib3: they may have the whole path and query of the URL."""
        with silent():
            return super().send(request, **options)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None: no answer leads to another request."""


def listing_session(opened: list[Opened]) -> requests.Session:
    """Return a session that uses the environment's proxies and certificates, but no password from `~/.netrc`.

    The body of an answer is not read until the caller reads it.
    """
    session = _Session()
    session.stream = True
    session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, ListingAdapter(opened))
    return session

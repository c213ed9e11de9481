"""HTTP sessions whose connections another thread can close: `time_limits.in_time` does so when the time is over."""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from feed_assets.core.time_limits import Opened, noting


class ListingAdapter(HTTPAdapter):
    """An adapter that adds each connection that it opens to a list."""

    def __init__(self, opened: list[Opened]) -> None:
        super().__init__()
        self._opened = opened

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return a connection pool that lists its connections."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = noting(pool.ConnectionCls, self._opened)
        return pool


def listing_session(opened: list[Opened]) -> requests.Session:
    """Return a session that uses the environment's proxies and certificates, but no password from `~/.netrc`."""
    session = requests.Session()
    session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, ListingAdapter(opened))
    return session

"""Sessions of HTTP whose connections can be closed from outside, as `deadlines.in_time` does."""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from feed_assets.core.time_limits import Opened, noting


class ListingAdapter(HTTPAdapter):
    """An adapter that lists the connections that it opens, to a proxy or not."""

    def __init__(self, opened: list[Opened]) -> None:
        super().__init__()
        self._opened = opened

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the pool of connections, each of which is listed."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = noting(pool.ConnectionCls, self._opened)
        return pool


def listing_session(opened: list[Opened]) -> requests.Session:
    """Return a session with the environment's proxies and authorities, but never with a password of `~/.netrc`."""
    session = requests.Session()
    session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, ListingAdapter(opened))
    return session

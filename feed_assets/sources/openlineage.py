"""A sink for lineage: OpenLineage's run events, sent to its HTTP endpoint or a file of JSON lines.

After a kill, an event is sent again with the same run id and type. Receivers treat both events as one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from urllib.parse import SplitResult, unquote, urlsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider

from feed_assets.core.errors import SinkUnavailable
from feed_assets.core.http_sessions import ListingAdapter, listing_session
from feed_assets.core.message_words import excerpt
from feed_assets.core.secrets import masked
from feed_assets.core.setting_types import LINEAGE
from feed_assets.core.time_limits import Opened, in_time

EVENT_SECONDS = 5
"""Seconds for an endpoint to accept an event and answer."""

_ENDPOINT = "api/v1/lineage"


@dataclass(frozen=True)
class OpenLineageSink:
    """An endpoint, `https://:KEY@host/path` (default path: OpenLineage's own), or a file, `file:///path`."""

    url: str = field(repr=False)

    def publish(self, events: Sequence[tuple[int, RunEvent]]) -> tuple[str, ...]:
        """Send events in order. Stop and raise SinkUnavailable at the first event that is not accepted."""
        parts = urlsplit(self.url.removeprefix(LINEAGE))
        for _, event in events:
            _write(parts, event) if parts.scheme == "file" else _send(parts, event)
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return (): another writer's event cannot take the place of ours."""
        return ()


def _write(parts: SplitResult, event: RunEvent) -> None:
    """Append an OpenLineage event to a file, as one line. Raise SinkUnavailable if that fails."""
    try:
        FileTransport(FileConfig(unquote(parts.path), append=True)).emit(event)
    except RuntimeError as error:
        raise SinkUnavailable(str(error)) from error


def _send(parts: SplitResult, event: RunEvent) -> None:
    """Post an OpenLineage event to an endpoint. Raise SinkUnavailable if the endpoint refuses it.

    Later events then wait until a person acts.
    """
    opened, began = list[Opened](), monotonic()
    try:
        in_time(partial(_post, parts, event, opened), lambda: monotonic() > began + EVENT_SECONDS, opened)
    except TimeoutError:
        raise SinkUnavailable(f"{parts.hostname} did not accept an event within {EVENT_SECONDS} s.") from None
    except requests.RequestException as error:
        raise SinkUnavailable(f"{parts.hostname} refuses an event: {_reason(error)}") from None


def _reason(error: requests.RequestException) -> str:
    """Return the reason of a failure. The texts of an answer stay out: they may have any length and characters."""
    if error.response is not None:
        return f"it answered with {error.response.status_code}, expected 2xx"
    return masked(excerpt(str(error)))


def _post(parts: SplitResult, event: RunEvent, opened: list[Opened]) -> None:
    """Post an event once. If that fails, the next tick repeats it. Redirects are not followed, and are no success."""
    session = listing_session(opened)
    key = unquote(parts.password or "")
    with session:
        answer = HttpTransport(
            HttpConfig(
                url=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
                endpoint=parts.path.strip("/") or _ENDPOINT,
                timeout=EVENT_SECONDS,
                auth=ApiKeyTokenProvider({"apiKey": key}) if key else TokenProvider({}),
                session=session,
                adapter=ListingAdapter(opened),
            )
        ).emit(event)
        if not 200 <= answer.status_code < 300:
            raise requests.HTTPError(response=answer)

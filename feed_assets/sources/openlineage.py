"""A sink for lineage: OpenLineage's run events, sent to its HTTP endpoint or a file of JSON lines.

After a kill, an event is sent again with the same run id and type. Receivers treat both events as one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider

from feed_assets.core.errors import SinkRefused, SinkUnavailable
from feed_assets.core.http_sessions import ListingAdapter, listing_session
from feed_assets.core.message_words import excerpt
from feed_assets.core.secrets import cause, masked
from feed_assets.core.setting_types import LINEAGE
from feed_assets.core.time_limits import Opened, in_time
from feed_assets.core.webhooks import is_outage

EVENT_SECONDS = 5
"""Seconds for an endpoint to accept an event and answer."""

_ENDPOINT = "api/v1/lineage"


@dataclass(frozen=True)
class OpenLineageSink:
    """An endpoint, `https://:KEY@host/path` (default path: OpenLineage's own), or a file, `file:///path`."""

    url: str = field(repr=False)

    def publish(self, events: Sequence[tuple[int, RunEvent]]) -> tuple[str, ...]:
        """Send events in order. Stop at the first event that is not accepted, and raise SinkUnavailable.

        Raise SinkRefused if the endpoint answers and refuses the event. The error names the event.
        """
        parts = urlsplit(self.url.removeprefix(LINEAGE))
        for number, event in events:
            try:
                _write(parts, event) if parts.scheme == "file" else _send(parts, event)
            except SinkUnavailable as error:
                error.failed_event = _in_short(number, event)
                raise
            except Exception as unexpected:  # noqa: BLE001  Otherwise it would be tried at each tick, for ever.
                kind = type(unexpected).__name__  # Its text may have secrets.
                error = SinkRefused(f"an event was not sent, because of an unexpected {kind}: report it.")
                error.failed_event = _in_short(number, event)
                raise error from cause(unexpected, self.url)
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return (): events of other writers never hide ours from receivers."""
        return ()


def _in_short(number: int, event: RunEvent) -> Mapping[str, Any]:
    kind = event.eventType.value if event.eventType else ""
    return {"number": number, "subject": event.job.name, "run": event.run.runId, "data": {"transition": kind}}


def _write(parts: SplitResult, event: RunEvent) -> None:
    """Append an OpenLineage event to a file, as one line. Raise SinkUnavailable if that fails."""
    try:
        FileTransport(FileConfig(unquote(parts.path), append=True)).emit(event)
    except RuntimeError as error:
        raise SinkUnavailable(str(error)) from error


def _send(parts: SplitResult, event: RunEvent) -> None:
    """Post an OpenLineage event to an endpoint.

    Raise SinkRefused if the endpoint refuses it. Raise SinkUnavailable if the endpoint does not answer or asks for a
    later try.
    """
    opened, began = list[Opened](), monotonic()
    try:
        in_time(partial(_post, parts, event, opened), lambda: monotonic() > began + EVENT_SECONDS, opened)
    except TimeoutError:
        raise SinkUnavailable(f"{parts.hostname} did not accept an event within {EVENT_SECONDS} s.") from None
    except requests.RequestException as error:
        raise _failure(parts, error) from None


def _failure(parts: SplitResult, error: requests.RequestException) -> SinkUnavailable:
    """Return the error of a request. The texts of an answer stay out: they may have any length and characters."""
    if error.response is None:
        return SinkUnavailable(f"{parts.hostname} gave no answer: {masked(excerpt(str(error)))}")
    status = error.response.status_code
    if is_outage(status):
        return SinkUnavailable(f"{parts.hostname} accepts no event now: it answered with {status}, expected 2xx.")
    return SinkRefused(f"{parts.hostname} refuses an event: it answered with {status}, expected 2xx.")


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

"""JSON answers of other servers, within limits.

All answers of one probe together may take PROBE_SECONDS. Each answer has at most LARGEST bytes and MOST_VALUES values.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar, cast

import requests
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from feed_assets.core.http_sessions import listing_session
from feed_assets.core.time_limits import Opened, in_time

PROBE_SECONDS = 2.0
"""Seconds that a target may take for all answers of one probe."""

LARGEST = 1 << 20
"""Greatest size of an answer in bytes."""

MOST_VALUES = 50_000
"""Greatest number of values in an answer. In a parsed model, even a short value costs up to 60 µs and 3 kB."""


class NoAnswer(Exception):
    """A target gives no answer that can be used. The message says why."""


class TooMuch(NoAnswer):
    """An answer is too large, or it is not complete in time."""


class AnswerPart(BaseModel):
    """A part of an answer. Fields that are not declared are ignored. A null counts as a missing field."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, part: object) -> object:
        if not isinstance(part, dict):
            return part
        fields = cast("dict[str, Any]", part)
        return {key: value for key, value in fields.items() if value is not None}


_Answer = TypeVar("_Answer", bound=AnswerPart)

NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Server:
    """A server during one probe. All its answers must be complete at `ends`, a time of the monotonic clock."""

    session: requests.Session
    opened: list[Opened]
    ca: Path | None = None
    ends: float = field(default_factory=lambda: monotonic() + PROBE_SECONDS)

    def get(self, model: type[_Answer], url: str, headers: Mapping[str, str] = NO_HEADERS) -> _Answer:
        """Return the JSON at a URL as a model.

        Redirects are not followed. No error message contains text of the answer.

        Raise NoAnswer if no answer of this form arrives. Raise TooMuch if the answer is too large, or the time is over.
        """
        place = url.partition("?")[0]
        try:
            body = in_time(lambda: self._body(url, headers), lambda: monotonic() > self.ends, self.opened)
            if body.count(b",") > MOST_VALUES:
                raise TooMuch(f"the answer of {place} has more than {MOST_VALUES:,} values")
            return model.model_validate_json(body)
        except (requests.RequestException, OSError) as error:
            # Once the time is over, `in_time` closes the connection, so other errors may occur.
            if isinstance(error, TimeoutError | requests.Timeout) or monotonic() > self.ends:
                raise TooMuch(f"no answer from {place} in {PROBE_SECONDS:.0f} s") from None
            raise NoAnswer(f"no answer from {place} ({type(error).__name__})") from None
        except ValidationError as error:
            raise NoAnswer(f"another answer than expected from {place} ({_field(error)})") from None

    def _body(self, url: str, headers: Mapping[str, str]) -> bytes:
        # REQUESTS_CA_BUNDLE would override a certificate that is set for the session.
        options = {"headers": {**headers}, "verify": str(self.ca) if self.ca else True}
        options |= {"allow_redirects": False, "stream": True, "timeout": PROBE_SECONDS}
        place = url.partition("?")[0]
        with self.session.get(url, **options) as answer:  # pyright: ignore[reportArgumentType]
            if answer.status_code != requests.codes.ok:
                raise NoAnswer(f"{place} answers with {answer.status_code}, expected 200")
            body = bytearray()
            for piece in answer.iter_content(1 << 16):
                body += piece
                if len(body) > LARGEST:
                    raise TooMuch(f"the answer of {place} is larger than {LARGEST >> 20} MiB")
            return bytes(body)


@contextmanager
def look_at_server(ca: Path | None = None) -> Generator[Server]:
    """Yield a server for one probe. If `ca` is given, only certificates of the authority in that file are accepted."""
    opened: list[Opened] = []
    with listing_session(opened) as session:
        yield Server(session, opened, ca)


def _field(error: ValidationError) -> str:
    """Return where the answer has its first error. The text has only numbers and our fields' names, nothing secret."""
    fields = {name for part in AnswerPart.__subclasses__() for name in part.model_fields}
    place = [str(each) for each in error.errors()[0]["loc"] if isinstance(each, int) or each in fields]
    return ".".join(place) or "all of it"

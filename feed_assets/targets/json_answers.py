"""JSON answers of other servers, within bounds: PROBE_SECONDS for the whole answer, and LARGEST bytes."""

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TypeVar

import requests
from pydantic import BaseModel, ConfigDict, ValidationError

from feed_assets.core.http_sessions import listing_session
from feed_assets.core.time_limits import Opened, in_time

PROBE_SECONDS = 2.0
"""Seconds that a target may take for one answer."""

LARGEST = 1 << 20
"""Greatest size of an answer in bytes."""


class NoAnswer(Exception):
    """A target gives no answer that can be used. The message says why."""


class AnswerPart(BaseModel):
    """A part of an answer. Fields that are not declared are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


_Answer = TypeVar("_Answer", bound=AnswerPart)

NO_HEADERS: Mapping[str, str] = {}


def get(model: type[_Answer], url: str, headers: Mapping[str, str] = NO_HEADERS, ca: Path | None = None) -> _Answer:
    """Return the JSON at a URL as a model. Redirects are not followed, and the answer's text is in no message.

    Raise NoAnswer if there is no such answer in time, or it is too large.
    """
    opened: list[Opened] = []
    ends = monotonic() + PROBE_SECONDS
    try:
        body = in_time(lambda: _body(url, headers, ca, opened), lambda: monotonic() > ends, opened)
        return model.model_validate_json(body)
    except TimeoutError:
        raise NoAnswer(f"no answer in {PROBE_SECONDS:.0f} s") from None
    except (requests.RequestException, OSError) as error:
        raise NoAnswer(f"no answer ({type(error).__name__})") from None
    except ValidationError as error:
        raise NoAnswer(f"another answer than expected ({_where(error)})") from None


def _where(error: ValidationError) -> str:
    """Return the place of the first error: numbers and names of our fields, no other keys of the answer."""
    fields = {name for part in AnswerPart.__subclasses__() for name in part.model_fields}
    place = [str(each) for each in error.errors()[0]["loc"] if isinstance(each, int) or each in fields]
    return ".".join(place) or "all of it"


def _body(url: str, headers: Mapping[str, str], ca: Path | None, opened: list[Opened]) -> bytes:
    options = {"headers": {**headers}, "allow_redirects": False, "stream": True, "timeout": PROBE_SECONDS}
    with listing_session(opened) as session:
        session.verify = str(ca) if ca else True
        with session.get(url, **options) as answer:  # pyright: ignore[reportArgumentType]
            if answer.status_code != requests.codes.ok:
                raise NoAnswer(f"it answers with {answer.status_code}, expected 200")
            body = bytearray()
            for piece in answer.iter_content(1 << 16):
                body += piece
                if len(body) > LARGEST:
                    raise NoAnswer(f"its answer is larger than {LARGEST >> 20} MiB")
            return bytes(body)

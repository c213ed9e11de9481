"""Helpers that shorten and join texts for messages."""

from collections.abc import Sequence

LONGEST_REASON = 8_000
"""Maximum number of characters of a reason in the ledger."""

LONGEST_EXCERPT = 1_000
"""Maximum number of characters of a library's text in a message. The run's log has the whole text."""


def text_of(error: BaseException) -> str:
    """Return the text of an error. If its JVM has ended and the text cannot be read, return the error's name."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (`__str__` may be code of any library; py4j's raises connection errors)
        return f"{type(error).__name__}, whose text was lost with its process"


def reason_of(error: BaseException) -> str:
    """Return the reason of a run's end, `Error: message`. A long reason loses its middle: its end says what to do."""
    return without_middle(f"{type(error).__name__}: {text_of(error)}", LONGEST_REASON)


def first_line(text: str | None) -> str:
    """Return the first line of a reason. It is not shortened, because its end says what to do."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "").rstrip("; ")


def excerpt(text: str) -> str:
    """Return the first line of a library's text. A long line loses its middle: its end often says what to do."""
    return without_middle(first_line(text), LONGEST_EXCERPT)


def without_middle(text: str, most: int) -> str:
    """Return a text, cut to its beginning and its end if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def sentence(text: str) -> str:
    """Return a text with a full stop at its end, so that another sentence can follow."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def with_article(noun: str) -> str:
    """Return a noun with `a` or `an` before it."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def first_of(names: Sequence[str], count: int) -> str:
    """Join the first names of a list that has `count` names. Append how many more there are."""
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def of_first(reason: str, count: int) -> str:
    """Return the reason of the first of `count` items, marked as such if there are more."""
    return f"the first: {reason}" if reason and count > 1 else reason


def shortened(names: Sequence[str], most: int) -> str:
    """Join the first `most` names, and append how many more there are."""
    return first_of(names[:most], len(names))

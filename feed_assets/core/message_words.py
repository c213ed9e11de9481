"""Texts and lists as messages have them."""

from collections.abc import Sequence

LONGEST_REASON = 8_000
"""Characters of a reason that the ledger keeps."""

LONGEST_EXCERPT = 1_000
"""Characters of a library's text within a message of ours; all of it is in the run's log."""


def text_of(error: BaseException) -> str:
    """Return the text of an error, or its name: Spark's errors get their text from a JVM, which may have ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (it is code of any class, and py4j's raises what a lost connection does)
        return f"{type(error).__name__}, whose text went with its process"


def reason_of(error: BaseException) -> str:
    """Return why a run ended, `Error: message`: a very long one without its middle, as its cure stands at its end."""
    return _without_middle(f"{type(error).__name__}: {text_of(error)}", LONGEST_REASON)


def first_line(text: str | None) -> str:
    """Return a reason in one line, uncut, as its cure stands at its end; what follows the first line is left out."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "").rstrip("; ")


def excerpt(text: str) -> str:
    """Return the first line of a library's text: a very long one without its middle, as its cure stands at its end."""
    return _without_middle(first_line(text), LONGEST_EXCERPT)


def _without_middle(text: str, most: int) -> str:
    """Return a text, or the beginning and the end of one with more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def sentence(text: str) -> str:
    """Return a text of somebody as a sentence, so that another one may follow it."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def with_article(noun: str) -> str:
    """Return a noun after `a` or `an`."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def first_of(names: Sequence[str], count: int) -> str:
    """Return these names, and how many of `count` there are beside them."""
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def of_first(reason: str, count: int) -> str:
    """Return the reason of the first of `count`, which the others need not have."""
    return f"the first: {reason}" if reason and count > 1 else reason


def shortened(names: Sequence[str], most: int) -> str:
    """Return the first of some names, and how many more there are."""
    return first_of(names[:most], len(names))

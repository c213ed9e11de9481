"""Markdown for Dagster's UI. Texts from users and files are escaped, so they make no image, HTML or hidden link."""

import re
from collections.abc import Iterable, Sequence

_SYNTAX = re.compile(r"[\\`\[\]!|<>&]")
"""Characters with a meaning in Markdown. Unescaped they could make an image, whose address a browser would fetch."""

_LINKS = re.compile(r"[\\\[<]")


def as_text(text: str) -> str:
    """Escape a text for Markdown, and put it in one line."""
    return _SYNTAX.sub(r"\\\g<0>", " ".join(text.split()))


def without_links(text: str) -> str:
    """Escape characters that begin links, images or HTML. The rest stays readable where Markdown is not rendered."""
    return _LINKS.sub(r"\\\g<0>", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Return a table. Its cells are Markdown: pass texts from users and files through `as_text` first."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, [align] * len(head), *rows))

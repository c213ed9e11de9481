"""Tables in Markdown for Dagster's UI. Texts of others stay text in them: no link, no image, no HTML."""

import re
from collections.abc import Iterable, Sequence

_SYNTAX = re.compile(r"[\\`\[\]!|<>&]")
"""Characters that Markdown does not take for text: above all an image's, whose address a browser would fetch."""


def as_text(text: str) -> str:
    """Return a text in one line that Markdown shows as it is."""
    return _SYNTAX.sub(r"\\\g<0>", " ".join(text.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Return a table; its cells are Markdown: texts of others go through `as_text` first."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, [align] * len(head), *rows))

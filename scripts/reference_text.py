"""Markdown of the generated reference: paragraphs, lists and anchors."""

import inspect
import re
import textwrap

_WIDTH = 140


def paragraphs(text: str | None) -> str:
    """Return a docstring as Markdown, each paragraph filled to the width of our pages."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text or ""))
    return "\n\n".join(filled(block) for block in blocks)


def filled(text: str, *, indent: str = "") -> str:
    """Return a paragraph in lines of our width; the lines below the first one are indented."""
    return "\n".join(
        textwrap.wrap(
            " ".join(text.split()),
            _WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def item(text: str) -> str:
    """Return an item of a list."""
    return filled(f"- {text}", indent="  ")


def anchor(heading: str) -> str:
    """Return the anchor that GitHub and our site make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, in one line."""
    first = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", first)[0]

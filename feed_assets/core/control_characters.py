"""Escapes for control characters in foreign text. Such characters must never reach a terminal."""

from unicodedata import category

_ACTED_ON = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that move the cursor, set colors or titles, or reverse the direction of later text."""


def printable(text: str) -> str:
    r"""Return a text with control characters, direction marks and the like as escapes, such as `\x1b`."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    is_safe = character in "\n\t" or category(character) not in _ACTED_ON
    return character if is_safe else character.encode("unicode_escape", "surrogatepass").decode("ascii")

"""Words of `.proto` texts: names, numbers, texts in quotes, and signs. Comments are left out."""

import re
from collections.abc import Iterator
from typing import NoReturn

from feed_assets.kafka.schema_limits import NAME_CHARACTERS, InvalidSchema, check_most

_GREATEST = 1 << 32
"""A number above that of any field or enum."""

_WORD = re.compile(
    r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*+"
    r"([A-Za-z_]\w*+|[0-9](?:[eE][+-]|[\w.])*+|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|[][{}()<>=;:,.+/-]|\Z)",
    re.ASCII | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OCTAL = re.compile("0[0-7]+")
_OPENED, _CLOSED = frozenset("{["), frozenset("}]")


class Tokens:
    """One pass over a text. `word` is the next word; it is empty at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._words = self._scanned()
        self.word = next(self._words)

    def _scanned(self) -> Iterator[str]:
        while match := _WORD.match(self._text, self._at):
            self._at = match.end()
            yield match[1]
        self.word = self._text[self._at :].lstrip()[:20]
        self.refuse("a word of the language")

    def refuse(self, expected: str) -> NoReturn:
        """Raise InvalidSchema with the line, and with what was expected and found."""
        line = self._text.count("\n", 0, self._at) + 1
        word = repr(self.word[:40]) if self.word else "the end"
        raise InvalidSchema(f"line {line}: expected {expected}, found {word}")

    def next(self) -> None:
        """Go to the next word."""
        self.word = next(self._words)

    def take(self) -> str:
        """Return the word, and go to the next one."""
        word = self.word
        self.next()
        return word

    def skip(self, word: str) -> None:
        """Go on if this is the word. Raise InvalidSchema if it is another one."""
        if self.word != word:
            self.refuse(repr(word))
        self.next()

    def has(self, word: str) -> bool:
        """Return whether the next word is this one, and take it."""
        if self.word != word:
            return False
        self.next()
        return True

    def name(self) -> str:
        """Return a name."""
        if not _NAME.fullmatch(self.word):
            self.refuse("a name")
        check_most(len(self.word), NAME_CHARACTERS, "characters of a name")
        return self.take()

    def path(self) -> str:
        """Return names with dots between them, and perhaps one before them."""
        parts = ["."] if self.has(".") else []
        parts.append(self.name())
        while self.has("."):
            parts += [".", self.name()]
        path = "".join(parts)
        check_most(len(path), NAME_CHARACTERS, "characters of a path")
        return path

    def string(self) -> str:
        """Return the content of a text in quotes."""
        if self.word[:1] not in ("'", '"') or "\\" in self.word:
            self.refuse("a text in quotes without backslashes")
        return self.take()[1:-1]

    def number(self) -> int:
        """Return a whole number."""
        is_negative = self.has("-")
        try:
            number = int(self.word, 8) if _OCTAL.fullmatch(self.word) else int(self.word, 0)
        except ValueError:
            self.refuse("a whole number")
        if number > _GREATEST:
            self.refuse("a number of 32 bits")
        self.next()
        return -number if is_negative else number

    def skip_statement(self) -> None:
        """Skip to the semicolon that ends a statement."""
        depth = 0
        while self.word != ";" or depth:
            depth += self._depth()
            self.next()
        self.next()

    def skip_block(self) -> None:
        """Skip to the end of the next block in braces."""
        while self.word != "{":
            self._depth()
            self.next()
        self.skip_brackets()

    def skip_brackets(self) -> None:
        """Skip from an opening bracket to the one that closes it."""
        depth = self._depth()
        while depth:
            self.next()
            depth += self._depth()
        self.next()

    def _depth(self) -> int:
        if not self.word:
            self.refuse("the rest of a definition")
        return (self.word in _OPENED) - (self.word in _CLOSED)

"""Passages of a page: places where a hit of the search begins, so that its link leads to the words that match."""

import re
from html.parser import HTMLParser

_HEADING = re.compile(r"h[1-6]")
_LEAST_WORDS = {"p": 45, "li": 25, "tr": 15}
"""Words of a passage before the next may begin, by the element that begins it."""
_VOID = {"br", "col", "hr", "img", "input", "link", "meta", "wbr"}
_MARK = re.compile(r'<h6 id="([^"]+)" class="passage">.*?</h6><(\w+)', re.DOTALL)


def with_passages(html: str) -> str:
    """Begin passages in the long sections of a page. The search takes each for a section with the title of its own."""
    parser = _Passages(html)
    parser.feed(html)
    parser.close()
    for place, mark in reversed(parser.marks):
        html = html[:place] + mark + html[place:]
    return html


def as_anchors(html: str) -> str:
    """Replace the headings of passages by ids of their first elements, after the search has read the page."""
    return _MARK.sub(r'<\2 id="\1"', html)


class _Passages(HTMLParser):
    """Finder of the places where passages begin."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.marks: list[tuple[int, str]] = []
        self._lines = [0, *(each.end() for each in re.finditer("\n", html))]
        self._section, self._title, self._number, self._words = "", "", 0, 0
        self._open: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a passage at a paragraph, an item or a row if the one before has enough words."""
        least = _LEAST_WORDS.get(tag)
        if _HEADING.fullmatch(tag):
            self._section, self._title, self._number, self._words = dict(attrs).get("id") or "", "", 0, 0
            self._depth = len(self._open)
        elif least and self._section and (self._words >= least or self._depth > len(self._open)):
            self._mark()
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Count the words of the passage, or keep the title."""
        if any(map(_HEADING.fullmatch, self._open)):
            self._title += data.replace("¶", "")
        else:
            self._words += len(data.split())

    def _mark(self) -> None:
        """Begin a passage here. Material ends it with its list or table, so the next block begins another."""
        line, column = self.getpos()
        self._number += 1
        self._words, self._depth = 0, len(self._open)
        title = self._title.strip().replace("&", "&amp;").replace("<", "&lt;")
        name = f"{self._section}-passage-{self._number}"
        self.marks.append((self._lines[line - 1] + column, f'<h6 id="{name}" class="passage">{title}</h6>'))

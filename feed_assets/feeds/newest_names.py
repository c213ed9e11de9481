"""Listing of names newest first, in few requests, although S3 lists only in ascending order, in pages.

Names of updates sort by time, so a search finds the end of a long listing without reading all of it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from feed_assets.core.feeds import parse_update_id, update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.store_clients import Page

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_Pages = Callable[[str], Page]


def newest_first(
    board: Blackboard, prefix: str, until: datetime | None = None, known_id: str | None = None
) -> Iterator[list[str]]:
    """Yield lists of all names one level under `prefix`, newest first, up to `until` (timezone-aware).

    If all names fit into one page, this is one request and one list. Otherwise each list is found by a search. A search
    adds one request if updates arrive steadily, otherwise about twice the logarithm of the number of pages. With
    `known_id` the search starts at that update: one request suffices if at most one page is newer. `known_id` never
    changes the result. In another team's bucket all searches together have a time limit.
    """
    last = update_id(until) if until else None
    if not board.is_paged:
        yield from _all(board.names(prefix), last)
        return
    pages = _up_to(board.pager(prefix), last)
    end = _seconds(update_id(until or datetime.now(UTC))) or 0  # This is only where the search begins.
    moment = _seconds(known_id) if known_id and known_id <= (last or known_id) else None
    if moment:
        before = _name(moment - 1)
        yield from _descending(pages, before, end)
        pages, end = _up_to(pages, before), moment
    yield from _descending(pages, "", end)


def _all(names: Collection[str], last: str | None) -> Iterator[list[str]]:
    """Yield the greatest name of a listing, then the others, which are sorted only if the caller continues."""
    within = [name for name in names if name <= last] if last else names
    if within:
        yield [max(within)]
        yield sorted(within, reverse=True)[1:]


def _descending(pages: _Pages, start: str, end: int) -> Iterator[list[str]]:
    """Yield the names after `start` in lists, newest first.

    Each further list holds the names directly before those of the previous list.
    """
    first = head = pages(start)
    within = pages
    while True:
        begin, page = _last(within, start, head, end)
        yield [*reversed(page.names)]
        if begin == start:
            return
        within, head, end = _up_to(pages, begin), _cut(first, begin), _seconds(begin) or end


def _last(pages: _Pages, start: str, page: Page, end: int) -> tuple[str, Page]:
    """Return the last page of the listing that begins with `page`, and the name after which that last page begins.

    The first guess is `end` minus half of the time between the first and the last update of `page`, as if updates came
    at a steady rate. Then the search tries the next page. Then it doubles its step until a page is empty, and bisects.
    Only names that are written during the search can follow an empty page.
    """
    step, guess, high = 0, end - _span(page) // 2, None
    while not page.is_last:
        low = _seconds(page.names[-1])
        after = _name(guess) if low is not None and guess > low else page.names[-1]
        next_page = pages(after)
        if next_page.names:
            start, page, step = after, next_page, max(step * 2, _span(page))
        elif after == page.names[-1]:
            page = replace(page, is_last=True)
        else:
            high = guess
        low = _seconds(page.names[-1]) or 0
        guess = low + (step if high is None else min(step, (high - low) // 2))
    return start, page


def _span(page: Page) -> int:
    """Return the seconds between the first and the last update of a page, at least 1."""
    moments = [moment for moment in map(_seconds, page.names) if moment is not None]
    return max(moments[-1] - moments[0], 1) if moments else 1


def _seconds(name: str) -> int | None:
    """Return the moment of an update id in whole seconds. Return None for other names."""
    moment = parse_update_id(name)
    return int((moment - _FIRST).total_seconds()) if moment else None


def _name(seconds: int) -> str:
    return update_id(_FIRST + timedelta(seconds=min(max(seconds, 0), 315_537_897_599)))


def _up_to(pages: _Pages, last: str | None) -> _Pages:
    return (lambda after: _cut(pages(after), last)) if last is not None else pages


def _cut(page: Page, last: str) -> Page:
    """Return a page of a listing without the names after `last`.

    If the page has such names, it becomes the last page.
    """
    names = tuple(name for name in page.names if name <= last)
    return Page(names, page.is_last or len(names) < len(page.names))

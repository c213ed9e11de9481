"""Half-open ranges of partition keys."""

import re
from collections.abc import Collection

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import check_segment, is_update_id
from feed_assets.core.windows import DAY, HOUR, window_at, window_of
from feed_assets.feeds.blackboard import Blackboard

_FORMS = {DAY: r"\d{4}-\d\d-\d\d", HOUR: r"\d{4}-\d\d-\d\d-\d\d:\d\d"}


def keys_between(first: str, to: str, grain: str | None, existing: Collection[str]) -> list[str]:
    """Return the keys from `first` up to, not including, `to`: one for each window of the grain, and all of `existing`.

    The first segment of a key is the time. `existing` has the times that folders on the blackboard name. The other
    segments are the same in all keys. Raise InvalidName for ends that are not windows of the grain, or not in order.
    """
    time, end, suffix = _ends(first, to)
    grain = grain or _grain_of(time)
    stop, window = window_at(grain, end), window_at(grain, time)
    if window.start >= stop.start:
        raise InvalidName(f"the range from {first!r} to {to!r} is empty: expected an end after its beginning.")
    names = set(existing)
    while window.start < stop.start:
        names.add(window.key)
        window = window_of(grain, window.end)
    return [f"{name}/{suffix}" if suffix else name for name in sorted(names)]


def names_between(board: Blackboard, path: str, first: str, to: str) -> list[str]:
    """Return the names below a prefix, from the time of `first` up to, not including, the time of `to`.

    One request returns up to 1,000 names. In another team's bucket all requests together have a time limit.
    """
    start, end, _ = _ends(first, to)
    names, after = list[str](), start[:-1]  # `after` sorts before every name that begins with `start`.
    page_after = board.pager(path)
    while True:
        page = page_after(after)
        names += [name for name in page.names if start <= name < end and _is_of_partitions(name)]
        if page.is_last or page.names[-1] >= end:
            return names
        after = page.names[-1]


def _is_of_partitions(name: str) -> bool:
    """Return whether a folder's name can be part of a partition's key. Folders with other names are skipped."""
    try:
        return check_segment(name, "partition key") == name and not is_update_id(name)
    except InvalidName:
        return False


def _ends(first: str, to: str) -> tuple[str, str, str]:
    """Return the times of two keys, and the segments after the time, which both keys share."""
    (time, _, suffix), (end, _, other) = first.partition("/"), to.partition("/")
    if suffix != other:
        raise InvalidName(
            f"a range from {first!r} to {to!r}: expected ends that differ only in time, such as {first!r} and "
            f"{'/'.join(filter(None, (end, suffix)))!r}. For other partitions give a list of keys."
        )
    return time, end, suffix


def _grain_of(time: str) -> str:
    grain = next((each for each, form in _FORMS.items() if re.fullmatch(form, time)), None)
    if grain is None:
        raise InvalidName(
            f"a range from {time!r}: expected a day such as 2026-06-01, or an hour such as 2026-06-01-15:00. "
            "For other partitions give a list of keys."
        )
    return grain

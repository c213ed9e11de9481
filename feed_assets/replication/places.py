"""Data centers as places to copy to: their blackboards, and the datasets that each gets."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.feeds import Feed
from feed_assets.core.setting_types import DataCenter
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_center
from feed_assets.feeds.stores import RequestLimits, local_root
from feed_assets.settings import Settings

_REJECTS = "_rejects"
_LIMITS = RequestLimits(retries=4, timeout=110, retried_for=100)
"""Limits of a request to a place. Its link may be slow: a part of 8 MiB has two minutes, after which the turn ends."""


@dataclass(frozen=True)
class Place:
    """A data center with its opened blackboard."""

    name: str
    center: DataCenter
    board: Blackboard

    def has(self, feed: Feed) -> bool:
        """Return whether the place gets copies of a feed."""
        return matches(feed, self.center.datasets)

    def rank(self, feed: Feed) -> int:
        """Return the number of the first pattern that matches a feed: datasets of earlier patterns are copied first."""
        patterns = self.center.datasets
        return next((at for at, pattern in enumerate(patterns) if matches(feed, [pattern])), len(patterns))


def open_place(settings: Settings, name: str, *sources: Blackboard) -> Place:
    """Open a data center. Its folder or bucket must exist: a disk that is not mounted is not filled.

    Raise InvalidSetting if it is unknown, or has a blackboard of the source: copies would replace what they copy.
    """
    board = open_center(settings, name, _LIMITS)
    for source in sources:
        if board.address and board.address == source.address:
            raise InvalidSetting(
                f"the data center {name!r} in FEED_ASSETS_DATA_CENTERS has our own blackboard {source.url}: expected "
                "another one. Correct its url."
            )
        if _is_below(board, source) or _is_below(source, board):
            raise InvalidSetting(
                f"the data center {name!r} in FEED_ASSETS_DATA_CENTERS is inside our own blackboard {source.url}, or "
                "around it: then its copies are feeds of ours. Correct its url."
            )
    return Place(name, settings.data_center(name), board)


def _is_below(one: Blackboard, other: Blackboard) -> bool:
    """Return whether a blackboard is a folder, or a prefix of a bucket, inside another one."""
    inner, outer = (local_root(each.url) for each in (one, other))
    if inner and outer:
        return outer.resolve() in inner.resolve().parents
    return one.is_paged and other.is_paged and one.address.startswith(f"{other.address.rstrip('/')}/")


def matches(feed: Feed, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches a feed. The rejects of a dataset match wherever the dataset does."""
    return any(fnmatchcase(str(each), pattern) for each in {feed, without_rejects(feed)} for pattern in patterns)


def unmatched(patterns: Iterable[str], feeds: Iterable[Feed]) -> list[str]:
    """Return the patterns that match none of some feeds."""
    names = [*feeds]
    return [each for each in patterns if not any(matches(feed, [each]) for feed in names)]


def without_rejects(feed: Feed) -> Feed:
    """Return the dataset of a feed of rejects. Return any other feed unchanged."""
    return Feed(feed.name.removesuffix(_REJECTS) or feed.name, feed.version)

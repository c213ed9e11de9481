"""Rules for where a run computes: the data centers that a dataset allows, and those that have its inputs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from feed_assets.core.argument_types import BOARD_NAME, rule
from feed_assets.core.feeds import Feed

PRIMARY, ANY = "primary", "any"
"""Names in `at`: the project's own blackboard with the targets of no data center, and all places."""

_NAME = "the name of a data center, 'primary' or 'any': letters, digits, '_' and '-'"
PlaceName = Annotated[str, rule(re.compile(BOARD_NAME).fullmatch, _NAME)]
Places = PlaceName | Sequence[PlaceName]
At = Places | Mapping[str, Places]
"""The value of a dataset's `at`: a place, places by preference, or a home for each key of a static dimension."""

WAITS = "it waits for "
"""Beginning of each reason why no place can have a run."""


def title_of(place: str) -> str:
    """Return the name of a place in messages."""
    return PRIMARY if place == PRIMARY else f"data center {place}"


def board_key(place: str) -> str:
    """Return the key of a data center's blackboard among the blackboards of a process. No setting can have it."""
    return f"data center {place}"


def copied_feed(feed: Feed, place: str) -> Feed:
    """Return the table of the write events of a feed's copies in a data center, such as `shop/sales@b/v1.0`."""
    return Feed(f"{feed.name}@{place}", feed.version)


def source_of_copies(table: Feed, place: str) -> Feed:
    """Return the feed whose copies in a data center have their events in a table."""
    return Feed(table.name.removesuffix(f"@{place}"), table.version)


def places_at(at: At, partition: str) -> tuple[str, ...]:
    """Return the places that `at` names for a partition with this path. Return () if it names none."""
    if isinstance(at, Mapping):
        home = next((at[segment] for segment in partition.split("/") if segment in at), ())
        return places_at(home, partition)
    return (at,) if isinstance(at, str) else tuple(at)


def has_several_places(at: At) -> bool:
    """Return whether partitions, or runs of one partition, may be at different places."""
    return at == ANY or not isinstance(at, str)


@dataclass(frozen=True)
class CandidatePlace:
    """A place for a run: its targets, and what keeps the run from it.

    `closed` is the reason why it gets no run. `missing` names the pinned updates that it does not have. `is_late` is
    True if places later in the order need not wait for them.
    """

    name: str
    targets: frozenset[str] = frozenset()
    closed: str | None = None
    missing: Sequence[str] = ()
    is_late: bool = False

    @property
    def why_not(self) -> str | None:
        """Return why the place cannot have the run now. Return None if it can."""
        if self.closed:
            return f"{title_of(self.name)}: {self.closed}"
        if not self.missing:
            return None
        is_one = len(self.missing) == 1
        rest_of = "" if is_one else f" and {len(self.missing) - 1} more"
        return f"{title_of(self.name)}: {self.missing[0]}{rest_of} {'is' if is_one else 'are'} not there yet"


@dataclass(frozen=True)
class Home:
    """The targets that a run may have, grouped by preference; () means all. `why` says what the run waits for."""

    groups: tuple[frozenset[str], ...] = ()
    why: str | None = None

    @property
    def targets(self) -> frozenset[str]:
        """Return the targets of all groups."""
        return frozenset[str]().union(*self.groups)


EVERYWHERE = Home()
"""The home of a run that may have any target."""


def choose_home(places: Sequence[CandidatePlace], *, by_preference: bool) -> Home:
    """Return the targets of the places that have all inputs of a run, or what the run waits for.

    By preference, a place that will have the inputs soon is waited for, and its targets come before those of later
    places. Otherwise the least busy target of all such places is best.
    """
    groups, reasons = list[frozenset[str]](), list[str]()
    for place in places:
        if why := place.why_not:
            reasons.append(why)
            if by_preference and not place.closed and not place.is_late:
                break
        else:
            groups.append(place.targets)
    if not groups:
        return Home(why=f"{WAITS}{'; '.join(reasons)}" if reasons else f"{WAITS}a place: its `at` names none")
    if not any(groups):  # No targets are configured, else a place without targets would be closed.
        return EVERYWHERE
    return Home(tuple(groups) if by_preference else (frozenset[str]().union(*groups),))


def common_home(homes: Sequence[Home]) -> Home:
    """Return the home of a run of several partitions: the targets that all of them may have."""
    if why := next((each.why for each in homes if each.why), None):
        return Home(why=why)
    restricted = [each for each in homes if each.groups]
    if not restricted:
        return EVERYWHERE
    shared = restricted[0].targets.intersection(*(each.targets for each in restricted[1:]))
    groups = tuple(kept for group in restricted[0].groups if (kept := group & shared))
    return Home(groups) if groups else Home(why=f"{WAITS}one place for all its partitions: start them one by one")

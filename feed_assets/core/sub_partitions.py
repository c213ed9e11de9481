"""The sub-partitions of a dataset, in levels: for example regions with their own midnights, and their countries.

A sub-partition is a text, such as `region=apac/country=sg`; '' is the whole dataset. It may join or leave on a date.
Source: "Data Dependency Driven Orchestration": "a daily partition will contain several subpartitions".
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property, lru_cache
from types import MappingProxyType

from feed_assets.core.argument_types import Name
from feed_assets.core.completeness import Completeness, as_fraction
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed, check_segment
from feed_assets.core.limits import SEGMENTS
from feed_assets.core.typed import typed
from feed_assets.core.windows import DAY, Window, WindowAddress, check_grains, children, window_at, window_of, zone_of

ALL = ""
"""The sub-partition that stands for the whole dataset."""


@typed
@dataclass(frozen=True)
class Member:
    """One value of a level of sub-partitions.

    Args:
        tz: The time zone of the value's days. The default is the zone of the level above, or of the dataset.
        since: The first batch date on which the value is expected. The default is the day on which it was added. A
            value of the dataset's first declaration has no first date.
        until: The first batch date on which the value is no longer expected.
        below: The level below this value. It replaces the `below` of the value's level.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the zone is invalid.
    """

    tz: str | None = None
    since: date | None = None
    until: date | None = None
    below: "SubPartitions | None" = None

    def __post_init__(self) -> None:
        if self.tz:
            object.__setattr__(self, "tz", zone_of(self.tz))


@typed
@dataclass(frozen=True)
class SubPartitions:
    """A level of sub-partitions, such as countries, business units, partners or data centers.

    A window of a dataset is complete when it is complete in all sub-partitions. Each sub-partition is filled and
    backfilled separately.

    Args:
        name: The name of the level, such as `country`.
        members: The values, each with its time zone, a `Member`, or None.
        below: The level below each value that does not declare its own.

    Raises:
        InvalidDefinition: A value is of a wrong type, or there are no members. A dataset refuses too many levels.
        InvalidName: A member has a name that no path can hold.
    """

    name: Name
    members: Mapping[str, str | Member | None]
    below: "SubPartitions | None" = None

    def __post_init__(self) -> None:
        if not self.members:
            raise InvalidDefinition(f"{self.name}: found no members, expected at least one.")
        for value in self.members:
            check_segment(value, self.name)

    def flat(self, above: str = ALL, zone: str = "UTC") -> Iterator[tuple[str, "Life"]]:
        """Yield every sub-partition below `above` (which has the time zone `zone`), parents before children."""
        if above.count("/") + 2 >= SEGMENTS:
            raise InvalidDefinition(f"{self.name}: found more than {SEGMENTS - 2} levels of sub-partitions.")
        for value, declared in self.members.items():
            member = declared if isinstance(declared, Member) else Member(declared)
            path = f"{above}/{self.name}={value}" if above else f"{self.name}={value}"
            life = Life(member.tz or zone, member.since, member.until)
            yield path, life
            if below := member.below or self.below:
                yield from below.flat(path, life.zone)


REGIONS: Mapping[str, str | Member | None] = MappingProxyType(
    {"utc+8": "UTC+8", "utc+5": "UTC+5", "utc": "UTC", "utc-8": "UTC-8"}
)
"""The regional midnights of the article."""


@typed
class Regions(SubPartitions):
    """Regions with their own midnights. A batch date is complete when it is complete in all regions.

    Args:
        members: Time zones by region; by default the article's four: UTC+8, UTC+5, UTC, UTC-8.
        below: The level below each region, such as `SubPartitions("country", …)`.
        name: The name of the level.

    Raises:
        InvalidDefinition: A value is of a wrong type. A dataset refuses an invalid zone.
        InvalidName: A region has a name that no path can hold.
    """

    def __init__(
        self,
        members: Mapping[str, str | Member | None] | None = None,
        below: SubPartitions | None = None,
        name: Name = "region",
    ) -> None:
        super().__init__(name, members or dict(REGIONS), below)


Period = tuple[date | None, date | None]
"""A range of batch dates `[since, until)`. None means that the range has no bound on this side."""


@dataclass(frozen=True)
class Life:
    """A sub-partition's time zone, and the batch dates `[since, until)` for which it is expected.

    `past` has the earlier periods of a sub-partition that left and returned.
    """

    zone: str
    since: date | None = None
    until: date | None = None
    past: tuple[Period, ...] = ()

    def has(self, day: date) -> bool:
        """Return whether the sub-partition is expected on a batch date.

        A date that the sub-partition's time zone skipped is not expected, because it has no hours there.
        """
        periods = (*self.past, (self.since, self.until))
        is_within = any((not since or since <= day) and (not until or day < until) for since, until in periods)
        return is_within and _has_date(self.zone, day)

    def again(self, since: date) -> "Life":
        """Return a life with a new period that begins on `since`. The current period becomes a past one."""
        return Life(self.zone, since, None, (*self.past, (self.since, self.until)))


@lru_cache(maxsize=16_384)
def _has_date(zone: str, day: date) -> bool:
    try:
        return bool(window_at(DAY, day.isoformat(), zone))
    except InvalidName:
        return False


@dataclass(frozen=True)
class Tracked:
    """The declaration of a dataset in the ledger: how its windows are judged, and its sub-partitions.

    If `members` is empty, any reported sub-partition is accepted, and has no parent.
    """

    grains: tuple[str, ...]
    ratio: str
    tiers: tuple[str, ...] = ()
    zone: str = "UTC"
    members: Mapping[str, Life] = field(default_factory=dict[str, Life])
    is_ours: bool = False
    """True for one of our own datasets. Only its own runs report how many records they wrote."""
    is_default: bool = False
    """True if the dataset is not declared. It keeps the default settings from when it was first recorded."""

    @classmethod
    def of(cls, completeness: Completeness, sub_partitions: SubPartitions | None = None) -> "Tracked":
        """Build the ledger's form of a declaration.

        Raise InvalidDefinition if the days of a zone do not begin where a window of the base grain begins.
        """
        members = dict(sub_partitions.flat(zone=completeness.tz)) if sub_partitions else {}
        check_grains(completeness.grains, {life.zone for life in members.values()})
        return cls(completeness.grains, completeness.ratio, completeness.tiers, completeness.tz, members)

    @cached_property
    def share(self) -> Fraction:
        """Return `ratio`, the share of the source's records that makes a window complete, as an exact fraction."""
        return as_fraction(self.ratio)

    @property
    def base(self) -> str:
        """Return the base grain, which is the smallest. Counts are reported for its windows."""
        return self.grains[0]

    @cached_property
    def below(self) -> Mapping[str, tuple[str, ...]]:
        """Return the direct sub-partitions of each sub-partition, regardless of dates."""
        paths_below: dict[str, list[str]] = {}
        for path in self.members:
            paths_below.setdefault(above(path), []).append(path)
        return {path: tuple(sorted(each)) for path, each in paths_below.items()}

    def zone_of(self, sub_partition: str) -> str:
        """Return the time zone of a sub-partition's days."""
        life = self.members.get(sub_partition)
        return life.zone if life else self.zone

    def is_leaf(self, sub_partition: str, window: Window) -> bool:
        """Return whether counts are reported for a sub-partition itself: it has no children on the window's date."""
        return not self.children(sub_partition, window)

    def children(self, sub_partition: str, window: Window) -> tuple[str, ...]:
        """Return the direct sub-partitions that are expected on a window's batch date."""
        return tuple(path for path in self.below.get(sub_partition, ()) if self.expects(path, window))

    def parts(self, at: WindowAddress, window: Window) -> tuple[WindowAddress, ...]:
        """Return the windows that decide whether a window is complete.

        If the sub-partition has children, these are the same windows of the children. Otherwise they are the smaller
        windows inside the window.
        """
        paths = self.children(at.sub_partition, window)
        if not paths:
            smaller = children(window, self.grains)
            return tuple(WindowAddress(at.dataset, at.sub_partition, each.grain, each.key) for each in smaller)
        return tuple(WindowAddress(at.dataset, path, at.grain, at.key) for path in paths)

    def holding(self, dataset: Feed, sub_partition: str, start: datetime) -> list[WindowAddress]:
        """Return the base window with this start and the larger windows that contain it.

        Return them for the sub-partition and for each of its parents.
        """
        zone = self.zone_of(sub_partition)
        keys = [(each.grain, each.key) for each in (window_of(grain, start, zone) for grain in self.grains)]
        levels = [sub_partition]
        while self.members and levels[-1]:
            levels.append(above(levels[-1]))
        return [WindowAddress(dataset, level, grain, key) for level in levels for grain, key in keys]

    def expects(self, path: str, window: Window) -> bool:
        """Return whether a sub-partition and all its parents are expected in a window."""
        while path:
            life = self.members.get(path)
            if life is None or not life.has(batch_date(window, life.zone)):
                return False
            path = above(path)
        return True

    @cached_property
    def _paths(self) -> Mapping[frozenset[str], str]:
        return {frozenset(path.split("/")): path for path in self.members}

    def path_of(self, sub_partition: str) -> str:
        """Return a sub-partition with its levels in the declared order. Undeclared levels are sorted by name."""
        if "/" not in sub_partition:
            return sub_partition
        levels = sub_partition.split("/")
        return self._paths.get(frozenset(levels)) or "/".join(sorted(levels))

    def check(self, sub_partition: str, window: Window | None = None) -> None:
        """Raise InvalidName if a sub-partition is unknown, or if only its children may report counts of the window."""
        if not self.members:
            return
        is_known = sub_partition in self.members or sub_partition == ALL
        if is_known and (window is None or self.is_leaf(sub_partition, window)):
            return
        leaves = [path for path in sorted(self.members) if path not in self.below]
        choices = ", ".join(leaves[:5]) + (f" and {len(leaves) - 5} more" if len(leaves) > 5 else "")
        raise InvalidName(f"sub-partition {sub_partition!r}: expected one of {choices}.")

    def window_from(self, sub_partition: str, grain: str, start: datetime) -> Window:
        """Return the window that begins at a moment. Raise InvalidName if no window does.

        A day with several regions may be given by two starts: by the earliest midnight of the regions, or by the
        midnight in the sub-partition's own zone.
        """
        zone = self.zone_of(sub_partition)
        own = window_of(grain, start, zone)
        near = [window_of(grain, each, zone).key for each in (start, own.end, own.start - timedelta(minutes=1))]
        candidates = [self.window(sub_partition, grain, key) for key in near]
        matching = next((each for each in [*candidates, own] if each.start == start), None)
        if matching is None:
            raise InvalidName(
                f"start: found {start:%Y-%m-%dT%H:%M:%SZ}, expected the start of a window, such as "
                f"{candidates[0].start:%Y-%m-%dT%H:%M:%SZ}."
            )
        return matching

    def window(self, sub_partition: str, grain: str, key: str) -> Window:
        """Return the window with this key, or raise InvalidName. A day with several regions spans all their days."""
        if grain not in self.grains:
            raise InvalidName(f"grain {grain!r}: expected one of {', '.join(self.grains)}.")
        own = window_at(grain, key, self.zone_of(sub_partition))
        days = [self.window(path, DAY, key) for path in self.children(sub_partition, own)] if grain == DAY else []
        starts, ends = [day.start for day in days], [day.end for day in days]
        return Window(min(starts, default=own.start), max(ends, default=own.end), grain, key)


def batch_date(window: Window, zone: str) -> date:
    """Return the local date of a window. A day window has its own date in any zone."""
    return date.fromisoformat(window.key if window.grain == DAY else window_of(DAY, window.start, zone).key)


def above(sub_partition: str) -> str:
    """Return the parent of a sub-partition; '' is the whole dataset."""
    return sub_partition.rpartition("/")[0]


def dated(new: Tracked, recorded: Tracked, reported: Collection[str], today: Callable[[str, Life], date]) -> Tracked:
    """Add dates to a declaration, so that a sub-partition that joins or leaves does not change the past.

    Args:
        new: The declaration.
        recorded: The declaration in the ledger, with the dates that were added before.
        reported: The sub-partitions that have counts of their own. Their new children are expected from today on, so
            that past windows stay complete.
        today: A function that returns, for a sub-partition, the first batch date to which a change made now applies.
    """
    members = {
        path: _joined(
            life,
            recorded.members.get(path),
            today(path, life),
            is_new=bool(recorded.members) or above(path) in reported,
        )
        for path, life in new.members.items()
    }
    for path, life in recorded.members.items():
        if path not in new.members:
            last_day = today(path, life)
            members[path] = replace(life, until=min(life.until or last_day, last_day))
    return replace(new, members=members)


def _joined(life: Life, before: Life | None, today: date, *, is_new: bool) -> Life:
    """Return when a sub-partition is expected: by its declared dates, completed by its dates in the ledger (`before`).

    If `is_new` is True, a sub-partition that the ledger does not have yet is expected from today on.
    """
    if before is None:
        return replace(life, since=life.since or today) if is_new else life
    if before.until is not None and life.until is None and life.since is None:
        # Two running versions of a project may remove and add a sub-partition in turn. So undo a removal of today.
        is_same_day = before.until >= today
        return replace(replace(before, until=None) if is_same_day else before.again(today), zone=life.zone)
    return replace(life, since=life.since or before.since, past=before.past)


def text_of(sub_partition: Mapping[str, str], levels: tuple[str, ...] = ()) -> str:
    """Return a sub-partition as text: first the `levels` in this order, then other levels by name.

    Raise InvalidName for a name or value that is not possible in such a text.
    """
    order = {name: at for at, name in enumerate(levels)}
    names = sorted(sub_partition, key=lambda name: (order.get(name, len(order)), name))
    for name in names:
        check_segment(f"{name}={sub_partition[name]}", "sub-partition")
        if "=" in name or "/" in sub_partition[name]:
            raise InvalidName(f"sub-partition {name!r}: expected a name without '=' and a value without '/'.")
    return "/".join(f"{name}={sub_partition[name]}" for name in names)


def mapping_of(text: str) -> dict[str, str]:
    """Parse a sub-partition into its levels and values."""
    return {name: value for name, _, value in (each.partition("=") for each in text.split("/") if each)}

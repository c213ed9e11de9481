"""Rules for a window's completeness: ingested records against the counts of its sources, in integers.

Source: "Data Dependency Driven Orchestration": "the stats of ingested files are >= 99.995% of its source".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.offset_comparison import OffsetProblems
from feed_assets.core.typed import typed
from feed_assets.core.windows import check_grains, zone_of

GRAINS = ("5min", "10min", "hour", "day")
RATIO = "99.995%"
AS_EXPECTED = OffsetProblems()
"""The result for a window without offset problems, or without known offsets."""
INGESTED = ""
"""The tier of ingested records: every other tier is a source."""


class WindowState(StrEnum):
    """The state of a window.

    Attributes:
        OPEN: Not complete (yet).
        COMPLETE: All data are there, or a person has accepted the window as it is.
        COMPLETE_WITH_ISSUE: All data are there, but something is wrong with them, such as duplicates.
        INVALID: All data are there, but a check has failed.
        BACKFILLING: The data of the window are being made again.
        BACKFILLED: The data were made again, and all are there. The window stays backfilled when its checks pass.
    """

    OPEN = "open"
    COMPLETE = "complete"
    COMPLETE_WITH_ISSUE = "complete_with_issue"
    INVALID = "invalid"
    BACKFILLING = "backfilling"
    BACKFILLED = "backfilled"


DONE = frozenset({WindowState.COMPLETE, WindowState.COMPLETE_WITH_ISSUE, WindowState.BACKFILLED})
"""The states of a window whose data are all there."""


@typed
@dataclass(frozen=True)
class Completeness:
    """Rules for when the windows of a dataset are complete, after "Data Dependency Driven Orchestration".

    Args:
        grains: Sizes of windows: minutes that divide an hour, `hour`, `day`. Counts are reported for windows of the
            smallest size, and the ratio judges only these windows. A larger window is complete when all smaller windows
            in it are complete.
        ratio: The share of the source's records that makes a window complete, such as `99.995%`.
        tiers: The names of the sources whose counts must all be reached; by default every source that reported a count.
        tz: The time zone of the dataset's days. Regions may have their own time zones.

    Raises:
        InvalidDefinition: A value is of a wrong type, the ratio is not a share above 0, a grain is invalid, or a grain
            is not a multiple of the smallest.
    """

    grains: tuple[str, ...] = GRAINS
    ratio: str = RATIO
    tiers: tuple[str, ...] = ()
    tz: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tz", zone_of(self.tz))
        object.__setattr__(self, "grains", check_grains(self.grains, [self.tz]))
        as_fraction(self.ratio)
        if INGESTED in self.tiers:
            raise InvalidDefinition("tiers: found '', expected the names of sources, such as 'kafka'.")


def as_fraction(ratio: str) -> Fraction:
    """Return a ratio exactly: `99.995%` and `0.99995` are 19999/20000. Raise InvalidDefinition for any other text."""
    try:
        share = Fraction(ratio.removesuffix("%").strip()) / (100 if ratio.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise InvalidDefinition(f"ratio {ratio!r}: expected a share above 0 and up to 1, such as '99.995%'.")
    return share


def judge(
    ingested: int,
    sources: Mapping[str, int],
    tiers: tuple[str, ...],
    ratio: Fraction,
    offsets: OffsetProblems = AS_EXPECTED,
) -> WindowState:
    """Return the state of a base window by its counts and offsets alone.

    Args:
        ingested: Records that were ingested; 0 if no part has any.
        sources: Records by tier, for tiers that have reported them.
        tiers: The tiers whose counts must be reached. () means every tier that reported a count. In this case at least
            one tier must report.
        ratio: The share of each tier's records that makes the window complete.
        offsets: The problems of the window's offsets.

    Returns:
        Open while a tier has not reported, too few records were ingested, or some offsets are in no part. Complete with
        an issue if there are duplicates: more records than the largest tier has, or offsets that are in several parts.
        0 of 0 records are complete, because the source has reported 0.
    """
    source_counts = [sources[tier] for tier in tiers or sources if tier in sources]
    is_short = (
        not source_counts
        or len(source_counts) < len(tiers)
        or ingested * ratio.denominator < max(source_counts) * ratio.numerator
    )
    if is_short or offsets.uncovered:
        return WindowState.OPEN
    has_more = ingested > max(source_counts) or offsets.doubled
    return WindowState.COMPLETE_WITH_ISSUE if has_more else WindowState.COMPLETE


def why(
    ingested: int, sources: Mapping[str, int], tiers: tuple[str, ...], offsets: OffsetProblems = AS_EXPECTED
) -> str:
    """Describe the counts of a window, and the problems of its offsets."""
    phrases = (_counts(ingested, sources, tiers), offsets.uncovered, offsets.doubled)
    return "; ".join(each for each in phrases if each)


def _counts(ingested: int, sources: Mapping[str, int], tiers: tuple[str, ...]) -> str:
    if missing := [tier for tier in tiers if tier not in sources]:
        return f"{ingested:,} records, and no count of {', '.join(missing)} yet"
    count_by_tier = {tier: sources[tier] for tier in tiers or sorted(sources) if tier in sources}
    if not count_by_tier:
        return f"{ingested:,} records, and no source has reported its count yet"
    return "; ".join(
        f"{ingested:,} of {each:,} records at {tier}{_share(ingested, each)}" for tier, each in count_by_tier.items()
    )


def _share(ingested: int, expected: int) -> str:
    """Return the share as a percentage with four decimals.

    Further decimals are cut off, because a rounded 99.99499 would look like 99.995.
    """
    if not expected:
        return ""
    share = ingested * 1_000_000 // expected
    return f" ({share // 10_000}.{share % 10_000:04d} %)"


def combined(states: Mapping[WindowState, int], expected: int) -> WindowState:
    """Return the state of a larger window. `states` has the number of its children by state.

    The window is open unless all `expected` children are done and none is invalid.
    """
    if states.get(WindowState.INVALID) or sum(states.get(each, 0) for each in DONE) < expected:
        return WindowState.OPEN
    return WindowState.COMPLETE_WITH_ISSUE if states.get(WindowState.COMPLETE_WITH_ISSUE) else WindowState.COMPLETE

"""Profiles: a partition's measures, compared with earlier partitions by median and median absolute deviation.

Source: "Data Dependency Driven Orchestration": "the preliminary data profiling job detects anomaly for hour 15, it then
triggers a more comprehensive data quality job". A few unusual partitions hardly change a median and its deviation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from feed_assets.core.argument_types import BASELINE, Aggregate, BaselineText, Deviations, Name
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.typed import typed

PROFILE = "profile"
"""The name of the check that reports measures which are far from their baseline ("off")."""

ENOUGH = 7
"""Smallest number of partitions in a baseline. With fewer partitions the deep checks always run."""

STEPS = {"same hours": timedelta(days=1), "same weekdays": timedelta(weeks=1), "partitions": None}
"""Time between the starts of a baseline's partitions. None means the partitions directly before."""

Measures = Mapping[str, float]
"""Numbers by the names of measures. A NULL measure is missing."""


def _rows() -> Mapping[str, str]:
    return {"rows": "count(1)"}


@typed
@dataclass(frozen=True)
class Profile:
    """Measures of each partition and their baseline. They decide whether deep checks run.

    Args:
        measures: Numeric SQL aggregates of the rows, by name. The default is `rows`, which is `count(1)`.
        baseline: The earlier partitions that a partition is compared with. `28 same hours`: those that began at the
            same time on the 28 days before, by the clock of the partition's time zone. `7 same weekdays`: those that
            began 1 to 7 weeks before. `28 partitions`: the 28 partitions directly before. At least 7 partitions are
            needed, because fewer do not show what is usual.
        off_by: How many median absolute deviations a measure may lie away from the median of the baseline.

    Raises:
        InvalidDefinition: A value is of a wrong type, the baseline is malformed or too short, or there is no measure.
    """

    measures: Mapping[Name, Aggregate] = field(default_factory=_rows)
    baseline: BaselineText = "28 same hours"
    off_by: Deviations = 4

    def __post_init__(self) -> None:
        if not self.measures:
            raise InvalidDefinition(
                "Profile(): `measures` is empty: expected one or more, such as {'rows': 'count(1)'}."
            )
        if self.partitions < ENOUGH:
            raise InvalidDefinition(
                f"Profile(): `baseline` is '{self.baseline}', and with fewer than {ENOUGH} partitions nothing is ever "
                f"compared: expected {ENOUGH} or more, such as '28 same hours'. Give checks without a profile to run "
                "them always."
            )

    @property
    def partitions(self) -> int:
        """Return the greatest number of earlier partitions with which a partition is compared."""
        return int(self.baseline.split()[0])

    @property
    def step(self) -> timedelta | None:
        """Return the time between the starts of the baseline's partitions.

        Return None if the baseline is the partitions directly before.
        """
        match = BASELINE.fullmatch(self.baseline)
        return STEPS[match[2]] if match else None


@dataclass(frozen=True)
class MeasureComparison:
    """A measure of a partition, compared with its baseline.

    `baseline_count`, `median` and `deviation` (the median absolute deviation) describe the baseline. A `value` of None
    is NULL. If the baseline has fewer than `ENOUGH` partitions, the measure is never off.
    """

    measure: str
    value: float | None
    baseline_count: int
    median: float | None
    deviation: float | None
    is_off: bool

    @property
    def is_enough(self) -> bool:
        """Return whether the baseline has enough earlier partitions to judge this measure."""
        return self.baseline_count >= ENOUGH

    @property
    def phrase(self) -> str:
        """Describe the value and its baseline."""
        value_text = "NULL" if self.value is None else f"{self.value:,.6g}"
        if not self.is_enough or self.median is None:
            return (
                f"{self.measure} is {value_text}, with {self.baseline_count} of {ENOUGH} partitions to compare it with"
            )
        usual = f"the median of {self.baseline_count} is {self.median:,.6g}, their deviation {self.deviation:,.6g}"
        return f"{self.measure} is {value_text}: {usual}"


def compare(profile: Profile, measures: Measures, baseline: Sequence[Measures]) -> tuple[MeasureComparison, ...]:
    """Compare each measure of a partition with the same measure of earlier partitions, which are its baseline."""
    return tuple(_compared(name, measures.get(name), baseline, profile.off_by) for name in profile.measures)


def _compared(name: str, value: float | None, baseline: Sequence[Measures], off_by: float) -> MeasureComparison:
    baseline_values = [each[name] for each in baseline if name in each]
    if not baseline_values:
        return MeasureComparison(name, value, 0, None, None, is_off=False)
    usual = median(baseline_values)
    deviation = median(abs(each - usual) for each in baseline_values)
    # If all values of the baseline are equal, the deviation is 0, and any other value is off. NULL is off if the
    # baseline has no NULL.
    is_off = len(baseline_values) == len(baseline) if value is None else abs(value - usual) > off_by * deviation
    return MeasureComparison(
        name, value, len(baseline_values), usual, deviation, is_off=is_off and len(baseline_values) >= ENOUGH
    )


def asks_for_more(compared: Sequence[MeasureComparison]) -> bool:
    """Return whether the deep checks must run: a measure is off, or the baseline is too short."""
    return any(each.is_off or not each.is_enough for each in compared)


def in_words(compared: Sequence[MeasureComparison]) -> str:
    """Describe the measures that are far from their baseline.

    If there are none, describe the measures whose baseline has too few partitions.
    """
    off = [each.phrase for each in compared if each.is_off]
    unknown = [each.phrase for each in compared if not each.is_enough]
    return "; ".join(off or unknown) or "nothing is off"

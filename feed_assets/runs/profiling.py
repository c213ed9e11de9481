"""The profile of a partition: its measures, and the deep checks that run if a measure is unusual."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.profiles import MeasureComparison, Measures, asks_for_more, compare, in_words
from feed_assets.runs.checks import PROFILED, Audited
from feed_assets.runs.outcomes import CheckResult, aggregates, results, run_checks, wanted_of
from feed_assets.runs.recipe import Recipe

MEASURE, FIGURE = "measure:", "figure:"
"""Prefixes of the names of measures and key figures. They end with a colon, which names of checks cannot contain."""

NOTHING_KNOWN: Mapping[str, Any] = MappingProxyType({})
"""The default of `observed`: no aggregates were computed while writing."""

Found = tuple[tuple[CheckResult, ...], Measures, Measures]
"""The results of all checks, the measures, and the key figures."""


def audit(
    recipe: Recipe,
    audited: Audited,
    baseline: Sequence[Measures],
    *,
    observed: Mapping[str, Any] = NOTHING_KNOWN,
    is_suspect: bool = False,
) -> Found:
    """Run the checks, and the deep checks if the profile requires them.

    `observed` has aggregates that were computed while writing. One job computes all other aggregates.
    """
    remaining = {name: sql for name, sql in sql_aggregates(recipe).items() if name not in observed}
    counts = {**observed, **(aggregates(audited, remaining) if remaining else {})}
    measures, figures = _numbers(recipe, MEASURE, counts), _numbers(recipe, FIGURE, counts)
    checks = results(recipe.checks, counts, audited)
    deep = judged(recipe, measures, baseline, lambda: run_checks(recipe.deep_checks, audited), is_suspect=is_suspect)
    return checks + deep, measures, figures


def sql_aggregates(recipe: Recipe) -> dict[str, str]:
    """Return all SQL aggregates of a dataset's rows by name, for one job."""
    measures = _named(MEASURE, recipe.profile.measures if recipe.profile else {})
    return wanted_of(recipe.checks) | measures | _named(FIGURE, recipe.figures)


def _named(kind: str, sql_by_name: Mapping[str, str]) -> dict[str, str]:
    return {f"{kind}{name}": sql for name, sql in sql_by_name.items()}


def _numbers(recipe: Recipe, kind: str, counts: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers whose names begin with `kind`, keyed by the names without this prefix. Leave out NULLs."""
    numbers = {name.removeprefix(kind): _number(recipe, name, counts) for name in counts if name.startswith(kind)}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(recipe: Recipe, name: str, counts: Mapping[str, Any]) -> float | None:
    """Return a measured number; None if it is NULL or not finite. Raise InvalidDefinition if it is not a number."""
    value = counts[name]
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        raise InvalidDefinition(
            f"{recipe.feed}: the {name.replace(':', ' ')} is {value!r}: expected a number. Correct its SQL."
        ) from None
    return number if number is not None and math.isfinite(number) else None


def judged(
    recipe: Recipe,
    measures: Measures,
    baseline: Sequence[Measures],
    deep_checks: Callable[[], Sequence[CheckResult]],
    *,
    is_suspect: bool,
) -> tuple[CheckResult, ...]:
    """Return the results of the profile, if there is one, and of the deep checks. Call `deep_checks` only if needed.

    If a deep check failed the last time, all deep checks run again, because a normal profile does not disprove an
    earlier finding.
    """
    if recipe.profile is None:
        return ()
    compared = compare(recipe.profile, measures, baseline)
    off = sum(each.is_off for each in compared)
    profile = CheckResult(PROFILED, off == 0, off, profile_rows(compared), finding=in_words(compared))
    if is_suspect or asks_for_more(compared):
        return (profile, *deep_checks())
    return (profile, *(CheckResult(each, True, 0, finding="not run: nothing is off") for each in recipe.deep_checks))


def profile_rows(compared: Sequence[MeasureComparison]) -> tuple[dict[str, Any], ...]:
    """Return a profile as rows: the value of each measure, and its usual values."""
    return tuple(
        {
            "measure": each.measure,
            "found": each.value,
            "median": each.median,
            "mad": each.deviation,
            "is_anomaly": each.is_off,
        }
        for each in compared
    )

"""Checks of one partition's data, run on the written rows before they are published.

A check is a value that contains SQL. So a project can declare checks without starting Spark.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from feed_assets.core.argument_types import Name, Share, as_share
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.profiles import PROFILE
from feed_assets.core.schemas import quoted
from feed_assets.core.typed import typed
from feed_assets.runs.evidence import REJECTED, Audited, Evidence, missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    DataFrame = Any  # These types are evaluated when a dataset is declared, which must not load Spark.

__all__ = ["Audited", "Check", "Evidence", "accounted", "not_empty", "not_null", "references", "unique", "within"]

Severity = Literal["ERROR", "WARN"]


@typed
@dataclass(frozen=True)
class Check:
    """One rule. It computes a number, by an SQL aggregate of the written rows or by a measure, and judges it.

    Args:
        name: Its name: letters, digits and `_`.
        description: The rule in words.
        passes: A function that returns whether the number is right.
        aggregate: An SQL aggregate of the written rows; NULL counts as 0.
        measure: A function that computes the number from the data of a run, `checks.Audited`.
        offending: A function that returns the written rows that break the rule. Users see a sample of them.
        inputs: The names of the dataset's inputs that the measure reads.
        finding: A text for the result, in which `{found}` stands for the number and `{rows}` for the number of written
            rows.
        severity: The effect of a failure: with `ERROR` nothing is published, with `WARN` the partition is published
            and marked. It may be a function of the number.
        evidence: Rows that users see after a failure, in place of the dataset's rows (`checks.Evidence`).

    Raises:
        InvalidDefinition: A value has a wrong type, the name is invalid, or both or neither of `aggregate` and
            `measure` are given.
    """

    name: Name
    description: str
    passes: Annotated[
        Callable[[float], bool], Example("lambda found: found == 0", "a function from the number to True or False")
    ]
    aggregate: str | None = None
    measure: Callable[[Audited], float] | None = None
    offending: "Callable[[DataFrame], DataFrame] | None" = None
    inputs: tuple[str, ...] = ()
    finding: str = "found {found:g}"
    severity: Severity | Callable[[float], str] = "ERROR"
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        if (self.aggregate is None) == (self.measure is None):
            raise InvalidDefinition(
                f"check {self.name} has {'both' if self.aggregate else 'neither'} of `aggregate` and `measure`: "
                "expected exactly one, which computes its number."
            )
        try:
            self.finding.format(found=0.0, rows=0)
        except (LookupError, ValueError) as error:
            why = f"check {self.name}: `finding` is {self.finding!r} ({type(error).__name__}: {error})"
            raise InvalidDefinition(f"{why}, expected a text with '{{found}}' or '{{rows}}'.") from None

    def warn(self) -> "Check":
        """Return the same check with the severity `WARN`: after a failure the data are published and marked.

        Returns:
            The changed check.
        """
        return replace(self, severity="WARN")

    def severity_of(self, number: float) -> str:
        """Return the severity for a number that does not pass.

        Args:
            number: The number.

        Returns:
            `ERROR` or `WARN`.

        Raises:
            InvalidDefinition: The check's severity function returns something else.
        """
        severity = self.severity(number) if callable(self.severity) else self.severity
        if severity not in ("ERROR", "WARN"):
            raise InvalidDefinition(
                f"check {self.name}: its severity for {number:g} is {severity!r}, expected 'ERROR' or 'WARN'."
            )
        return severity


Checks = Sequence[Annotated[Check, Example("checks.not_empty()", "checks")]]


@dataclass(frozen=True)
class Unique(Check):
    """A check that no two rows have the same values in `keys`.

    Its aggregate counts the rows that repeat the keys of other rows.
    """

    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class References(Check):
    """A check of `references`. It judges the share of the child's rows whose key the parent has.

    `keys` are child, parent and column. One Spark job computes the shares for all such checks.
    """

    keys: tuple[str, str, str] = ("", "", "")

    def __post_init__(self) -> None:
        """Accept a check without aggregate and measure, because `runs.outcomes` computes its share of rows."""


PROFILED = Check(
    PROFILE,
    "no measure may be off from those of its baseline",
    passes=lambda count: count == 0,
    aggregate="0",
    severity="WARN",
)
"""The check for a dataset's profile.

Its number is the number of unusual measures, which `runs.profiling` computes.
"""


def _name(kind: str, *columns: str) -> str:
    if not columns:
        raise InvalidDefinition(f"checks.{kind}() was given no column: expected at least one.")
    return re.sub(r"\W", "_", "_".join((kind, *columns)), flags=re.ASCII)


def _is_zero(number: float) -> bool:
    return number == 0


def _no_row(name: str, description: str, predicate: str, wrong: str) -> Check:
    """Return a check that passes if no row satisfies an SQL predicate. `wrong` describes a row that satisfies it."""

    def offending(written: "DataFrame") -> "DataFrame":
        return written.where(predicate)

    return Check(name, description, _is_zero, f"count_if({predicate})", offending=offending, finding=_rows(wrong))


def _rows(wrong: str) -> str:
    braces = str.maketrans({"{": "{{", "}": "}}"})
    return f"{wrong.translate(braces)}: {{found:g}} of {{rows}} rows"


@typed
def not_empty() -> Check:
    """Check that the update holds at least one row.

    Returns:
        The check `not_empty`.
    """
    return Check(
        "not_empty",
        "the update must hold at least one row",
        lambda count: count > 0,
        "count(1)",
        finding="found {found:g} rows",
        evidence=REJECTED,
    )


@typed
def not_null(*columns: str) -> Check:
    """Check that no row has NULL in any of these columns.

    Args:
        columns: The columns, at least one.

    Returns:
        The check `not_null_<columns>`.

    Raises:
        InvalidDefinition: A value has a wrong type, or there is no column.
    """
    predicate = " OR ".join(f"{quoted(column)} IS NULL" for column in columns)
    return _no_row(_name("not_null", *columns), f"no row may lack {' or '.join(columns)}", predicate, "lacking it")


@typed
def within(column: str, low: float, high: float) -> Check:
    """Check that no value of a column is NULL or outside of `[low, high]`.

    Args:
        column: The column.
        low: The least value.
        high: The greatest value.

    Returns:
        The check `within_<column>`.

    Raises:
        InvalidDefinition: A value has a wrong type, or the least is above the greatest.
    """
    if low > high:
        raise InvalidDefinition(f"checks.within({column!r}, {low}, {high}): expected `low` first.")
    predicate = f"NOT coalesce({quoted(column)} BETWEEN {low} AND {high}, false)"
    return _no_row(_name("within", column), f"{column} must be in [{low}, {high}]", predicate, "not in it")


@typed
def unique(*columns: str) -> Check:
    """Check that no two rows have the same values in these columns; NULL equals NULL.

    Args:
        columns: The columns, at least one.

    Returns:
        The check `unique_<columns>`.

    Raises:
        InvalidDefinition: A value has a wrong type, or there is no column.
    """

    def repeated(written: "DataFrame") -> "DataFrame":
        counted = written.groupBy(*map(quoted, columns)).count()
        # Rename the column `count`, because a column of the data may have this name.
        return counted.toDF(*columns, "_rows").where("_rows > 1")

    aggregate = f"count(1) - count(DISTINCT struct({', '.join(map(quoted, columns))}))"
    description = f"no two rows may share {', '.join(columns)}"
    name, finding = _name("unique", *columns), _rows("repeated")
    return Unique(name, description, _is_zero, aggregate, offending=repeated, finding=finding, keys=columns)


@typed
def references(child: str, parent: str, on: str, at_least: Share = 1.0) -> Check:
    """Check that at least a share of the rows of one input have their key in another input.

    An input without rows passes.

    Args:
        child: The input whose rows are counted.
        parent: The input that has the keys.
        on: The column of the key, in both.
        at_least: The share, 0.95 or `95%`.

    Returns:
        The check `<child>_in_<parent>`.

    Raises:
        InvalidDefinition: A value has a wrong type, or `at_least` is not a share.
    """
    needed = as_share(at_least)

    description = f"at least {needed:.1%} of the rows of {child} must have their {on} in {parent}"
    name = _name(child, "in", parent)
    return References(
        name,
        description,
        lambda share: share >= needed,
        inputs=(child, parent),
        finding="found {found:.1%}",
        evidence=missing(child, parent, on),
        keys=(child, parent, on),
    )


@typed
def accounted() -> Check:
    """Check that input rows = clean rows + rejected rows, over all inputs, so that no row is lost.

    Returns:
        The check `accounted`.
    """

    def lost(audited: Audited) -> float:
        count = audited.records_read or (lambda: sum(frame.count() for frame in audited.read.values()))
        return count() - audited.records - audited.rejected

    return Check(
        "accounted",
        "rows in must equal clean rows + rejected rows",
        _is_zero,
        measure=lost,
        finding="differing by {found:g} rows",
    )

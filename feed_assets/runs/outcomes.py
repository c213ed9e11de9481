"""Outcomes of checks. One job computes the SQL aggregates of all checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feed_assets.core.errors import UpdateAbandoned
from feed_assets.core.schemas import quoted
from feed_assets.ledger.quality import FAILED, PASSED, WARNED, CheckState
from feed_assets.runs.checks import Check, References
from feed_assets.runs.evidence import Audited, shares
from feed_assets.runs.users_code import naming_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = "_records"

ROWS_PER_SAMPLE = 5
"""Greatest number of offending rows that a failed check shows."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check.

    Attributes:
        check: The check.
        passed: True if it passed.
        number: The number that the check judged.
        sample: Up to five rows that break the rule, or that show the reason.
        rows: The number of written rows.
        finding: A text for the outcome. If given, it replaces the text that `check.finding` makes.
        explanation: Words that explain the sample, if its rows are not the dataset's own.
        rejected: The number of rejected records.
    """

    check: Check
    passed: bool
    number: float
    sample: tuple[dict[str, Any], ...] = ()
    rows: int = 0
    finding: str | None = None
    explanation: str = ""
    rejected: int = 0

    @property
    def severity(self) -> str:
        """Return the severity for this number if the check did not pass: `ERROR` or `WARN`."""
        return self.check.severity_of(self.number)

    @property
    def blocks(self) -> bool:
        """Return whether this check's failure prevents the publication of the data."""
        return not self.passed and self.severity == "ERROR"

    @property
    def state(self) -> CheckState:
        """Return the state of the check to report for the partition."""
        state = PASSED if self.passed else FAILED if self.blocks else WARNED
        return CheckState(state, self.message)

    @property
    def message(self) -> str:
        """Return the outcome of the check in words."""
        finding = self.finding or self.check.finding.format(found=self.number, rows=self.rows)
        return "; ".join(filter(None, (f"{self.check.name}: {self.check.description}", finding, self.explanation)))


def run_checks(checks: Sequence[Check], audited: Audited) -> tuple[CheckResult, ...]:
    """Run every check on the written rows.

    Raise UpdateAbandoned if the number of rows read back differs from the number written.
    """
    counts = aggregates(audited, wanted_of(checks))
    return results(checks, counts, audited)


def wanted_of(checks: Sequence[Check]) -> dict[str, str]:
    """Return the SQL aggregates of some checks, by name."""
    return {check.name: check.aggregate for check in checks if check.aggregate}


def aggregates(audited: Audited, sql_by_name: Mapping[str, str]) -> dict[str, Any]:
    """Compute SQL aggregates of the written rows in one job. Raise UpdateAbandoned if rows are missing or added."""
    selected = [f"{aggregate} AS {quoted(name)}" for name, aggregate in sql_by_name.items()]
    values = audited.written.selectExpr(f"count(1) AS {RECORDS}", *selected).collect()[0].asDict()
    if values[RECORDS] != audited.records:
        raise UpdateAbandoned(
            f"{values[RECORDS]} rows were read back where {audited.records} were written: expected the same number. "
            "Another process writes under this update. Start the run again."
        )
    return values


def results(checks: Sequence[Check], counts: Mapping[str, Any], audited: Audited) -> tuple[CheckResult, ...]:
    """Return the outcome of each check from the computed aggregates."""
    keys = {check.name: check.keys for check in checks if isinstance(check, References)}
    values = {**counts, **shares(audited, keys)}
    return tuple(_result(check, values, audited) for check in checks)


def _result(check: Check, counts: Mapping[str, Any], audited: Audited) -> CheckResult:
    with naming_check(check.name):
        number = float(check.measure(audited) if check.measure else counts[check.name] or 0)
        passed = check.passes(number)
        if passed:
            return CheckResult(check, passed, number, rows=audited.records)
        sample = _sample(_offending(check, audited))
        explanation = check.evidence.told(audited, sample) if check.evidence else ""
    return CheckResult(
        check, passed, number, sample, audited.records, explanation=explanation, rejected=audited.rejected
    )


def _offending(check: Check, audited: Audited) -> "DataFrame | None":
    if check.evidence:
        return check.evidence.rows(audited)
    return check.offending(audited.written) if check.offending else None


def _sample(frame: "DataFrame | None") -> tuple[dict[str, Any], ...]:
    rows = frame.limit(ROWS_PER_SAMPLE).collect() if frame is not None else ()
    return tuple(row.asDict(recursive=True) for row in rows)

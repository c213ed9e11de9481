"""`python -m benchmarks.gate [--store]`: measure ten quick cases, and fail if one is above 1.5 times its stored ratio.

Ratios are of CPU seconds, those of child processes included: they hardly depend on how busy the machine is.
"""

import subprocess
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from os import cpu_count, environ
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import gettempdir
from time import perf_counter, process_time
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter

from benchmarks import cpu_of_children, run

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_name("ratios.json")
CASES = {
    "definitions": 3,
    "latest-1000": 60,
    "late": 5,
    "datasets-10": 5,
    "record": 5,
    "state-rollup": 5,
    "receive-10": 5,
    "replicate": 5,
    "loads-duckdb-100k": 3,
    "transforms": 3,
}
"""Cases of the gate with their numbers of rounds. The last one starts a JVM, which lives on until the gate ends."""
BOUND = 1.5
"""A median above this multiple of the stored ratio is a regression."""
TRIES = 3
"""A case above its bound is measured again, up to so many times in all; the smallest median counts."""

Measure = Callable[[str], float]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Row(BaseModel, extra="forbid"):
    """Ratios of one version: a tag, or a commit without one."""

    version: str
    commit: str
    date: date
    cpus: int
    ratios: dict[str, Ratio]


ROWS = TypeAdapter(list[Row])


@dataclass(frozen=True)
class Verdict:
    """Smallest median of one case beside its stored ratio."""

    case: str
    ratio: float
    stored: float

    @property
    def bound(self) -> float:
        """Return the largest ratio that passes."""
        return BOUND * self.stored

    @property
    def is_met(self) -> bool:
        """Return True if the case is within its bound."""
        return self.ratio <= self.bound

    def __str__(self) -> str:
        figures = f"{self.ratio:9.2f}{self.stored:9.2f}{self.bound:9.2f}"
        return f"{self.case:<20}{figures}  {'ok' if self.is_met else 'REGRESSION'}"


HEADER = f"{'case':<20}{'ratio':>9}{'stored':>9}{'bound':>9}  verdict"


def judge(case: str, stored: float, measure: Measure) -> Verdict:
    """Measure one case until it is within its bound, at most `TRIES` times."""
    best = Verdict(case, measure(case), stored)
    for _ in range(TRIES - 1):
        if best.is_met:
            break
        best = Verdict(case, min(best.ratio, measure(case)), stored)
    return best


def stored_ratios(rows: Sequence[Row]) -> Mapping[str, float]:
    """Return the newest stored ratios. Raise ValueError unless they are those of exactly the cases of the gate."""
    if not rows:
        raise ValueError("found no stored ratios: store some by `make bench-gate STORE=1`")
    stored = rows[-1].ratios
    if differences := sorted(stored.keys() ^ CASES.keys()):
        names = ", ".join(f"{name} ({'unknown' if name in stored else 'missing'})" for name in differences)
        raise ValueError(f"the stored ratios of {rows[-1].version} are not those of the ten cases: {names}")
    return stored


def read(path: Path = STORED) -> list[Row]:
    """Return the stored rows, the newest last."""
    return ROWS.validate_json(path.read_bytes())


def check(rows: Sequence[Row], measure: Measure) -> Iterator[Verdict]:
    """Yield the verdict of each case as soon as it is measured."""
    for case, stored in stored_ratios(rows).items():
        yield judge(case, stored, measure)


def added(rows: Sequence[Row], row: Row) -> list[Row]:
    """Return the rows with a new one, which replaces that of the same version and comes last."""
    return [*(other for other in rows if other.version != row.version), row]


def measured(measure: Measure) -> Row:
    """Measure each case `TRIES` times. Return the medians as the row of this version."""
    ratios = dict[str, float]()
    for case in CASES:
        ratios[case] = round(median(measure(case) for _ in range(TRIES)), 3)
        print(f"{case:<20}{ratios[case]:9.2f}", flush=True)
    commit = _git("rev-parse", "--short=8", "HEAD")
    version = _git("describe", "--tags", "--always", "--dirty", "--abbrev=8")
    return Row(version=version, commit=commit, date=datetime.now(UTC).date(), cpus=cpu_count() or 1, ratios=ratios)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S607


class Cpu:
    """Clock of the CPU seconds of this process and its children, without those of its own readings.

    It is exact but for children that live on (10 ms). A reading walks through /proc, longer than a small case takes.
    """

    def __init__(self) -> None:
        self._of_readings = 0.0

    def __call__(self) -> float:
        """Return the CPU seconds so far."""
        start, ended = process_time(), getrusage(RUSAGE_CHILDREN)
        total = start - self._of_readings + ended.ru_utime + ended.ru_stime + cpu_of_children()
        self._of_readings += process_time() - start
        return total


def cpu_ratio(case: str) -> float:
    """Return the median ratio of a case and its floor, by CPU unless the case has a clock of its own."""
    from benchmarks.catalogue import BENCHMARKS

    benchmark = next(each for each in BENCHMARKS if each.name == case)
    clock = Cpu() if benchmark.clock is perf_counter else benchmark.clock
    with benchmark.prepare() as pair:
        return median(run(pair, CASES[case], clock).ratios)


def gate(measure: Measure, path: Path = STORED) -> int:
    """Print one line for each case. Return 0 if all are within their bounds, 1 otherwise."""
    print(HEADER, flush=True)
    verdicts = list[Verdict]()
    for verdict in check(read(path), measure):
        print(verdict, flush=True)
        verdicts.append(verdict)
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


def main() -> None:
    """Run the gate, or store the ratios of this version."""
    from benchmarks.history import write
    from feed_assets.cli import collect_rarely
    from feed_assets.spark.scratch import LOCAL_DIRS

    parser = ArgumentParser(prog="python -m benchmarks.gate", description="Ten cases against their stored ratios.")
    parser.add_argument("--store", action="store_true", help="Store the ratios of this version, and write its page.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    collect_rarely()  # As every command of feed_assets does.
    environ.setdefault(LOCAL_DIRS, gettempdir())
    if not options.store:
        raise SystemExit(gate(cpu_ratio))
    rows = added(read() if STORED.exists() else [], measured(cpu_ratio))
    STORED.write_bytes(ROWS.dump_json(rows, indent=2) + b"\n")
    write(rows)


if __name__ == "__main__":
    main()

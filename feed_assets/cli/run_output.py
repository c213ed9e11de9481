"""Output of `run` and `build` about runs: a line when each one ends, or all of them as JSON at the end."""

import logging
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from feed_assets.cli.progress import Progress
from feed_assets.cli.show import View, terminal_width
from feed_assets.cli.terminal import echo
from feed_assets.cli.traces import are_wanted
from feed_assets.core.errors import ServiceUnavailable
from feed_assets.core.message_words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import dagster as dg

    from feed_assets.orchestration.run_outcomes import Ended

NAMED = 5
"""The most partitions of a kind that are named at the end of a command. Further partitions are only counted."""


class EndedView(View):
    """The end of a run with one partition."""

    run: str
    assets: tuple[str, ...]
    partition: str | None
    succeeded: bool
    rows: int | None
    """The number of rows that the run wrote; None if nothing changed or nothing was published."""
    rejects: int | None
    seconds: float | None
    error: str | None


class UnfinishedView(View):
    """Something that was not built, or could not be done, and why."""

    what: str
    why: str

    @classmethod
    def of(cls, reasons: "Mapping[Any, str]") -> "tuple[UnfinishedView, ...]":
        """Return a view for each entry of `reasons`."""
        return tuple(cls(what=str(subject), why=why) for subject, why in reasons.items())


class RanView(View):
    """Runs of a command, and what remains: not built, failing, undecided, to be retried, or waiting."""

    runs: tuple[EndedView, ...]
    left: tuple[UnfinishedView, ...] = ()
    failing: tuple[UnfinishedView, ...] = ()
    undecided: tuple[UnfinishedView, ...] = ()
    again: tuple[UnfinishedView, ...] = ()
    busy: tuple[UnfinishedView, ...] = ()
    """Partitions that wait for resources of a compute target."""
    waits: tuple[UnfinishedView, ...] = ()
    ticks: int | None = None


@contextmanager
def alerts_once() -> Generator[None]:
    """Leave alerts out of the log if the command's lines already show them. Other channels still get them."""
    from feed_assets import alerts
    from feed_assets.deliveries.delivery_alerts import UNDELIVERED
    from feed_assets.orchestration.ticks.tick import FAILING
    from feed_assets.orchestration.ticks.watch import AUDIT, PERSON, UNDECIDED

    by_lines = (AUDIT, FAILING, PERSON, UNDECIDED, UNDELIVERED)

    def is_news(record: logging.LogRecord) -> bool:
        return str(getattr(record, alerts.ALERT, "")).partition(":")[0] not in by_lines

    logger = logging.getLogger(alerts.__name__)
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


@dataclass
class Teller:
    """The output about runs: how each run ended, as lines for people, or all of it as JSON when the command finishes.

    `check` is called after each run. It raises an error if the command must stop.
    """

    progress: Progress
    check: "Callable[[], None]"
    as_json: bool = False
    runs: list[EndedView] = field(default_factory=list[EndedView])
    _printed: set[str] = field(default_factory=set[str])
    """The errors of runs that were already printed."""
    _problems: "dict[str, Mapping[str, str]]" = field(default_factory=dict[str, "Mapping[str, str]"])
    """The problems of each sensor at its last evaluation."""

    def hear(self, result: "dg.ExecuteInProcessResult") -> None:
        """Call `check`, then print how a run ended.

        Raise ServiceUnavailable if all runs need a service that does not answer.
        """
        from feed_assets.orchestration.run_outcomes import ends_of, outage

        self.check()
        why = outage(result)  # The error below prints an outage once, instead of once for each partition.
        for each in ends_of(result):
            if not (why and each.is_by_outage):
                self._tell(each, result.run_id, job=result.dagster_run.job_name)
        self._trace(result)
        if why:
            raise ServiceUnavailable(why)

    def say(self, line: str) -> None:
        """Print a line for people."""
        self.progress.clear()
        if not self.as_json:
            echo(wrapped(line))

    def say_problems(self, sensor: str, problems: "Mapping[str, str]") -> None:
        """Print on stderr which problems of a sensor are new, have another reason, or are solved."""
        before = self._problems.get(sensor, {})
        self._problems[sensor] = problems
        lines = [f"FAILING {whom}: {first_line(why)}" for whom, why in problems.items() if before.get(whom) != why]
        lines += [f"over    {whom}" for whom in before if whom not in problems]
        for line in lines:
            self.progress.clear()
            echo(wrapped(line), err=True)

    def list(self, word: str, reasons: "Mapping[Any, str]", prefix: str = "") -> None:
        """Print a line for each of a few partitions, with its reason."""
        for whose, why in [*reasons.items()][:NAMED]:
            self.say(f"{word:7} {whose}: {f'{prefix}: ' * bool(prefix)}{self._news(why)}")
        if len(reasons) > NAMED:
            self.say(f"{word:7} and {len(reasons) - NAMED} more")

    def _news(self, why: str) -> str:
        """Return a reason without the error at its end, if the run's `FAILED` line already shows that error."""
        parts = first_line(why).split(": ")
        for begin in range(1, len(parts)):
            if any(": ".join(parts[begin:]) in error for error in self._printed):
                return f"{': '.join(parts[:begin])}: see FAILED above"
        return ": ".join(parts)

    def _tell(self, ended: "Ended", run_id: str, job: str) -> None:
        self.runs.append(EndedView.model_validate({**vars(ended), "run": run_id}))
        self._printed.add(first_line(ended.error))
        self.say(sentence(ended, run_id, job))

    def _trace(self, result: "dg.ExecuteInProcessResult") -> None:
        from feed_assets.orchestration.run_outcomes import trace_of

        if are_wanted() and (trace := trace_of(result)):
            self.progress.clear()
            echo(trace, err=True)


def wrapped(line: str) -> str:
    """Break a long line between words for a terminal. Elsewhere keep it in one line, so that scripts can search it."""
    if (width := terminal_width()) is None:
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def sentence(ended: "Ended", run_id: str, job: str = "") -> str:
    """Return how a run ended with a partition, in words: what it wrote, or why it failed.

    A run without assets, such as of the job `compact`, is named by its job.
    """
    subject = f"{', '.join(ended.assets)} {ended.partition or ''}".rstrip() or f"by the job {job}"
    if ended.succeeded and not ended.assets and ended.rows is None:
        return f"done    {subject}"
    if ended.succeeded:
        return f"built   {subject}: {', '.join(_numbers(ended))}"
    why = ended.error or "it was stopped before its first step"
    return f"FAILED  {subject}: {first_line(why)} (run {run_id})"


def _numbers(ended: "Ended") -> "list[str]":
    numbers = ["unchanged" if ended.rows is None else f"{ended.rows:,} row{'s' * (ended.rows != 1)}"]
    numbers += [] if ended.rejects is None else [f"{ended.rejects:,} reject{'s' * (ended.rejects != 1)}"]
    return numbers if ended.seconds is None else [*numbers, f"{ended.seconds:.1f} s"]

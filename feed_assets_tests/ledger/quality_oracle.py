"""States of windows by the article's rules, derived from the reports alone: a slow oracle that shares no code.

It knows nothing of how the ledger keeps windows: each answer goes through all reports.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

SIZES = {"20min": 20, "hour": 60, "day": 1440}
DAY = datetime(2026, 1, 1, tzinfo=UTC)
LEGAL = {
    "open": {"complete", "complete_with_issue", "invalid"},
    "complete": {"open", "complete_with_issue", "invalid", "backfilling"},
    "complete_with_issue": {"open", "complete", "invalid", "backfilling"},
    "invalid": {"open", "complete", "complete_with_issue", "backfilling"},
    "backfilling": {"backfilled", "open", "invalid", "complete", "complete_with_issue"},
    "backfilled": {"open", "complete_with_issue", "invalid", "backfilling"},
}
"""Legal transitions, written a second time from the issue: the table in the code must agree."""


@dataclass(frozen=True, order=True)
class At:
    """A window: region ('' stands for all regions), grain and start."""

    region: str
    grain: str
    start: datetime

    @property
    def end(self):
        return self.start + timedelta(minutes=SIZES[self.grain])


def once(answer):
    """Compute an answer about a window once, until the next report."""

    def ask(self, at):
        known = self.answers.setdefault(answer.__name__, {})
        if at not in known:
            known[at] = answer(self, at)
        return known[at]

    return ask


@dataclass
class Oracle:
    """All reports so far."""

    regions: tuple[str, ...] = ()
    parts: dict[tuple[str, str], tuple[int, dict[datetime, int]]] = field(default_factory=dict)
    sources: dict[tuple[str, datetime], int] = field(default_factory=dict)
    checks: dict[tuple[At, str], str] = field(default_factory=dict)
    made_again: dict[At, str] = field(default_factory=dict)
    answers: dict[str, dict[At, object]] = field(default_factory=dict)
    """Answers computed since the last report."""

    @once
    def children(self, at):
        if self.regions and not at.region:
            return [At(region, at.grain, at.start) for region in self.regions]
        names = [*SIZES]
        index = names.index(at.grain)
        if index == 0:
            return []
        step, grain = timedelta(minutes=SIZES[names[index - 1]]), names[index - 1]
        return [At(at.region, grain, at.start + step * n) for n in range((at.end - at.start) // step)]

    def holding(self, at):
        """Return every window that holds this one."""
        found = []
        for region in {at.region, ""}:
            for grain, minutes in SIZES.items():
                start = DAY + timedelta(minutes=minutes) * ((at.start - DAY) // timedelta(minutes=minutes))
                other = At(region, grain, start)
                if other != at and minutes >= SIZES[at.grain]:
                    found.append(other)
        return found

    def has(self, at, state):
        return any(window == at and each == state for (window, _), each in self.checks.items())

    def counts(self, at):
        ingested = sum(
            counts.get(at.start, 0) for (region, _), (_, counts) in self.parts.items() if region == at.region
        )
        return ingested, self.sources.get((at.region, at.start))

    @once
    def is_there(self, at):
        """Return True if all data of the window are present."""
        if self.made_again.get(at) == "backfilling":
            return False
        if below := self.children(at):
            return all(self.is_there(each) for each in below)
        ingested, expected = self.counts(at)
        return expected is not None and ingested * 20000 >= expected * 19999

    @once
    def is_distrusted(self, at):
        """Return True if a check failed, now or before a rerun, and the data are present or being replaced."""
        said = self.has(at, "failed") or self.has(at, "stale")
        return said and (self.made_again.get(at) == "backfilling" or self.is_there(at))

    @once
    def is_bad_below(self, at):
        return any(self.is_distrusted(each) or self.is_bad_below(each) for each in self.children(at))

    @once
    def state(self, at):
        if self.made_again.get(at) == "backfilling":
            return "backfilling"
        if not self.is_there(at):
            return "open"
        if self.has(at, "failed"):
            return "invalid"
        if self.is_bad_below(at):
            return "open"
        if self.has(at, "stale") and self.made_again.get(at) == "backfilled":
            return "backfilled"
        if self.has_issue(at):
            return "complete_with_issue"
        return "backfilled" if self.made_again.get(at) == "backfilled" else "complete"

    def has_issue(self, at):
        if self.has(at, "stale") or any(self.is_distrusted(each) for each in self.holding(at)):
            return True
        if below := self.children(at):
            return any(self.state(each) == "complete_with_issue" for each in below)
        ingested, expected = self.counts(at)
        return ingested > expected

    def settle(self, at_all):
        """Return the states of all windows. A window that is no longer backfilled never becomes so again by itself."""
        self.answers.clear()
        for at in [at for at, state in self.made_again.items() if state == "backfilled"]:
            if self.state(at) != "backfilled":
                del self.made_again[at]
                self.answers.clear()
        found = {at: self.state(at) for at in at_all}
        self.answers.clear()
        return found

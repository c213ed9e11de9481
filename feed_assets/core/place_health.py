"""Rules for when a place is down: its probes fail for a while, or a person says so."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILED_LOOKS, FAILS_FOR = 5, timedelta(minutes=2)
"""Number of failed probes in a row, and the least time from the first to the last, after which a place is down."""

GOOD_LOOKS = 5
"""Number of good probes in a row after which a place that its probes found down is up again."""

LOOK_EVERY = timedelta(seconds=20)
"""Time between two probes of a place."""


@dataclass(frozen=True)
class Health:
    """The state of a place. Times are in UTC.

    `down` is the reason why it gets no runs, since `since`. `down_by` is the person who marked it down, or None if its
    probes did.
    """

    down: str | None = None
    down_by: str | None = None
    since: datetime | None = None
    failures: int = 0
    failing_since: datetime | None = None
    successes: int = 0

    @property
    def why(self) -> str | None:
        """Return why the place gets no runs. Return None if it gets some."""
        if self.down is None:
            return None
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since else ""
        by = f", says {self.down_by}" if self.down_by else ""
        return f"it is down{since} ({self.down}{by})"

    def marked(self, why: str | None, by: str, now: datetime) -> "Health":
        """Return the state after a person has marked the place down, or up with `why=None`."""
        return Health(why, by if why else None, now)

    def after(self, error: str | None, now: datetime) -> "Health":
        """Return the state after a probe, with the error of a failed one.

        A place that a person marked down stays down. One good probe ends a row of failures, and one failure ends a row
        of good ones. So a place whose answers alternate stays as it is.
        """
        if error is None:
            return self._after_success(now)
        failures = self.failures + 1
        since = self.failing_since if self.failing_since and self.failing_since <= now else now
        failing = replace(self, failures=failures, failing_since=since, successes=0)
        if self.down is not None or failures < FAILED_LOOKS or now - since < FAILS_FOR:
            return failing
        return replace(failing, down=f"its blackboard does not answer: {error}", since=now)

    def _after_success(self, now: datetime) -> "Health":
        good = replace(self, failures=0, failing_since=None, successes=self.successes + 1 if self.down else 0)
        is_by_probes = self.down is not None and self.down_by is None
        return Health(since=now) if is_by_probes and good.successes >= GOOD_LOOKS else good

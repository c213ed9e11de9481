"""Tables that a pipeline no longer seems to write, so that consumers would wait for them forever.

Source: "Data Orchestration via Events" (2024), "What if the source system now updates fewer tables?".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import Feed
from feed_assets.core.propagation import Propagation

LEAST = 3
"""Number of consecutive updates that must have missed a table. One failure of the pipeline can explain fewer misses."""


@dataclass(frozen=True)
class Unreachable:
    """A table that its pipeline no longer writes. `last` is the time of its last event (UTC), None if it had none."""

    pipeline: str
    table: Feed
    last: datetime | None

    def __str__(self) -> str:
        last = f"its last event was on {self.last:%Y-%m-%d %H:%M} UTC" if self.last else "it never had an event"
        return (
            f"pipeline {self.pipeline} has skipped {self.table} {LEAST} times or more, {last}: its consumers would "
            "wait forever. Ask its owner, then correct the pipeline's tables or this consumer's inputs."
        )


def unreachable(incomplete: Sequence[Propagation], last: Mapping[Feed, datetime]) -> tuple[Unreachable, ...]:
    """Return the tables that at least `LEAST` updates have missed since their last event."""
    passed: dict[tuple[str, Feed], dict[str, datetime]] = {}
    for each in incomplete:
        for table in each.missing:
            passed.setdefault((each.pipeline, table), {}).setdefault(each.correlation, each.since)
    tables = [
        Unreachable(pipeline, table, last.get(table))
        for (pipeline, table), since in passed.items()
        if len([at for at in since.values() if table not in last or at > last[table]]) >= LEAST
    ]
    return tuple(sorted(tables, key=lambda each: (each.pipeline, each.table)))

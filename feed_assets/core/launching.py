"""Keys by which a repeated run request is recognized, and the pause before the next request."""

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from feed_assets.core.readiness import Verdict

SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=5)
"""Shortest and longest pause between two requests of a partition, while no run of the partition begins."""


PRIORITY = {"dagster/priority": "10"}
"""The priority tag of runs that build new partitions. Runs of history and backfills have 0, Dagster's default.

The tags of a backfill may set another priority.
"""


def run_key(verdict: Verdict, changed: int, requested: int) -> str:
    """Return the key of a run request: consumer, partition, input updates, published update and request number.

    Dagster drops a request with a key that it has seen before, even if that run failed. So the key also has the number
    of the request since the last change. Otherwise a failed run would not be retried, and a roll-back to older inputs
    would not be built.
    """
    inputs = (f"{pin.partition.path}/{pin.update_id}" for pin in sorted(verdict.pins))
    parts = [verdict.output.path, *inputs, str(verdict.published), str(changed), str(requested)]
    return f"{verdict.output.path}#{_digest(parts)}"


def joint_run_key(keys: Sequence[str]) -> str:
    """Return the key of one joint request for these keys. A single key is returned as it is."""
    if len(keys) == 1:
        return keys[0]
    return f"{keys[0].partition('#')[0]} and {len(keys) - 1} more#{_digest(sorted(keys))}"


def wait_after(requested: int) -> timedelta:
    """Return the pause before the next request of the same partition, if no run has begun.

    Pauses double with each request, up to five minutes. `requested` is the number of earlier requests since the
    change that made the partition due.
    """
    return SHORTEST_WAIT * 2**requested if requested < _DOUBLINGS else LONGEST_WAIT


def _digest(parts: Sequence[str]) -> str:
    return sha256("|".join(parts).encode()).hexdigest()[:16]


_DOUBLINGS = (LONGEST_WAIT // SHORTEST_WAIT).bit_length()

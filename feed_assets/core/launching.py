"""The key that makes a run request the same request again, and how soon the next one may come."""

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from feed_assets.core.readiness import Verdict

SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=5)
"""Between two requests of a partition, while no run of it begins."""


def run_key(verdict: Verdict, changed: int, requested: int) -> str:
    """A key of consumer, partition, input update ids, the consumer's published update, and of which request it is.

    Dagster drops a request whose key it has ever seen, failed runs included. A request is one of those since a change
    (by its number in the ledger): a failed run is tried again, also one that the ledger never heard of, and a roll-back
    to older inputs is built.
    """
    inputs = (f"{pin.partition.path}/{pin.update_id}" for pin in sorted(verdict.pins))
    parts = [verdict.output.path, *inputs, str(verdict.published), str(changed), str(requested)]
    return f"{verdict.output.path}#{_digest(parts)}"


def joint_run_key(keys: Sequence[str]) -> str:
    """The key of one request for what has each of these keys: that of a single one is its own."""
    if len(keys) == 1:
        return keys[0]
    return f"{keys[0].partition('#')[0]} and {len(keys) - 1} more#{_digest(sorted(keys))}"


def wait_after(requested: int) -> timedelta:
    """How long after a request the next one of the same partition may come, if no run has begun by then.

    Each time as long again as has passed since the change that made it due, and no more than five minutes. `requested`
    is how many requests had come before since that change.
    """
    return SHORTEST_WAIT * 2**requested if requested < _DOUBLINGS else LONGEST_WAIT


def _digest(parts: Sequence[str]) -> str:
    return sha256("|".join(parts).encode()).hexdigest()[:16]


_DOUBLINGS = (LONGEST_WAIT // SHORTEST_WAIT).bit_length()

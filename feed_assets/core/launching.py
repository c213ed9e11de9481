"""The key that makes a run request the same request again, and only then."""

from hashlib import sha256

from feed_assets.core.readiness import Verdict


def run_key(verdict: Verdict, changed: int, requested: int) -> str:
    """A key of consumer, partition, input update ids, the consumer's published update, and attempt.

    Dagster drops a request whose key it has ever seen, failed runs included. An attempt is one request after one
    change (by its number in the ledger): a failed run is tried again, also one that the ledger never heard of, and a
    roll-back to older inputs is built.
    """
    inputs = (f"{pin.partition.path}/{pin.update_id}" for pin in sorted(verdict.pins))
    parts = [verdict.output.path, *inputs, str(verdict.published), str(changed), str(requested)]
    return f"{verdict.output.path}#{sha256('|'.join(parts).encode()).hexdigest()[:16]}"

"""The key that makes a run request the same request again, and only then."""

from hashlib import sha256

from feed_assets.core.readiness import Verdict


def run_key(verdict: Verdict) -> str:
    """A key of consumer, partition, input update ids, the consumer's published update, and attempt.

    Dagster drops a request whose key it has ever seen, failed runs included: the attempt has a failed run tried
    again, the published update has a roll-back to older inputs built.
    """
    inputs = (f"{pin.partition.path}/{pin.update_id}" for pin in sorted(verdict.pins))
    parts = [verdict.output.path, *inputs, str(verdict.published), str(verdict.attempt)]
    return f"{verdict.output.path}#{sha256('|'.join(parts).encode()).hexdigest()[:16]}"

"""Builds that were using the shared Spark of `feed-assets ui` when this Spark ended."""

from collections.abc import Collection

from feed_assets.core.attempts import ABANDONED, FAILED
from feed_assets.core.errors import SparkDied
from feed_assets.ledger import runs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.runs import RUNNING, Run
from feed_assets.runs.reconcile import finish
from feed_assets.runs.services import Services


def builds_on(ledger: Ledger, cluster: str) -> tuple[Run, ...]:
    """Return the running builds that recorded this cluster's name, such as `sc://127.0.0.1:15002`."""
    with ledger.read() as connection:
        return tuple(each for each in runs.running(connection) if each.cluster == cluster)


def count_deaths(services: Services, builds: Collection[Run], why: str) -> None:
    """Count each of these builds as an attempt in which Spark died. Call this after their processes have ended.

    Without the count, a partition that ends Spark would be built again forever. If a build has recorded its own end,
    this end stays, unless the build was only interrupted. A second call changes nothing.
    """
    with services.ledger.read() as connection:
        current = runs.find(connection, [each.id for each in builds])
    for each in current.values():
        if each.state in (RUNNING, ABANDONED):
            finish(services, each, FAILED, f"{SparkDied.__name__}: {why}")

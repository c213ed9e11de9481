"""Probe of a YARN cluster: what is free, by the REST API of its ResourceManager."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from feed_assets.core.allotment import Probe
from feed_assets.core.resources import Amount
from feed_assets.core.targets import Yarn
from feed_assets.targets.json_answers import AnswerPart, NoAnswer, get

Count = Annotated[int, Field(ge=0, le=1 << 40)]


class _Metrics(AnswerPart):
    activeNodes: Count  # noqa: N815  YARN's own name, as those below
    appsPending: Count  # noqa: N815
    availableMB: Count  # noqa: N815
    availableVirtualCores: Count  # noqa: N815
    totalMB: Count  # noqa: N815
    totalVirtualCores: Count  # noqa: N815


class _Cluster(AnswerPart):
    clusterMetrics: _Metrics  # noqa: N815


def look(target: Yarn, now: datetime) -> Probe:
    """Return what is free of the whole cluster. The queue's own limit is YARN's: a run may wait there for it.

    Raise NoAnswer if the ResourceManager gives no answer, or has no node.
    """
    metrics = get(_Cluster, f"{target.url.rstrip('/')}/ws/v1/cluster/metrics").clusterMetrics
    if not metrics.activeNodes:
        raise NoAnswer("it has no active node")
    total = Amount(metrics.totalVirtualCores, metrics.totalMB << 20)
    free = Amount(metrics.availableVirtualCores, metrics.availableMB << 20)
    return Probe(now, total, free, queued=metrics.appsPending)

"""Results of ticks and reports, as a Harness returns them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg


@dataclass(frozen=True)
class Ran:
    """A partition that a tick requested, after its run has ended with it.

    Attributes:
        assets: The names of its assets, such as `ads/shown`, in order.
        partition: Dagster's partition key; None for a run without one.
        succeeded: Whether the run succeeded with it.
        error: Why it failed; None if it did not.
        tags: The run's tags in Dagster.
        id: The run's id in Dagster: of many partitions it is one.
    """

    assets: tuple[str, ...]
    partition: str | None
    succeeded: bool
    error: str | None
    tags: Mapping[str, str]
    id: str


@dataclass(frozen=True)
class RequestedTick:
    """A tick of one sensor whose runs were not started.

    Attributes:
        requests: The runs that it requests.
        events: The materializations that it reports to Dagster.
        cursor: The sensor's cursor after it.
        targets: What these runs are to build, in order, each as (assets, partition key).
    """

    requests: tuple[dg.RunRequest, ...]
    events: tuple[dg.AssetMaterialization, ...]
    cursor: str | None
    targets: list[tuple[tuple[str, ...], str | None]]


@dataclass(frozen=True)
class Reported:
    """A materialization in Dagster.

    Attributes:
        partition: Dagster's partition key; None for an asset without partitions.
        version: Its data version.
        metadata: Its metadata as plain values, by name.
        run: The id of the run that made it; '' if no run of this instance did.
        storage_id: Its number in Dagster's event log.
    """

    partition: str | None
    version: str | None
    metadata: Mapping[str, Any]
    run: str
    storage_id: int

    @property
    def update_id(self) -> str:
        """Return the id of its update."""
        return self.metadata["update id"]

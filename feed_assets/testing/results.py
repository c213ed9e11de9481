"""Results of ticks and reports, as a Harness returns them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg


@dataclass(frozen=True)
class Ran:
    """The result of one partition that a tick requested, after its run has ended.

    Attributes:
        assets: The names of the assets that were built, such as `ads/shown`, in order.
        partition: Dagster's partition key; None for a run without one.
        succeeded: Whether this partition was built.
        error: Why it failed; None if it succeeded.
        tags: The run's tags in Dagster.
        id: The run's id in Dagster. Partitions that one run builds share this id.
    """

    assets: tuple[str, ...]
    partition: str | None
    succeeded: bool
    error: str | None
    tags: Mapping[str, str]
    id: str


@dataclass(frozen=True)
class RequestedTick:
    """A tick of one sensor. The runs that it requests were not started.

    Attributes:
        requests: The runs that it requests.
        events: The materializations that it reports to Dagster.
        cursor: The sensor's cursor after the tick.
        targets: The assets and partition key that each of these runs would build, in order.
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
        version: The data version.
        metadata: The metadata as plain values, by name.
        run: The id of the run that made the materialization; '' if no run of this instance made it.
        storage_id: Its number in Dagster's event log.
    """

    partition: str | None
    version: str | None
    metadata: Mapping[str, Any]
    run: str
    storage_id: int

    @property
    def update_id(self) -> str:
        """Return the id of the materialized update."""
        return self.metadata["update id"]

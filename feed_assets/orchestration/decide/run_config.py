"""The configuration of a run: updates and slices to read, and how to process them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from feed_assets.core.errors import InvalidDefinition, InvalidEvent, InvalidName
from feed_assets.core.events import Operation, encoded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.plans import BY_HAND, Kind, Plan, RunSpec
from feed_assets.core.readiness import Need, Verdict
from feed_assets.core.secrets import masked
from feed_assets.core.slices import Slice
from feed_assets.orchestration.decide.nodes import Node


class SliceConfig(dg.Config):
    """The events of a table's partition after the marker `after`, up to the marker `upto`.

    Without `after`, the slice begins with the first event.
    """

    table: str
    partition: str = ""
    after: str | None = Field(default=None, description="A moment such as 2010-12-01T06:00:00Z, or a version.")
    upto: str
    operations: list[str] = Field(default_factory=lambda: ["OVERWRITE"])

    @property
    def slice(self) -> Slice:
        """Return the slice. Raise InvalidName, InvalidEvent or ValueError for invalid values."""
        partition = Partition(Feed.parse(self.table), self.partition)
        start = encoded(self.after) if self.after else None
        return Slice(partition, start, encoded(self.upto), frozenset(map(Operation, self.operations)))


class RunConfig(dg.Config):
    """The data that a run by hand reads in place of the newest data.

    Without `consumes`, the consumer's markers stay unchanged.
    """

    updates: dict[str, str] = Field(
        default_factory=dict,
        description="Update id by input partition: {'ads/shown/v1.0/2019-11-24': '20191125.060000'}.",
    )
    slices: list[SliceConfig] = Field(default_factory=list[SliceConfig], description="Slices of event tables to read.")
    plan: str | None = Field(
        default=None,
        description="reload or incremental; passed to the function. With slices the default is incremental.",
    )
    plan_config: dict[str, Any] = Field(default_factory=dict)
    consumes: bool = Field(default=False, description="Set by sensors: the run consumes the events of these slices.")


def named_in(config: RunConfig, inputs: Mapping[str, Sequence[Partition]]) -> dict[Partition, str]:
    """Return the updates that a run must read, by input partition. Raise InvalidName for an invalid path."""
    by_path = {partition.path: partition for some in inputs.values() for partition in some}
    return {by_path.get(path) or Partition.parse(path): update_id for path, update_id in config.updates.items()}


def run_spec_in(config: RunConfig) -> RunSpec:
    """Return the slices and the plan in a run's configuration.

    Return BY_HAND if it has neither slices nor `consumes`. Raise InvalidDefinition if the values are invalid or
    contradict each other.
    """
    kind = _kind(config)
    if not config.slices and not config.consumes:
        if config.plan == "incremental":
            raise InvalidDefinition(
                "`plan` is 'incremental', but `slices` are missing: expected the slices to read. Add them, or remove "
                "`plan`, so that all data are loaded."
            )
        return BY_HAND
    slices: dict[Partition, Slice] = {}
    for number, each in enumerate(config.slices):
        piece = _slice_of(number, each)
        if piece.partition in slices:
            raise InvalidDefinition(
                f"slices[{number}]: {piece.partition} has another slice already: expected one slice for it. Join them."
            )
        slices[piece.partition] = piece
    return RunSpec(slices, Plan(kind, config.plan_config), config.consumes)


def _slice_of(number: int, config: SliceConfig) -> Slice:
    """Return a configured slice. Raise InvalidDefinition with the slice's number if it is invalid."""
    try:
        piece = config.slice
    except (InvalidName, InvalidEvent, ValueError) as error:
        raise InvalidDefinition(f"slices[{number}] of {config.table}: {error}") from error
    if (piece.start or "") > piece.end:
        raise InvalidDefinition(
            f"slices[{number}] of {config.table}: `after` is {config.after}, which is later than `upto`: expected an "
            f"earlier marker."
        )
    return piece


def _kind(config: RunConfig) -> Kind:
    match config.plan:
        case None | "incremental":
            return "incremental"
        case "reload":
            return "reload"
        case other:
            raise InvalidDefinition(f"`plan` is {other!r}: expected 'reload' or 'incremental'.")


def parameters_of(config: RunConfig) -> str | None:
    """Return a run's configuration as JSON for storage, without defaults. Return None if it has only defaults."""
    parameters = config.model_dump(mode="json", exclude_defaults=True)
    return masked(json.dumps(parameters, sort_keys=True)) if parameters else None


def run_config_of(node: Node, need: Need, verdict: Verdict, plan: Plan) -> dict[str, Any]:
    """Return the configuration of a run by events: the updates and slices of the decision.

    So the run reads nothing that arrived after the decision.
    """
    slices = verdict.due.slices if verdict.due else ()
    config = {
        "updates": {pin.partition.path: pin.update_id for pin in verdict.pins if pin.partition.feed not in need.tables},
        "slices": [_config_of(each) for each in slices],
        "plan": plan.kind,
        "plan_config": dict(plan.config),
        "consumes": True,
    }
    return {"ops": {node.key.to_python_identifier(): {"config": config}}}


def _config_of(piece: Slice) -> dict[str, Any]:
    partition = {"table": str(piece.partition.feed), "partition": piece.partition.key}
    after = {"after": piece.start} if piece.start is not None else {}
    return {**partition, **after, "upto": piece.end, "operations": sorted(each.value for each in piece.operations)}

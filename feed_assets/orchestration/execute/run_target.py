"""The compute target of a run. The run uses the resources that it got with its request, or waits for free resources."""

import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import Secret

from feed_assets.core.allotment import Nowhere, Placement, QueueEntry
from feed_assets.core.data_centers import PRIMARY, WAITS, title_of
from feed_assets.core.errors import DataCenterLost, LedgerUnavailable, ResourcesBusy
from feed_assets.core.resources import Resources
from feed_assets.core.target_types import RESOURCE_KEYS
from feed_assets.core.targets import ComputeTarget, Connect
from feed_assets.ledger import allocations, resource_queue, target_probes
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.orchestration.decide.resource_requests import (
    ALLOCATION,
    TARGET,
    TARGET_WHY,
    in_one_process,
    rooms_now,
    targets,
)
from feed_assets.orchestration.execute.makers import DRIVER, uses_spark
from feed_assets.orchestration.execute.run_partitions import RunPartitions
from feed_assets.runs.run_turn import Patience
from feed_assets.runs.services import utc_now
from feed_assets.runs.target_watch import TargetWatch
from feed_assets.settings import Settings, settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunTarget:
    """The compute target of a run, and the reason for this choice. `allocation` is the id of the run's resources."""

    allocation: str
    name: str
    reason: str
    resources: Resources
    ledger: Ledger
    dataset: str

    @property
    def target(self) -> ComputeTarget:
        """Return the target's declaration."""
        return settings().target(self.name)

    @property
    def place(self) -> str:
        """Return the name of the data center that the target belongs to, or 'primary'."""
        return settings().place_of(self.name)

    @property
    def center(self) -> str | None:
        """Return the data center whose blackboard has the run's inputs. Return None for the primary."""
        return None if self.place == PRIMARY else self.place

    @property
    def placed(self) -> str:
        """Return where the run is, and why, for the ledger."""
        return f"{title_of(self.place)}: {self.reason}" if settings().data_centers.get_secret_value() else self.reason

    @cached_property
    def settings(self) -> Settings:
        """Return the settings with which the run starts Spark: those of the process, with the target's values."""
        return settings_on(self.target, self.resources)

    @property
    def conf(self) -> dict[str, str]:
        """Return the Spark configuration that the target itself needs for the run."""
        return {**self.target.spark(self.resources), **self.target.conf}

    @cached_property
    def watch(self) -> TargetWatch:
        """Return the watch on the target. All partitions of the run share it."""
        return TargetWatch(self.ledger, self.name, self.target, self.allocation, utc_now, dataset=self.dataset)

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags with which Dagster shows the target."""
        return {TARGET: self.name, TARGET_WHY: self.reason, ALLOCATION: self.allocation}

    @property
    def metadata(self) -> dict[str, Any]:
        """Return metadata about the target for a materialization."""
        center = {"data center": self.place} if settings().data_centers.get_secret_value() else {}
        of_target = {"compute target": self.name, "why this target": self.reason}
        return {**center, **of_target, "resources": str(self.resources.amount)}


def settings_on(target: ComputeTarget, resources: Resources) -> Settings:
    """Return the process's settings with the master or Connect server of a target, and a run's cores and memory."""
    values = target.spark(resources)
    own, profiles = _of_the_run(values)
    master = values.pop("spark.master", settings().spark_master)
    remote = target.remote if isinstance(target, Connect) else None
    changed = {"spark_master": master, "spark_remote": remote, "spark_profiles": profiles}
    conf = Secret[dict[str, str]]({**own, **target.conf, **values})
    return settings().model_copy(update={**changed, "spark_conf": conf})


def _of_the_run(values: Mapping[str, str]) -> tuple[dict[str, str], Secret[dict[str, dict[str, str]]]]:
    """Return the process's Spark configuration and profiles, without keys that the target or the resources decide.

    With these keys, a run could use more than its resources, or another target. `values` has what the target sets.
    """
    fixed = RESOURCE_KEYS.union(values)
    own, profiles = settings().spark_conf.get_secret_value(), settings().spark_profiles.get_secret_value()
    if dropped := sorted(fixed.intersection({key for each in (own, *profiles.values()) for key in each})):
        _log.warning(
            "FEED_ASSETS_SPARK_CONF or FEED_ASSETS_SPARK_PROFILES has %s, which has no effect on a compute target: the "
            "target and the dataset's Resources set it.",
            " and ".join(dropped),
        )
    kept = {name: _without(each, fixed) for name, each in profiles.items()}
    return _without(own, fixed), Secret[dict[str, dict[str, str]]](kept)


def _without(conf: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if key not in keys}


@contextmanager
def run_target(partitions: RunPartitions, patience: Patience) -> Generator[RunTarget | None]:
    """Yield the target of a run, and take its resources back at the end. Yield None if no targets are configured.

    If the process is killed, a tick takes the resources back once Dagster's run has ended. Raise ResourcesBusy if no
    target has room, or no place has the inputs, within the time that `patience` allows.
    """
    ledger, context = open_ledger(settings().ledger), partitions.context
    if not targets():
        _wait_for_place(ledger, partitions, patience)
        yield None
        return
    is_driven = DRIVER in context.run.tags
    with in_one_process() if is_driven else nullcontext():
        target = _take_up(ledger, partitions) or _wait(ledger, partitions, patience)
    try:
        if not target.tags.items() <= context.run.tags.items():
            context.instance.add_run_tags(context.run.run_id, target.tags)
        yield target
    except DataCenterLost:
        target_probes.lose(ledger, target.name, utc_now())  # Else the next run would go there, too, until it is down.
        raise
    finally:
        if is_driven and uses_spark(context.instance):
            _stop_spark()
        _end(ledger, target.allocation, target.name)


def _take_up(ledger: Ledger, partitions: RunPartitions) -> RunTarget | None:
    """Return the target that the run got when it was requested. Return None if the run has no target (any more)."""
    run, dataset = partitions.context.run, str(partitions.node.feed)
    allocation_id = run.tags.get(ALLOCATION)
    allocation = allocations.take_up(ledger, allocation_id, run.run_id) if allocation_id else None
    if allocation is None or (allocation.target in targets() and _is_at_home(ledger, partitions, allocation.target)):
        return allocation and RunTarget(
            allocation.id,
            allocation.target,
            allocation.reason,
            resources=allocation.resources,
            ledger=ledger,
            dataset=dataset,
        )
    # The settings no longer have this target, its place is down, or the place lacks what the run reads now.
    _end(ledger, allocation.id, allocation.target)
    return None


def _is_at_home(ledger: Ledger, partitions: RunPartitions, target: str) -> bool:
    """Return whether a target is still in a place that has the run's inputs, preferred or not."""
    home = partitions.home(ledger, is_patient=False)
    return home.why is None and (not home.groups or target in home.targets)


def _wait_for_place(ledger: Ledger, partitions: RunPartitions, patience: Patience) -> None:
    """Wait until a place may have the run, if there are no compute targets."""
    is_reported = False
    while why := partitions.home(ledger).why:
        if not patience.seconds_left:
            raise _in_vain(why, patience)
        if not is_reported:
            patience.tell(_waiting(why, patience))
            is_reported = True
        patience.wait()


def _waiting(why: str, patience: Patience) -> str:
    of_resources = "" if why.startswith(WAITS) else " for resources,"
    return f"this run waits{of_resources} for up to {patience.seconds_left:.0f} s: {why}"


def _in_vain(why: str, patience: Patience) -> ResourcesBusy:
    is_placeless = why.startswith(WAITS)
    advice = "" if is_placeless else " If a run that had resources was killed, `feed-assets reconcile` takes them back."
    return ResourcesBusy(
        f"{why}. This run has waited {patience.spent:.0f} s for {'a place' if is_placeless else 'resources'}. Start it "
        f"again later, or raise FEED_ASSETS_RUN_WAIT_SECONDS.{advice}"
    )


def _wait(ledger: Ledger, partitions: RunPartitions, patience: Patience) -> RunTarget:
    """Wait until a target has room for the run, in the same queue as all requests.

    While another run is building the run's partitions, wait for that run first, and hold no resources meanwhile.
    """
    now, resources = utc_now(), partitions.resources(ledger)
    entry = QueueEntry(partitions.id, resources, partitions.are_history(now), since=now, output=partitions.name)
    try:
        while True:
            partitions.wait_for_turn(patience)
            place = _placement(ledger, entry, partitions, patience)
            if partitions.has_its_turn(patience) or not patience.seconds_left:
                break
            _end(ledger, entry.name, place.target)  # Meanwhile another run has begun to build the partition.
    except BaseException:
        _end(ledger, entry.name)
        raise
    dataset = str(partitions.node.feed)
    return RunTarget(entry.name, place.target, place.reason, resources=resources, ledger=ledger, dataset=dataset)


def _placement(ledger: Ledger, entry: QueueEntry, partitions: RunPartitions, patience: Patience) -> Placement:
    """Return the target that has room for a run, in a place that has its inputs, and wait until there is one.

    Raise ResourcesBusy if the time of `patience` ends first, or if no target can ever hold the run.
    """
    has_told = False
    while True:
        now = utc_now()
        allocations.end_not_begun(ledger, now)
        place = _ask(ledger, entry, partitions, now)
        if isinstance(place, Placement):
            return place
        if isinstance(place, Nowhere):
            raise ResourcesBusy(f"{place}. No wait can change that: correct the dataset's resources, or the targets.")
        if not patience.seconds_left:
            raise _in_vain(place, patience)
        if not has_told:
            patience.tell(_waiting(place, patience))
            has_told = True
        _pause(ledger, entry, patience, None if place.startswith(WAITS) else now)


def _ask(ledger: Ledger, entry: QueueEntry, partitions: RunPartitions, now: datetime) -> Placement | str:
    """Return the target for a run, or what it waits for. A run whose inputs are nowhere keeps no target free."""
    home = partitions.home(ledger)
    if home.why:
        _end(ledger, entry.name)
        return home.why
    entry = replace(entry, groups=home.groups)
    return resource_queue.ask(ledger, entry, partitions.context.run.run_id, rooms_now(ledger, now), now)


def _pause(ledger: Ledger, entry: QueueEntry, patience: Patience, last_look: datetime | None) -> None:
    """Wait until targets may have room: until the ledger wakes the run, or the targets' last answers are too old.

    `last_look` is None for a run that is not in the queue, because its inputs are nowhere.
    """
    until = patience.spent + LOOK_AGAIN.total_seconds()
    while patience.seconds_left and patience.spent < until:
        if last_look and resource_queue.is_woken(ledger, entry.name, last_look):
            return
        patience.wait()


def _stop_spark() -> None:
    """Stop the Spark of this process, so that the next run of the process can start Spark on another target.

    The watch on a dead target has already stopped Spark in the JVM, so no session is active there. If the JVM has
    ended, no run of this process can start another Spark. The next run reports this error itself.
    """
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark import SparkContext  # PySpark takes a second to load
    from pyspark.sql import SparkSession

    with suppress(Py4JError, OSError):
        if stopping := SparkSession.getActiveSession() or getattr(SparkContext, "_active_spark_context", None):
            stopping.stop()


def _end(ledger: Ledger, allocation_id: str, target: str | None = None) -> None:
    """Take a run's resources back, and wake the first waiting requests. If the ledger fails, a tick does this later."""
    with suppress(LedgerUnavailable), ledger.write() as connection:
        allocations.end(connection, {allocation_id})
        if target:
            target_probes.outdate(connection, target)
            resource_queue.wake_first(connection, utc_now())

"""Claims of runs: the updates that a run is writing and the pins that it reads.

A run's claims end when the run publishes or gives up.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import UpdateChanged
from feed_assets.core.events import foreign_correlation, joined_correlation
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.core.slices import Slice
from feed_assets.ledger import batch_partitions, batch_sets, inbox, update_changes, updates
from feed_assets.ledger.announce import correlations
from feed_assets.ledger.quality import CheckState
from feed_assets.ledger.tables import consumed, update


def claim(
    connection: sa.Connection,
    run_id: str,
    outputs: Sequence[tuple[Partition, str]],
    pins: Iterable[Pin],
    code_version: str | None,
    now: datetime,
    slices: Collection[Slice] = (),
    without: Sequence[str] = (),
    base: Pin | None = None,
    output: Partition | None = None,
) -> None:
    """Record the updates that a run claimed, with their pins and the names of missing inputs (`without`).

    `outputs` has the rejects first and the dataset's own update last. `base` is the update that an increment extends.
    The base is part of the lineage but not an input, because a newer base does not make the increment stale. For a
    batch, `output` is the parent partition: the run consumes the parent's inbox. The events within `slices` are
    consumed when the run publishes. Raise UpdateChanged if some of these events are already consumed, or if a pinned
    update was pruned.
    """
    pins, (written, _) = tuple(pins), outputs[-1]
    output = output or written
    if written != output:
        batch_partitions.join(connection, written)
    if not inbox.are_whole(connection, output, slices):
        raise UpdateChanged(
            f"{output}: some of the events for this run were consumed since it was requested: expected all of them to "
            "be unconsumed. You need not do anything: the next tick requests a run for the remaining events."
        )
    inbox.claim(connection, output, run_id, slices)
    # A batch takes only the correlation ids of its events. The pins' ids went into earlier batches.
    claimed_ids = inbox.correlations(connection, run_id) if written != output else None
    incoming = claimed_ids or correlations(connection, run_id, pins)
    correlation, parents = joined_correlation(incoming or {foreign_correlation(*outputs[-1])})
    values = {"run": run_id, "code_version": code_version, "correlation": correlation}
    new = _new_of(connection, output, run_id, pins)
    values["parents"] = json.dumps([each for each in parents if each in new] or parents) if parents else None
    values["without"] = json.dumps(without) if without else None
    for partition, update_id in outputs:
        update_changes.insert(
            connection, partition, update_id, origin=updates.RUN, state=updates.CLAIMED, at=now, **values
        )
    for pin in pins:
        consume(connection, outputs[-1], pin, is_input=True)
        _refuse_pruned(connection, pin)
    if base:
        consume(connection, outputs[-1], base, is_input=False)
        _refuse_pruned(connection, base)
    for partition, update_id in outputs[:-1]:
        consume(connection, outputs[-1], Pin(partition, update_id, ""), is_input=False)


def _new_of(connection: sa.Connection, output: Partition, run_id: str, pins: Iterable[Pin]) -> set[str]:
    """Return the correlation ids of a run's events and pins.

    Leave out pins that the published update has already read.
    """
    previous_pins = batch_sets.consumed(connection, batch_sets.newest(connection, [output])).get(output, ())
    return correlations(connection, run_id, {*pins} - {*previous_pins})


def _refuse_pruned(connection: sa.Connection, pin: Pin) -> None:
    """Raise UpdateChanged if a pinned update was pruned. Prunes and claims run one by one, so no prune is missed."""
    row = updates.find(connection, pin.partition, pin.update_id)
    if row and row.state == updates.PRUNED:
        raise UpdateChanged(
            f"{pin.partition} {pin.update_id} was pruned since it was pinned: {row.reason}. Start the run again."
        )


def stage(connection: sa.Connection, written: Update, version: str, **statistics: Any) -> None:
    """Record the written files of a claimed update, before readers can see it."""
    values = {"version": version, **updates.files_of(written), **statistics}
    connection.execute(sa.update(update).where(updates.is_(written.partition, written.id)).values(values))


def audited(
    connection: sa.Connection, written: Update, states: Mapping[str, CheckState], figures: Mapping[str, float]
) -> None:
    """Record the check results and the key figures of a claimed update.

    The results count for the partition once the update is published.
    """
    audit = json.dumps({check: [each.state, each.reason] for check, each in states.items()})
    values = {"audit": audit, "figures": json.dumps(figures) if figures else None}
    connection.execute(sa.update(update).where(updates.is_(written.partition, written.id)).values(values))


def consume(connection: sa.Connection, output: tuple[Partition, str], pin: Pin, *, is_input: bool) -> None:
    """Record that the update `output` was built from the update that `pin` names.

    If `is_input` is False, the pin is lineage only: rejects, a base, or a compacted batch.
    """
    (partition, update_id) = output
    connection.execute(
        sa.insert(consumed).values(
            feed=str(partition.feed),
            partition=partition.key,
            id=update_id,
            input_feed=str(pin.partition.feed),
            input_partition=pin.partition.key,
            position=pin.update_id,
            slice_from=pin.start,
            version=pin.version,
            size=pin.size,
            files=pin.files,
            modified=pin.modified,
            is_input=is_input,
        )
    )


def claimed_by(connection: sa.Connection, run_id: str) -> tuple[updates.UpdateRow, ...]:
    """Return the updates of a run that are still claimed, neither published nor given up. Rejects are first."""
    condition = (update.c.run == run_id) & (update.c.state == updates.CLAIMED)
    rows = connection.execute(sa.select(*updates.COLUMNS).where(condition).order_by(update.c.feed.desc())).mappings()
    return tuple(updates.row_of(row) for row in rows)

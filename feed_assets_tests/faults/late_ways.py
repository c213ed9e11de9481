"""Wrong ways to handle late data. Each loses some data or builds something twice."""

from collections.abc import Callable
from dataclasses import replace

import sqlalchemy as sa

from feed_assets.core import readiness
from feed_assets.core.late_weighing import Outcome, Weighed
from feed_assets.ledger import due, fan_out, update_changes, updates
from feed_assets.ledger.tables import consumed
from feed_assets.runs.build import _Build

Patch = Callable[[object, str, object], None]


def snapshot_at_the_end(patch: Patch) -> None:
    """Record what a run has read only at its end: data that landed during the run count as read."""
    right = update_changes.publish

    def publish(connection, partition, name, now):
        known = updates.newest(connection, [pin.partition for pin in updates.consumed_by(connection, partition, name)])
        mine = (
            (consumed.c.feed == str(partition.feed)) & (consumed.c.partition == partition.key) & (consumed.c.id == name)
        )
        for at, row in known.items():
            same = (consumed.c.input_feed == str(at.feed)) & (consumed.c.input_partition == at.key)
            values = {"position": row.id, "version": row.pin.version, "size": row.pin.size, "files": row.pin.files}
            connection.execute(sa.update(consumed).where(mine & same).values(values))
        right(connection, partition, name, now)

    patch(update_changes, "publish", publish)


def by_the_edge(patch: Patch) -> None:
    """Decide only when something arrives: a request is forgotten at once, even if its run fails."""
    right = fan_out._add

    def forget(ledger, requested, _now):
        """Claim all of them, and keep none."""
        with ledger.write() as connection:
            for each in requested:
                mine = (due.due.c.feed == str(each.partition.feed)) & (due.due.c.partition == each.partition.key)
                connection.execute(sa.delete(due.due).where(mine))
        return requested

    def add(reach, reader, change, affected):
        if str(change.partition.feed) != reader:  # The end of a run does not bring it back either.
            right(reach, reader, change, affected)

    patch(due, "claim", forget)
    patch(fan_out, "_add", add)


def without_a_claim(patch: Patch) -> None:
    """Skip the check whether the run of another tick has already built the same output."""
    patch(_Build, "_is_done", lambda *_: False)


def by_the_last_look(patch: Patch) -> None:
    """Measure growth against the newest update at the last look, instead of against what was consumed."""
    seen, right = {}, readiness.weigh

    def weigh(inputs, periods, now):
        since = [[each for each in some.changes if seen.get(each.partition) != each.new] for some in inputs]
        moved = [[replace(each, old=seen.get(each.partition, each.old)) for each in some] for some in since]
        seen.update({each.partition: each.new for some in inputs for each in some.changes})
        looked = [replace(each, changes=mine, counted=mine) for each, mine in zip(inputs, moved, strict=True) if mine]
        return right(looked, periods, now) if looked else Weighed(Outcome.SKIP, "nothing has come since")

    patch(readiness, "weigh", weigh)

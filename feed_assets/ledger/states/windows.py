"""What is asked of windows, and what people and checks say of them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.completeness import why
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.members import Tracked
from feed_assets.core.windows import WindowAddress, minutes_of
from feed_assets.ledger import quality
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states import datasets
from feed_assets.ledger.states.judging import Judging
from feed_assets.ledger.states.reports import all_deltas
from feed_assets.ledger.states.rows import Row, all_rows, place, remove, rows


def known(connection: sa.Connection, addresses: Iterable[WindowAddress]) -> dict[WindowAddress, Row]:
    """The windows that anything is known of, one seek for each; the others are open."""
    return rows(connection, addresses)


def accept(ledger: Ledger, address: WindowAddress, reason: str, who: str, now: datetime) -> bool:
    """Take a window as complete that never will be: what is counted later is still added. Whether its state changed.

    Raises InvalidName for a window that the dataset has not.
    """
    with ledger.write() as connection:
        tracked = datasets.lock(connection, [address.dataset], now)[address.dataset]
        address = replace(address, sub_partition=tracked.path_of(address.sub_partition))
        judging = Judging(connection, address.dataset, tracked, now, who)
        judging.row(address).accepted = f"accepted by {who}: {reason}"
        return address in judging.judge_again([address])


def report_quality(
    ledger: Ledger, address: WindowAddress, check: str, state: str, reason: str | None, by: str, now: datetime
) -> bool:
    """Record the state of a check of a window: one that failed makes it invalid, once all of it is there.

    Returns whether its state changed. Raises InvalidName for a window that the dataset has not.
    """
    with ledger.write() as connection:
        tracked = datasets.lock(connection, [address.dataset], now)[address.dataset]
        address = replace(address, sub_partition=tracked.path_of(address.sub_partition))
        judging = Judging(connection, address.dataset, tracked, now, by)
        row = judging.row(address)
        lock_log(connection)
        quality.report(connection, address.partition, check, state, reason, by, now)
        row.issue = quality.failed(connection, [address.partition]).get(address.partition)
        return address in judging.judge_again([address])


def declare(ledger: Ledger, declared: Mapping[Feed, Tracked], now: datetime) -> dict[Feed, InvalidDefinition]:
    """Keep how datasets are judged; what differs from before is written, and its windows are judged again.

    Who joins or leaves a dataset does so from today on: that judges nothing of the past again. Repeatable. Returns what
    is refused: a smaller base grain than that of the counts that are there.
    """
    with ledger.read() as connection:
        differing = datasets.differing(connection, declared, now)
    refused: dict[Feed, InvalidDefinition] = {}
    for name in sorted(differing):
        try:
            with ledger.write() as connection:
                _redeclare(connection, name, declared[name], now)
        except InvalidDefinition as error:
            refused[name] = error
    return refused


def _redeclare(connection: sa.Connection, name: Feed, declared: Tracked, now: datetime) -> None:
    before = datasets.lock(connection, [name], now)[name]
    new = datasets.dated_by(before, declared, now)
    datasets.put(connection, name, new)
    is_placed = not place(connection, name, new)
    is_same = replace(new, members=before.members) == before and bool(new.members) == bool(before.members)
    if (is_same and is_placed) or not (kept := all_rows(connection, name)):
        return
    remove(connection, name, new.grains)
    kept = [row for row in kept if row.address.grain in new.grains]
    judging = Judging(connection, name, new, now, "declaration")
    if new.base == before.base:
        judging.recount(kept)
    else:
        _check_base(name, before, new)
        judging.count_again(kept, all_deltas(connection, name))


def _check_base(name: Feed, before: Tracked, new: Tracked) -> None:
    """Raise InvalidDefinition if what was counted cannot be told by the windows of another base grain."""
    if minutes_of(new.base) % minutes_of(before.base):
        raise InvalidDefinition(
            f"{name} has counts by windows of {before.base}, its declaration says {new.base}: expected that grain, or "
            "one that is made of it. Correct the declaration, or give the dataset another name or version."
        )


def why_open(tracked: Tracked, row: Row) -> str:
    """What a base window lacks, in words."""
    return why(row.records, row.counts, tracked.tiers)

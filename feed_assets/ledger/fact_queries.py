"""The queries that provide facts for decisions.

They look up the given partitions in bulk, and never scan the history.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.batch_names import in_effect
from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.inputs import Input, SetInput, UpdateInput, WindowInput
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need
from feed_assets.core.windows import address_of
from feed_assets.ledger import (
    batch_partitions,
    batch_sets,
    closures,
    compacted,
    increment_base,
    key_tables,
    pauses,
    quality,
    run_costs,
    runs,
    updates,
    waivers,
    window_facts,
)
from feed_assets.ledger.propagation_choice import Members, choices
from feed_assets.ledger.tables import consumed, update


def facts(
    connection: sa.Connection, needs: Sequence[Need], now: datetime, max_attempts: int, run_cost: float = 0
) -> Facts:
    """Return the facts that `decide` uses for these needs. All of them are from one state of the ledger.

    The number of statements depends on the kinds of inputs, not on the number of needs.
    """
    inputs = {each for need in needs for each in need.partitions}
    outputs = sorted({need.output for need in needs})
    appendable = {each.partition for need in needs for each in need.inputs if isinstance(each, SetInput)}
    windows = {each for need in needs for each in need.windows}
    recorded_batches = batch_partitions.recorded_batches(connection, sorted(appendable))
    rows = updates.newest(
        connection, sorted({member for each in inputs for member in recorded_batches.get(each, (each,))})
    )
    batched = {parent: in_effect(batches, rows) for parent, batches in recorded_batches.items()}
    members = sorted({member for each in inputs for member in batched.get(each, (each,))})
    newest = {each: rows[each].pin for each in members if each in rows}
    built = _built(connection, needs, outputs, batched)
    failed = quality.failed(connection, {*inputs, *outputs})
    states = window_facts.known_windows(connection, windows)
    return Facts(
        now=now,
        outputs=built,
        newest=newest,
        batches=batched,
        counted=_counted(connection, needs, batched, newest, now),
        pruned=updates.edge(connection, members, sa.func.max, updates.PRUNED),
        failed=failed,
        checks=_checks(connection, {each for need in needs for each in need.inputs}),
        waived=_waived(connection, {*failed, *(at for at, each in states.items() if each.is_bad)}),
        closed={at: str(each) for at, each in closures.closed(connection, outputs).items()},
        choices=choices(connection, needs, batched, newest, {output: each.consumed for output, each in built.items()}),
        paused=pauses.paused(connection, {need.consumer.feed for need in needs if need.consumer}),
        windows=states,
        reporting=window_facts.reporting(connection, windows),
        uncounted=window_facts.uncounted(connection, needs, rows.values()),
        counted_by_nobody=window_facts.counted_by_nobody(connection, windows, rows.values()),
        counting=window_facts.counting(connection, windows),
        reached=window_facts.reached(connection, needs, rows),
        costs=run_costs.per_byte(connection, needs, run_cost),
        max_attempts=max_attempts,
    )


def of_windows(connection: sa.Connection, inputs: Sequence[WindowInput], now: datetime) -> Facts:
    """Return facts about windows only."""
    states = window_facts.known_windows(connection, inputs)
    bad = [at for at, each in states.items() if each.is_bad]
    reporting = window_facts.reporting(connection, inputs)
    return Facts(
        now, checks=_checks(connection, inputs), waived=_waived(connection, bad), windows=states, reporting=reporting
    )


def problem_of(connection: sa.Connection, partition: Partition) -> str | None:
    """Return the problem that blocks consumers of a partition or window. Return None if there is no problem."""
    address = address_of(partition)
    if address is None:
        return quality.failed(connection, [partition]).get(partition)
    window = window_facts.known_at(connection, [[address]]).get(partition)
    return window.why if window and window.is_bad else None


def _checks(connection: sa.Connection, inputs: Iterable[Input]) -> dict[tuple[Partition, str], str]:
    """Return the results of the checks that inputs name: the reason why a check blocks, or '' if it does not block."""
    read = [*inputs]
    named = {each.partition for each in read if isinstance(each, UpdateInput) and each.checks}
    named |= {at for each in read if isinstance(each, WindowInput) and each.checks for at in each.windows}
    check_states = quality.check_states(connection, named) if named else {}
    blocking = {key for key, each in check_states.items() if each.state in quality.BLOCKING}
    return {key: (each.reason or each.state) if key in blocking else "" for key, each in check_states.items()}


def _waived(connection: sa.Connection, bad: Collection[Partition]) -> dict[Partition, str]:
    """Return the problems that a person has waived, by bad partition. Consumers may then use the partition."""
    waiver_by_partition = waivers.waived(connection, bad) if bad else {}
    return {at: each.problem for at, each in waiver_by_partition.items()}


def _built(
    connection: sa.Connection, needs: Sequence[Need], outputs: Sequence[Partition], batched: Members
) -> dict[Partition, Built]:
    newest = batch_sets.newest(connection, outputs)
    published = {each: row.id for each, row in newest.items()}
    consumed = batch_sets.consumed(connection, newest)
    of_updates, of_batches = _late_since(connection, published), _new_since(connection, needs, batched, consumed)
    of_windows = window_facts.late_since(connection, consumed)
    late = {each: of_updates.get(each, {}) | of_batches.get(each, {}) | of_windows.get(each, {}) for each in published}
    attempts = _attempts(connection, outputs)
    adding = {need.output for need in needs if need.adds} & newest.keys()
    adding |= {each for each, row in newest.items() if row.origin == updates.COMPACTED}
    added = {each: newest[each] for each in adding}
    lost = increment_base.lost(connection, added) | compacted.lost(connection, added) if added else {}
    return {
        each: Built(
            published.get(each),
            consumed.get(each, ()),
            late.get(each, {}),
            attempts=attempts.get(each, ()),
            changed=newest[each].changed if each in newest else 0,
            lost=lost.get(each),
        )
        for each in outputs
        if each in published or each in attempts
    }


def _counted(
    connection: sa.Connection, needs: Iterable[Need], batched: Members, newest: Mapping[Partition, Pin], now: datetime
) -> dict[tuple[Partition, str], Pin]:
    """Return earlier updates of those inputs whose newest update does not count now, by input and last id that counts.

    A policy for late data lets some updates count only from a later check on, or never. Few inputs need this, so one
    query reads all of them.
    """
    member_limits = {
        (member, limit)
        for need in needs
        for each, limit in _limits(need, now)
        for member in batched.get(each, (each,))
        if member in newest and newest[member].update_id > limit
    }
    if not member_limits:
        return {}
    bounds, history = key_tables.updates(connection, sorted(member_limits), "upto"), update.alias()
    is_counted = (history.c.feed == bounds.c.feed) & (history.c.partition == bounds.c.partition)
    is_counted &= (history.c.state == updates.PUBLISHED) & (history.c.id <= bounds.c.upto)
    last = sa.select(sa.func.max(history.c.id)).where(is_counted).correlate(bounds).scalar_subquery()
    is_last = (update.c.feed == bounds.c.feed) & (update.c.partition == bounds.c.partition) & (update.c.id == last)
    rows = connection.execute(sa.select(update, bounds.c.upto).select_from(update).join(bounds, is_last))
    return {(at := Partition(Feed.parse(row.feed), row.partition), row.upto): _pin(at, row) for row in rows}


def _limits(need: Need, now: datetime) -> Iterator[tuple[Partition, str]]:
    """Return the input partitions whose updates count only up to a certain update id, each with this id."""
    limits = {feed: need.counts_upto(feed, now) for feed in {each.feed for each in need.partitions}}
    return ((each, limit) for each in need.partitions if (limit := limits[each.feed]))


def _pin(at: Partition, row: sa.Row[Any]) -> Pin:
    return Pin(at, row.id, row.version or "", row.size or 0, row.files or 0, modified=row.modified)


_Since = dict[Partition, dict[Partition, datetime]]
"""Arrival times of the first late data, by output and input partition."""


def _late_since(connection: sa.Connection, published: Mapping[Partition, str]) -> _Since:
    """Return for each input the arrival time of the first newer update whose data differ from the consumed update."""
    arrivals: _Since = {}
    key_table = key_tables.updates(connection, published.items())
    same_input = (update.c.feed == consumed.c.input_feed) & (update.c.partition == consumed.c.input_partition)
    later = (update.c.id > consumed.c.position) & (update.c.version != consumed.c.version)
    first = sa.select(sa.func.min(update.c.id)).where(same_input, update.c.state == updates.PUBLISHED, later)
    names = [consumed.c[name] for name in ("feed", "partition", "input_feed", "input_partition")]
    query = sa.select(*names, first.scalar_subquery().label("first"))
    query = query.join(key_table, key_tables.same_keys(consumed, key_table)).where(consumed.c.is_input)
    for row in connection.execute(query):
        if row.first and (moment := parse_update_id(row.first)):
            late = arrivals.setdefault(Partition(Feed.parse(row.feed), row.partition), {})
            late[Partition(Feed.parse(row.input_feed), row.input_partition)] = moment
    return arrivals


def _new_since(
    connection: sa.Connection,
    needs: Sequence[Need],
    batched: Members,
    consumed_by: Mapping[Partition, tuple[Pin, ...]],
) -> _Since:
    """Return, for each batch that an output has not read yet, the arrival time of the batch's first update."""
    new: dict[Partition, set[Partition]] = {}
    for need in needs:
        if need.output in consumed_by:
            consumed_partitions = {pin.partition for pin in consumed_by[need.output]}
            new[need.output] = {
                each for partition in need.partitions for each in batched.get(partition, ())
            } - consumed_partitions
    first = _first(connection, sorted({each for members in new.values() for each in members}))
    return {output: {each: first[each] for each in members if each in first} for output, members in new.items()}


def _first(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, datetime]:
    """Return the time of the oldest valid update of each partition."""
    oldest = updates.edge(connection, partitions, sa.func.min, updates.PUBLISHED)
    moments = {partition: parse_update_id(update_id) for partition, update_id in oldest.items()}
    return {partition: moment for partition, moment in moments.items() if moment}


def _attempts(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, tuple[Attempt, ...]]:
    """Return the failed or refused runs of each output since its last successful run, oldest first."""
    attempts_by_output: dict[Partition, list[Attempt]] = {}
    for run in runs.open_attempts(connection, outputs):
        is_refused, ended = run.state == updates.REFUSED, run.ended or run.started
        attempt = Attempt(run.pins, is_refused, run.reason or run.state, ended, run.made_with)
        attempts_by_output.setdefault(run.output, []).append(attempt)
    return {output: tuple(tried) for output, tried in attempts_by_output.items()}

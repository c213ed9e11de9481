"""Checks of Kafka topics and warehouse tables: new partitions, the lag of chunks and rows, and other problems."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import TypeAdapter

from feed_assets.core.errors import SourceBusy
from feed_assets.core.isolation import failing_alone
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import NAMED
from feed_assets.core.topic_unions import named
from feed_assets.kafka import check_installed
from feed_assets.ledger import alerts
from feed_assets.ledger.database import Ledger, get_cursor, put_cursors
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import (
    NOT_YET,
    EventTable,
    LoadedDataset,
    LoadedTopic,
    LoadedUnion,
)
from feed_assets.orchestration.declare.topic_tables import declared_topics
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick

if TYPE_CHECKING:
    from feed_assets.warehouse.load_state import TableState

StatesOf = Callable[[str], "list[TableState]"]
"""A function that returns the states of a warehouse's tables. A tick queries each warehouse once."""

BEHIND, DEAD_LETTERS, NOT_LOADED = KINDS = "behind", "dead_letters", "not_loaded"
"""Kinds of alerts about topics and warehouse tables. Names continue with the table's name."""

LETTERS_PER_TICK = 5000
"""Greatest number of a topic's dead letters that a tick counts. The next ticks count the others."""

ANSWER_SECONDS = 10
"""Seconds within which the broker must answer."""


def new_partitions(node: Node) -> list[dg.AddDynamicPartitionsRequest]:
    """Return requests to add the partitions of a topic that Dagster does not have yet.

    Raise SourceUnavailable if the broker does not answer.
    """
    topics, parts = node.partitioned_as, node.partitions_def
    if not topics or not isinstance(parts, dg.DynamicPartitionsDefinition):
        return []
    check_installed()
    from feed_assets.sources.signal_events import partitions_of

    present = {*parts.get_partition_keys()}
    keys = [node.partition_key_of(topic, each) for topic in topics for each in partitions_of(topic, ANSWER_SECONDS)]
    new = [each for each in keys if each not in present]
    return [parts.build_add_request(new)] if new else []


def topics_of(graph: Graph) -> dict[str, EventTable]:
    """Return the Kafka topics of a code location by topic name."""
    return declared_topics(node.declaration for node in graph.tables())


def watch_topics(tick: Tick, out_of_time: OutOfTime) -> None:
    """Update the alerts of topics and tables.

    If a table cannot be checked, its alerts stay and the tick notes a problem.
    """
    tables, states_of = followers_of(tick.graph), _states_once()
    with tick.ledger.read() as connection:
        opened = alerts.open_alerts(connection)
    opened_reasons = {each.name: each.reason for each in opened if each.name.partition(":")[0] in KINDS}
    if not tables and not opened_reasons:
        return
    reasons = {
        alert: opened_reasons[alert] for table in tables for alert in _alerts_of(table) if alert in opened_reasons
    }
    for table in tables:
        if out_of_time():
            break
        # The event source's own sensor reports a source that stays busy.
        with failing_alone(tick.problems, str(table.feed)), suppress(SourceBusy):
            _look(tick.ledger, table, states_of, opened_reasons, reasons)
    own_alerts = OwnAlerts(tick.graph, tick.ledger, tick.now)
    for kind in KINDS:
        of_kind = {name.removeprefix(f"{kind}:"): why for name, why in reasons.items() if name.startswith(f"{kind}:")}
        alerts.keep(tick.ledger, kind, {key: why for key, why in of_kind.items() if why}, tick.now, own_alerts.has_feed)


def followers_of(graph: Graph) -> list[EventTable]:
    """Return the Kafka topics and warehouse tables of a code location."""
    tables = [node.declaration for node in graph.tables()]
    return [each for each in tables if isinstance(each, EventTable) and (each.topic or each.loaded)]


def _alerts_of(table: EventTable) -> list[str]:
    kinds = (NOT_LOADED if table.loaded else DEAD_LETTERS, *([BEHIND] if table.lag else []))
    return [f"{kind}:{table.feed}" for kind in kinds]


def _look(
    ledger: Ledger, table: EventTable, states_of: StatesOf, opened_reasons: Mapping[str, str], reasons: dict[str, str]
) -> None:
    """Add the problems of a topic or table to `reasons`, by alert name. A reason '' means no problem."""
    if not isinstance(table.loaded, LoadedDataset):
        check_installed()
    if table.loaded:
        reasons[f"{NOT_LOADED}:{table.feed}"] = _not_loaded(table.loaded, states_of)
    else:
        reasons[f"{DEAD_LETTERS}:{table.feed}"] = _dead(ledger, table.table_name)
    if table.lag is not None:
        alert = f"{BEHIND}:{table.feed}"
        loaded = None if isinstance(table.loaded, LoadedDataset) else table.loaded
        why = _unloaded(loaded, table.lag, states_of) if loaded else _behind(table.table_name, table.lag)
        reasons[alert] = (opened_reasons.get(alert) or why) if why else ""  # An open alert keeps its first text.


def _states_once() -> StatesOf:
    """Return a function that queries each warehouse once, so that a busy warehouse causes only one wait."""
    from feed_assets.sources.warehouse_events import states

    busy: dict[str, SourceBusy] = {}
    look = cache(states)

    def states_of(warehouse: str) -> "list[TableState]":
        if warehouse in busy:
            raise busy[warehouse]
        try:
            return look(warehouse)
        except SourceBusy as error:
            busy[warehouse] = error
            raise

    return states_of


def _not_loaded(loaded: LoadedTopic | LoadedUnion | LoadedDataset, states_of: StatesOf) -> str:
    """Return the reason why nothing is loaded yet or loading has stopped, or the number of refused rows.

    Return '' if there is no problem.
    """
    states = [each for each in states_of(loaded.warehouse) if each.topic == loaded.name]
    if not states:
        return f"{NOT_YET}{_why_nothing(loaded)}"
    if states[0].problem:
        return f"{loaded.name} is not loaded into {loaded.warehouse} any more: {states[0].problem}"
    if not (refused := sum(each.refused for each in states)):
        return ""
    return (
        f"{refused:,} rows of {loaded.name} cannot be stored in {loaded.warehouse}. `feed-assets warehouse refused "
        f"{loaded.warehouse} {loaded.name}` shows the offset, reason and content of each. Once they are handled, add "
        "--drop --apply."
    )


def _why_nothing(loaded: LoadedTopic | LoadedUnion | LoadedDataset) -> str:
    why = f"`feed-assets warehouse load {loaded.warehouse}` loads {loaded.name}. Check whether it runs."
    if isinstance(loaded, LoadedDataset):
        return why
    from feed_assets.kafka.lag import why_unsignalled
    from feed_assets.sources.topic_events import clients_for, translated

    with translated():
        unsignalled = [why_unsignalled(clients_for(each), each) for each in _topics(loaded)]
    return "; ".join(unsignalled) if all(unsignalled) else why


def _topics(loaded: LoadedTopic | LoadedUnion) -> tuple[str, ...]:
    return (loaded.topic,) if isinstance(loaded, LoadedTopic) else loaded.topics


def _unloaded(loaded: LoadedTopic | LoadedUnion, most: int, states_of: StatesOf) -> str:
    from feed_assets.kafka.lag import ends
    from feed_assets.sources.topic_events import clients_for, translated

    with translated():
        end_offsets = {topic: ends(clients_for(topic), topic) for topic in _topics(loaded)}
    nexts = {each.place: each.next_offset for each in states_of(loaded.warehouse) if each.topic == loaded.name}
    is_union = isinstance(loaded, LoadedUnion)
    behind = {
        f"{topic}/{each}": end - (nexts.get(named(topic, each) if is_union else str(each)) or 0)
        for topic, ends_by_partition in end_offsets.items()
        for each, end in sorted(ends_by_partition.items())
    }
    lagging = [f"{place} {count:,}" for place, count in behind.items() if count > most]
    if not lagging:
        return ""
    return (
        f"messages without a row: {shortened(lagging, NAMED)}. Expected at most {most:,} per partition (lag). Check "
        f"whether `feed-assets warehouse load {loaded.warehouse}` runs; `feed-assets warehouse state "
        f"{loaded.warehouse}` shows its progress."
    )


def _behind(name: str, most: int) -> str:
    from feed_assets.kafka.lag import lag
    from feed_assets.sources.topic_events import clients_for, translated

    with translated():
        late = [each for each in lag(clients_for(name), name) if each.behind > most]
    lagging = [f"{name}/{each.partition} {each.behind:,} since {each.since:%Y-%m-%d %H:%M:%S} UTC" for each in late]
    if not lagging:
        return ""
    return (
        f"messages without a chunk: {shortened(lagging, NAMED)}. Expected at most {most:,} per partition (lag). Check "
        f"whether `feed-assets connector run` runs; `feed-assets kafka lag {name}` shows its progress."
    )


def _dead(ledger: Ledger, name: str) -> str:
    """Return the reason of the alert about a topic's dead letters that nobody has handled.

    Return '' if there are none. Count only the dead letters since the last tick, and store their total together with
    the position.
    """
    from feed_assets.kafka.dead_letters import Open, opened
    from feed_assets.sources.topic_events import clients_for, translated

    cursor, adapter = f"dead letters of {name}", TypeAdapter(Open)
    with ledger.read() as connection:
        kept = get_cursor(connection, cursor)
    recorded = adapter.validate_json(kept) if kept else Open({})
    with translated():
        counted = opened(clients_for(name), name, recorded, LETTERS_PER_TICK, ANSWER_SECONDS)
    if counted != recorded:
        with ledger.write() as connection:
            if get_cursor(connection, cursor) == kept:  # otherwise another process has counted them
                put_cursors(connection, {cursor: adapter.dump_json(counted).decode()})
    if counted.count <= 0:
        return ""
    return (
        f"{counted.count:,} messages of {name} are no records. The last of them is {counted.last}. `feed-assets kafka "
        f"dead-letters {name}` lists them. Handle them with --replay or --drop."
    )

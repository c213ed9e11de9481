"""Rounds of one correlation id through a pipeline. Each pass is a round, and is judged separately.

An id recurs when a table is built again from the same inputs: after a roll-back, or with changed code.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from feed_assets.core.feeds import Feed

History = Iterable[tuple[Feed, int]]
"""All events of one correlation id, consumed or not, as (table, number) in commit order."""


@dataclass(frozen=True)
class Round:
    """One pass of a correlation id through a pipeline. `missing` are the tables without an event in this pass."""

    number: int
    missing: frozenset[Feed]


def rounds(history: History, expected: Set[Feed]) -> Mapping[int, Round]:
    """Return the round of each event of the `expected` tables, by the event's number.

    A round ends when every expected table has an event. Until then, a second event of a table stays in the same round.
    """
    numbers: list[list[int]] = [[]]
    tables: list[set[Feed]] = [set()]
    for table, sequence in history:
        if table not in expected:
            continue
        if tables[-1] == expected:
            numbers.append([])
            tables.append(set())
        numbers[-1].append(sequence)
        tables[-1].add(table)
    all_rounds = [Round(at, frozenset(expected - reached)) for at, reached in enumerate(tables)]
    return {sequence: all_rounds[at] for at, group in enumerate(numbers) for sequence in group}

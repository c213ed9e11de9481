"""Rounds of one correlation id through a pipeline: each pass is a round, and each is judged for itself.

An id recurs when a table is made anew of what it was made of before: after a roll-back, or with changed code.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from feed_assets.core.feeds import Feed

History = Iterable[tuple[Feed, int]]
"""The events of one correlation id, consumed or not: their tables and numbers, in commit order."""


@dataclass(frozen=True)
class Round:
    """One pass; `missing` are the tables that have no event of it."""

    number: int
    missing: frozenset[Feed]


def rounds(history: History, expected: Set[Feed]) -> Mapping[int, Round]:
    """Return the round of each event of the wanted tables, by the event's number.

    A table that publishes twice stays in its round until every table has its event; the next event begins a new one.
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

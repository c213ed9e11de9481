"""Counts of an input's records, made in the same pass that reads the input to write the dataset.

An observation counts the records that pass through it. The observation may be wrong if a function may leave some
records unread, or has run an action of its own. In these cases a separate job counts the records.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation

_NODE = re.compile(r"((?:[: ]  )*(?:[:+]- )?)(\w+)")
_INDENT = 3
_WATCH = "CollectMetrics"
_TAKES_EVERY_ROW = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "Distinct",
        "Expand",
        "Filter",
        "Generate",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
        "Window",
    }
)
"""Nodes of an analyzed plan that read all rows of their inputs. A join may read fewer if one side is empty."""


@dataclass(frozen=True)
class Tally:
    """Aggregates of one input's records, by name, which Spark computes while a run reads the records.

    The user's function gets `frame`, which observes the records that pass through it.
    """

    records: DataFrame
    counts: Mapping[str, Column]
    frame: DataFrame
    observation: Observation
    name: str
    is_whole: bool = False
    """True if every record passes through the observation when the dataset is written."""

    @classmethod
    def of(cls, records: DataFrame, counts: Mapping[str, Column]) -> "Tally":
        """Return a tally that computes the aggregates `counts` of these records while they are read."""
        name = str(uuid4())
        observation = Observation(name)
        frame = records.observe(observation, *counts.values())
        return cls(records, counts, frame, observation, name)

    def judged(self, result: DataFrame) -> "Tally":
        """Return the tally with `is_whole` set: whether the write of `result` reads all records."""
        is_whole = not _is_over(self.observation) and reads_whole(_analyzed_plan(result), self.name)
        return replace(self, is_whole=is_whole)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Return the aggregates after the result was written.

        The optimizer may have removed the observation, for example if a filter is always false. Then the observation
        has no values, and a separate job counts.
        """
        values: Mapping[str, Any] = observed_values(self.observation) if self.is_whole else {}
        return values or self.records.agg(*self.counts.values()).collect()[0].asDict()


def reads_whole(plan: str, name: str) -> bool:
    """Return whether the observation `name` occurs once in an analyzed plan, and all nodes above it read every row."""
    above: list[tuple[int, str]] = []
    count = 0
    is_whole = True
    has_subquery = False
    for line in plan.splitlines():
        if not (node := _NODE.match(line)):
            continue
        depth = len(node[1]) // _INDENT
        while above and above[-1][0] >= depth:
            above.pop()
        # A node inside an expression, such as IN (SELECT …), is indented two levels deeper than the node that has the
        # expression. Spark turns such an expression into a join.
        has_subquery |= depth > 0 and (not above or above[-1][0] != depth - 1)
        if node[2] == _WATCH and name in line:
            count += 1
            is_whole = all(kind in _TAKES_EVERY_ROW | {_WATCH} for _, kind in above)
        above.append((depth, node[2]))
    return count == 1 and is_whole and not has_subquery


def _analyzed_plan(frame: Any) -> str:
    """Return the analyzed plan of a frame as text. The frame may be of a session with a JVM or of Spark Connect."""
    if java := getattr(frame, "_jdf", None):
        return java.queryExecution().analyzed().toString()
    return frame._explain_string(extended=True).split("== Analyzed Logical Plan ==")[1].split("\n== ")[0]


def _is_over(observation: Any) -> bool:
    """Return whether an action, or an error, has ended an observation."""
    if java := getattr(observation, "_jo", None):
        return java.future().isCompleted()
    return bool(observation._result) or observation._error is not None


def observed_values(observation: Any) -> Mapping[str, Any]:
    """Return the values of an observation without waiting for it. Return an empty mapping if it has no values."""
    java = getattr(observation, "_jo", None)
    if java and (not java.future().isCompleted() or java.getAsJava().isEmpty()):
        return {}
    return observation.get

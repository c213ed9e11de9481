"""A maker without Spark: the test gives the rows, check results and counts that Spark would compute.

The maker calls no dataset's function and evaluates no check: an imitation of Spark could compute something else than
Spark does.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from feed_assets.core.errors import InvalidDefinition, UnreadableUpdate
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.markdown import as_text, table
from feed_assets.core.profiles import Measures
from feed_assets.core.write_result import Counts, Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import listed
from feed_assets.runs.checks import Check
from feed_assets.runs.maker import Audit, Output, Task
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.profiling import judged

Row = Mapping[str, Any]


def _columns(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return the columns of the first row: each name, with the name of the value's Python type."""
    return tuple((name, type(value).__name__) for name, value in rows[0].items()) if rows else ()


@dataclass(frozen=True)
class Given:
    """The outcome of a run, as the test gives it.

    Args:
        rows: The dataset's rows. They are written as JSON lines; equal rows have equal data versions.
        rejects: The rows of the dataset's feed of rejects.
        failed: The figure that each failing check found, by the check's name. Every other check passes. A deep check
            can only fail if the given measures make the profile run the deep checks.
        windows: Number of the dataset's rows in each window, by the window's start (UTC). None: not counted. Only
            for a dataset with `completeness`.
        counted: Record counts for updates that no run has counted yet, by the name of the input. They are used only for
            feeds of other teams whose records this dataset's runs count. An input that is not listed counts as empty.
        measures: The values of the profile's measures, by name. A measure not listed is NULL.
        figures: The dataset's key figures, by name. A figure not listed is NULL.
    """

    rows: Sequence[Row] = ()
    rejects: Sequence[Row] = ()
    failed: Mapping[str, float] = field(default_factory=dict[str, float])
    windows: Counts | None = None
    counted: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    measures: Measures = field(default_factory=dict[str, float])
    figures: Measures = field(default_factory=dict[str, float])


def by_inputs(task: Task) -> Given:
    """Return one row that lists the data read. The row differs whenever an input differs.

    Args:
        task: The task of the run.

    Returns:
        The row, with a column for each input: paths of updates, ends of slices, or windows of spans.
    """
    read = {name: [update.path for update in updates] for name, updates in task.updates.items()}
    read |= {name: [f"{piece.partition.path}/{piece.end}" for piece in some] for name, some in task.slices.items()}
    read |= {name: [each.key for each in span.windows] for name, span in task.spans.items() if span}
    read |= {"previous": [task.previous.path]} if task.previous else {}
    return Given([read])


@dataclass(frozen=True)
class PlainMaker:
    """A maker that writes given rows in milliseconds, in place of Spark.

    Args:
        give: A function that returns the outcome of a task, or raises the error of its run. By default the outcome
            is one row that differs whenever an input differs.
    """

    give: Callable[[Task], Given] = by_inputs

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator["PlainMade"]:
        """Yield the outcome that the test gives for a task."""
        yield PlainMade(task, board, self.give(task))

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Return the number of rows of an update written by this maker, and their data version."""
        return len(rows_of(board, update)), _version(_text(board, update))


@dataclass(frozen=True)
class PlainMade:
    """The rows that were given for one task."""

    task: Task
    board: Blackboard
    test_data: Given

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write the rows of one output as one part of JSON lines."""
        is_main = partition.feed == self.task.output.feed
        rows = self._rows if is_main else self.test_data.rejects
        text = "".join(f"{json.dumps(dict(row), default=str)}\n" for row in rows).encode()
        self.board.put(f"{partition.path}/{update_id}/part-0.json", text)
        files = listed(self.board, partition, update_id)
        windows = self._windows if is_main else None
        size, columns = sum(file.size for file in files), _columns(rows)
        return Written(
            files, len(rows), size, first=None, last=None, data_version=_version(text), windows=windows, columns=columns
        )

    def counted(self) -> list[tuple[Update, Counts]]:
        """Return the counts that the test gives for the task's inputs."""
        uncounted = self.task.uncounted.items()
        return [(update, self.test_data.counted.get(name, ())) for name, updates in uncounted for update in updates]

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Return, for every check of the dataset, the result that the test gave."""
        recipe = self.task.recipe
        if unknown := sorted(self.test_data.failed.keys() - {check.name for check in recipe.all_checks}):
            raise InvalidDefinition(f"{recipe.feed} has no check {unknown[0]}: expected the name of one of its checks.")
        measures = self.test_data.measures if recipe.profile else None
        preview = _preview(rows_of(self.board, outputs[-1].update))
        figures = {name: number for name, number in self.test_data.figures.items() if name in recipe.figures}
        return Audit((*self._results(recipe.checks), *self._profile), preview, None, measures, figures)

    @property
    def _windows(self) -> Counts | None:
        """Return the test's counts of the dataset's rows by window.

        Raise InvalidDefinition if the test gives counts for a dataset without completeness. Spark does not count the
        rows of such a dataset.
        """
        recipe = self.task.recipe
        if self.test_data.windows is not None and not recipe.grain:
            raise InvalidDefinition(
                f"{recipe.feed} has no completeness, so its rows are not counted: expected no windows. Declare "
                "completeness, or give no windows."
            )
        return self.test_data.windows

    @property
    def _rows(self) -> Sequence[Row]:
        """Return the rows that the run publishes. A dataset that checks another team's rows publishes their profile."""
        return self._profile[0].sample if self.task.recipe.is_companion else self.test_data.rows

    @property
    def _profile(self) -> Sequence[CheckResult]:
        recipe, task = self.task.recipe, self.task
        deep_checks = partial(self._results, recipe.deep_checks)
        return judged(recipe, self.test_data.measures, task.baseline, deep_checks, is_suspect=task.is_suspect)

    def _results(self, checks: Sequence[Check]) -> tuple[CheckResult, ...]:
        failed, rows = self.test_data.failed, len(self.test_data.rows)
        return tuple(
            CheckResult(check, check.name not in failed, failed.get(check.name, 0.0), rows=rows) for check in checks
        )


def rows_of(board: Blackboard, update: Update) -> list[dict[str, Any]]:
    """Read the rows that a PlainMaker wrote.

    Args:
        board: The blackboard that the update is on.
        update: The update, such as an input of a task.

    Returns:
        The rows in their order.

    Raises:
        UnreadableUpdate: The update does not consist of JSON lines.
    """
    try:
        return [json.loads(line) for line in _text(board, update).splitlines()]
    except ValueError as error:
        raise UnreadableUpdate(
            f"{update.path} holds no JSON lines: expected an update that a PlainMaker wrote."
        ) from error


def _text(board: Blackboard, update: Update) -> bytes:
    return b"".join(board.get(file.key) or b"" for file in update.files)


def _version(text: bytes) -> str:
    return sha256(text).hexdigest()[:32]


def _preview(rows: Sequence[Row]) -> str:
    """Return the first rows as a Markdown table."""
    columns = [*rows[0]] if rows else []
    return table([*map(as_text, columns)], ([as_text(str(row[name])) for name in columns] for row in rows[:5]))

"""The functions of the world's datasets in plain Python, and a maker that writes their rows as Parquet."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.write_result import Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import listed
from feed_assets.runs.maker import Audit, Output, Task
from feed_assets.testing import Given
from feed_assets.testing.plain import PlainMade
from feed_assets_tests.reliability import published

Rows = list[dict[str, Any]]
Function = Callable[[Task, dict[str, Rows]], Given]

functions: dict[str, Function] = {}
"""The function of each dataset, by its feed."""


def makes(feed: str) -> Callable[[Function], Function]:
    """Register the function of a dataset."""

    def register(function: Function) -> Function:
        functions[feed] = function
        return function

    return register


def made_of(task: Task) -> dict[str, Any]:
    """Return what each row tells of its run: the updates that it read, and the version of the code."""
    read = sorted(each.path for some in task.updates.values() for each in some)
    return {"made_of": json.dumps(read), "code": task.recipe.code_version or ""}


@dataclass(frozen=True)
class WorldMaker:
    """A maker that calls the functions of the world in place of Spark."""

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator["WorldMade"]:
        """Yield the rows of a task."""
        inputs = {
            name: [row for each in some for row in _read(task.boards.get(name) or board, each)]
            for name, some in task.updates.items()
        }
        yield WorldMade(task, board, functions[str(task.recipe.feed)](task, inputs))

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Return the number of rows of an update, and their data version."""
        rows = _read(board, update)
        return len(rows), _version(rows)


@dataclass(frozen=True)
class WorldMade(PlainMade):
    """The rows of one task, which are written as one Parquet file."""

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write the rows of one output."""
        is_main = partition.feed == self.task.output.feed
        rows = [dict(row) for row in (self.test_data.rows if is_main else self.test_data.rejects)]
        buffer = BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        self.board.put(f"{partition.path}/{update_id}/part-0.parquet", buffer.getvalue())
        files = listed(self.board, partition, update_id)
        size = sum(file.size for file in files)
        columns = tuple((name, type(value).__name__) for name, value in rows[0].items()) if rows else ()
        return Written(files, len(rows), size, first=None, last=None, data_version=_version(rows), columns=columns)

    def audit(self, outputs: list[Output]) -> Audit:
        """Return the results of the dataset's checks."""
        return Audit(self._results(self.task.recipe.checks), "", None)


def _read(board: Blackboard, update: Update) -> Rows:
    return [row for file in update.files for row in published.rows_in(file.key, board.get(file.key) or b"")]


def _version(rows: Rows) -> str:
    return sha256(json.dumps(rows, default=str).encode()).hexdigest()[:32]

"""A loader in a separate process that is killed at a statement. One of them is wrong."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed
from feed_assets.core.topic_unions import UnionPart
from feed_assets.core.topics import Conflicts
from feed_assets.core.warehouses import Warehouse
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.warehouse import load as loads
from feed_assets.warehouse import load_state, loader, statements, union_state
from feed_assets.warehouse.dataset import DatasetUpdates
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load import LoadContext
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.target import Target, engine_of
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.topic_loader import load_signals

HOLDER = "the test"


def die(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(connection: Any) -> None:
    """Stop until continued; an open transaction may be idle for a second from now on."""
    connection._opened.execute("SET LOCAL idle_in_transaction_session_timeout = '1s'")
    os.kill(os.getpid(), signal.SIGSTOP)


end = die
"""Action at the chosen statement."""


def asleep_at(said: Path, *arguments: Any) -> None:
    """Run like `killed_at`, but sleep at the statement until woken. Write the name of the error it then ends with."""
    global end
    end = sleep
    try:
        killed_at(*arguments)
    except FeedAssetsError as error:
        said.write_text(type(error).__name__)


def killed_at(
    url: str,
    board: str,
    name: str,
    signals: Sequence[Signalled],
    shapes: Mapping[int, Shape],
    at: int | str,
    is_after: bool = False,
    is_wrong: bool = False,
    conflicts: Conflicts = "stop",
    part: UnionPart | None = None,
    has_snapshots: bool = False,
) -> None:
    """Load new chunks, and be killed before or after a statement, given by its number or its beginning.

    `part` is the topic of the chunks if the table is a union.
    """
    engine = engine_of(url)
    with opened(engine) as connection:
        known = load_state.read(connection, name)
    known = union_state.with_topics(name, known, part.topics) if part else known
    nexts = {number: each.next_offset for number, each in union_state.positions_of(known, part).items()}
    new = [each for each in signals if each.signal.next_offset > nexts.get(each.signal.partition, 0)]
    if is_wrong:
        loads._Rows.merge = committed(loads._Rows.merge)
    counting(type(connection), at, is_after)
    place = LoadContext(engine, Blackboard.open(board), HOLDER, 7, conflicts, part, has_snapshots)
    load_signals(place, name, known, new, lambda schema_id: shapes.get(schema_id or 0))


def counting(kind: Any, at: int | str, is_after: bool) -> None:
    """Let a connection die at a statement, which may be a copy."""
    done = 0

    def counted(work: Any) -> Any:
        def called(self: Any, statement: str, *arguments: Any) -> Any:
            nonlocal done
            done += 1
            is_it = done == at if isinstance(at, int) else statement.startswith(at)
            if is_it and not is_after:
                end(self)
            found = work(self, statement, *arguments)
            if is_it and is_after:
                end(self)
            return found

        return called

    kind.execute, kind.copy = counted(kind.execute), counted(kind.copy)


def committed(merge: Any) -> Any:
    """Wrong implementation: rows are committed before positions."""

    def merged(self: Any, *arguments: Any) -> None:
        merge(self, *arguments)
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")

    return merged


def dataset_killed_at(
    url: str, board: str, ledger: str, feed: str, at: int | str, is_after: bool, is_wrong: bool
) -> None:
    """Load new updates of a dataset, and be killed before or after a statement; the previous lease is over."""
    loader.LEASE_SECONDS = 0.0
    target = Target("main", Warehouse(url=url))  # type: ignore[arg-type]
    of = DatasetUpdates(Feed.parse(feed), open_ledger(ledger), Blackboard.open(board))
    if is_wrong:
        statements.remove = apart(statements.remove)
    with opened(target.engine) as connection:
        counting(type(connection), at, is_after)
    loader.once(target, {feed: of})


def apart(remove: Any) -> Any:
    """Wrong implementation: old rows are deleted and committed before the new ones come."""

    def removed(engine: Engine, table: str, key: str) -> str:
        return f"{remove(engine, table, key)}; COMMIT; BEGIN"

    return removed

"""The work for a place: its tasks, lane by lane, while this process has the turn."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import sqlalchemy as sa

from feed_assets.core.errors import CopyDamaged, FeedAssetsError, NoValidUpdate, TurnLost, UpdateChanged, in_short
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT
from feed_assets.feeds import read
from feed_assets.ledger import batch_partitions, place_copies, updates
from feed_assets.ledger.tables import update as update_table
from feed_assets.replication import replica_tasks, replicas
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.place_marks import check_place
from feed_assets.replication.place_retention import remove_old
from feed_assets.replication.places import Place
from feed_assets.replication.publication import copy_update, withdraw
from feed_assets.replication.replica_tasks import COPY, WITHDRAW, ReplicaTask
from feed_assets.replication.restored_files import with_current_etags
from feed_assets.replication.transitions_read import fill
from feed_assets.replication.turn import Turn
from feed_assets.runs.services import Services

DONE, FAILED = "done", "failed"

_SECONDS_PER_LOOK = 5
"""Time after which new transitions become tasks while copies go on, because a large file may take hours."""


@dataclass
class Replicated:
    """Result of the work for a place: numbers of tasks.

    `is_busy` is True if another process has the turn, or the place is paused.
    """

    done: int = 0
    failed: int = 0
    is_busy: bool = False

    def add(self, outcome: Callable[[], str]) -> None:
        """Count the outcome of a task."""
        try:
            ended = outcome()
        except TurnLost:
            self.is_busy = True
            return
        self.done += ended == DONE
        self.failed += ended == FAILED


def replicate(services: Services, place: Place, out_of_time: Callable[[], bool] = lambda: False) -> Replicated:
    """Do the tasks of a place that are due, until none is left or the time is over.

    New transitions become tasks first, and again whenever the read tasks are done. A task that fails holds its lane;
    the others go on.
    """
    turn = Turn(services.ledger, place.name, services.now)
    if not turn.take():
        fill(services.ledger, place, services.now(), services.of_others())
        return Replicated(is_busy=True)
    try:
        return _work(CopyEnds(services, place, turn), out_of_time)
    finally:
        turn.end()


def _work(ends: CopyEnds, out_of_time: Callable[[], bool]) -> Replicated:
    """Do tasks of different lanes at the same time. A lane has one task in work."""
    result, queue, lanes = Replicated(), deque[ReplicaTask](), dict[Future[str], str]()
    with ThreadPoolExecutor(ends.place.center.at_once) as threads:
        while True:
            if result.is_busy:
                queue.clear()
            elif not queue and len(lanes) < ends.place.center.at_once and not out_of_time():
                queue += [each for each in _heads(ends) if each.lane not in lanes.values()]
            while queue and len(lanes) < ends.place.center.at_once and not out_of_time():
                task = queue.popleft()
                lanes[threads.submit(_tried, ends, task)] = task.lane
            if not lanes:
                return result
            for ended in wait(lanes, _SECONDS_PER_LOOK, FIRST_COMPLETED).done:
                del lanes[ended]
                result.add(ended.result)


def _heads(ends: CopyEnds) -> list[ReplicaTask]:
    services, name = ends.services, ends.place.name
    fill(services.ledger, ends.place, services.now(), services.of_others())
    with services.ledger.read() as connection:
        limit = 2 * ends.place.center.at_once  # As many as may be in work, and as many new ones.
        return replica_tasks.heads(connection, name, services.now(), limit=limit, rank=ends.place.rank)


def _tried(ends: CopyEnds, task: ReplicaTask) -> str:
    """Do a task, and return DONE or FAILED. Raise TurnLost."""
    try:
        ends.turn.keep()
        _check_once(ends)
        _do(ends, task)
    except TurnLost:
        raise
    except Exception as error:  # noqa: BLE001  A lane must not stop the others, and its error is in `ls`.
        reason = in_short(error) if isinstance(error, FeedAssetsError) else f"unexpected {in_short(error)}"
        with ends.services.ledger.write() as connection:
            replica_tasks.failed(connection, task, ends.services.now(), reason)
        return FAILED
    with ends.services.ledger.write() as connection:
        ends.turn.check(connection)  # Another process may have found more to do for it meanwhile.
        replica_tasks.remove(connection, task)
        place_copies.wake_waiting(connection, task.place, task.partition, ends.services.now())
    ends.services.on_step("task done")
    return DONE


def _check_once(ends: CopyEnds) -> None:
    """Check the place's mark. All tasks share the result: a place that is away does not wait for each of them."""
    with ends.checking:
        if not ends.checked.done():
            try:
                ends.checked.set_result(check_place(ends.services, ends.place))
            except Exception as error:  # noqa: BLE001  Each task raises it.
                ends.checked.set_exception(error)
    ends.checked.result()


def _do(ends: CopyEnds, task: ReplicaTask) -> None:
    """Do what the source's state asks for now. A later transition of the same update has a task of its own."""
    with ends.services.ledger.read() as connection:
        row = updates.find(connection, task.partition, task.id)
        is_wanted = row is not None and row.state == updates.PUBLISHED
        is_overtaken = is_wanted and _is_overtaken(connection, ends.place, task)
    if task.action == COPY and is_wanted and not is_overtaken:
        try:
            _copy(ends, task, task.id)
        except (NoValidUpdate, UpdateChanged, CopyDamaged):
            if not _is_gone_and_replaced(ends, task):
                raise
    elif task.action == WITHDRAW and not is_wanted:
        _withdraw(ends, task)
        _copy_newest(ends, task)
    remove_old(ends, task.partition)


def _is_gone_and_replaced(ends: CopyEnds, task: ReplicaTask) -> bool:
    """Return whether the source no longer has an update, or has other files of it, and the ledger has a newer one.

    The ledger learns only about the newest update that its owner changes. An older one must not hold its lane. What the
    place has of it stays: it may be the only good copy, and readers get the newer one.
    """
    with ends.services.ledger.read() as connection:
        recorded = updates.recorded(connection, task.partition, task.id)
        newest = updates.newest(connection, [task.partition]).get(task.partition)
    if newest is None or newest.id <= task.id:
        return False
    try:
        current = read.named(ends.source_of(task.partition), task.partition, task.id)
    except NoValidUpdate:
        return True
    return recorded is not None and current.files != recorded.files


def _copy(ends: CopyEnds, task: ReplicaTask, update_id: str) -> None:
    """Copy an update of the task's partition, unless the place has it with these files, or its pattern was removed."""
    if not ends.place.has(task.partition.feed):
        return
    with ends.services.ledger.read() as connection:
        copy = replicas.find(connection, task.place, task.partition, update_id)
        recorded = updates.recorded(connection, task.partition, update_id)
    # An old row of the ledger has no list of files: then list the source.
    update = recorded or read.named(ends.source_of(task.partition), task.partition, update_id)
    is_recorded = copy is not None and (copy.state, copy.files_digest) == (replicas.PUBLISHED, update.files_digest)
    # A withdrawal that was cut has left no manifest, and the row as it was.
    if not is_recorded or ends.board.get(f"{update.path}/{MANIFEST}", MANIFEST_LIMIT + 1) is None:
        update = with_current_etags(ends, recorded, copy) if recorded and copy and copy.files else update
        copy_update(ends, update, task.since)


def _copy_newest(ends: CopyEnds, task: ReplicaTask) -> None:
    """Copy the update that readers of the source get in place of a withdrawn one, if the place no longer has it."""
    with ends.services.ledger.read() as connection:
        newest = updates.newest(connection, [task.partition]).get(task.partition)
    if newest:
        _copy(ends, task, newest.id)


def _withdraw(ends: CopyEnds, task: ReplicaTask) -> None:
    withdraw(ends, task.partition, task.id)
    with ends.services.ledger.read() as connection:
        copy = replicas.find(connection, task.place, task.partition, task.id)
    if copy and copy.state != replicas.REMOVED:
        ends.set_withdrawn(task.partition, task.id)


def _is_overtaken(connection: sa.Connection, place: Place, task: ReplicaTask) -> bool:
    """Return whether a place keeps only newer updates of the same partition, so that this one is not worth a copy."""
    keep, parent = place.center.keep, task.partition.parent
    if keep is None:
        return False
    if parent and task.partition in batch_partitions.recorded_batches(connection, [parent])[parent]:
        return False
    newer = (update_table.c.id > task.id) & (update_table.c.state == updates.PUBLISHED)
    query = sa.select(sa.func.count()).select_from(update_table).where(updates.is_(task.partition), newer)
    return connection.execute(query).scalar_one() >= keep

"""Eight processes that work on one partition at once: the code of each, which records the time of every call."""

import random
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from queue import Empty

from feed_assets.core.errors import BlackboardUnavailable, InvalidName, NoValidUpdate, UpdateAbandoned
from feed_assets.core.feeds import MANIFEST, Update, parse_update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate
from feed_assets_tests.faults.histories import Published, Read, Record, Removed, timed
from feed_assets_tests.faults.ways import Watched, Ways
from feed_assets_tests.support.feed_processes import MEN, NOW, processes, start

CLOCKS = [timedelta(0), timedelta(0), timedelta(hours=-1)]
"""Offsets of the publishers' clocks, which never advance: each publisher gives all its updates the same second."""


def together(ways: Ways, url: str, publishes: int, seed: int) -> tuple[list[Record], list[int | None]]:
    """Run three publishers, three readers, an invalidator and a pruner. Return their records and exit codes."""
    records, over, gate = processes.Queue(), processes.Event(), processes.Barrier(len(CLOCKS) + 5)
    share = -(-publishes // len(CLOCKS))
    writers = [start(_publish, ways, url, number, share, seed, records, gate) for number in range(len(CLOCKS))]
    others = [start(_read, ways, url, f"reader {number}", seed + number, records, over, gate) for number in range(3)]
    others += [start(work, ways, url, seed, records, over, gate) for work in (_invalidate, _prune)]
    everybody = [*writers, *others]
    try:
        found = reported(writers, records, 240)
        over.set()
        found += reported(others, records, 60)
        for process in everybody:
            process.join(60)
    finally:
        for process in everybody:
            process.kill()
    return found, [process.exitcode for process in everybody]


def reported(workers: list[BaseProcess], records, seconds: float) -> list[Record]:
    """Collect what each process reports at its end. Do not wait for a process that died, which reports nothing."""
    until, found = time.monotonic() + seconds, []
    left = len(workers)
    while left and time.monotonic() < until:
        alive = any(worker.is_alive() for worker in workers)
        try:
            found += records.get(timeout=0.2)
            left -= 1
        except Empty:
            if not alive:
                break
    return found


def _publish(ways: Ways, url: str, number: int, count: int, seed: int, records, gate) -> None:
    board, chance, mine = ways.over(Blackboard.open(url)), random.Random(seed * 10 + number), []  # noqa: S311
    gate.wait(60)
    for turn in range(count):
        writer = f"{number}-{turn}"
        parts = {f"part-{part}": writer.encode() for part in range(chance.randint(1, 4))}
        try:
            began, ended, update = timed(lambda parts=parts: ways.publish(board, MEN, parts, NOW + CLOCKS[number]))
        except (UpdateAbandoned, BlackboardUnavailable):  # only if two writers share an id; then this record is missing
            continue
        mine.append(Published(began, ended, update.id, frozenset(parts), writer))
    records.put(mine)


def _read(ways: Ways, url: str, reader: str, seed: int, records, over, gate) -> None:
    board, chance, mine = Blackboard.open(url), random.Random(seed), []  # noqa: S311
    gate.wait(60)
    while not over.is_set():
        as_of = NOW + timedelta(seconds=chance.randint(-3_600, 1_000)) if chance.random() < 0.2 else None
        began, ended, update = timed(lambda as_of=as_of: ways.latest(board, MEN, as_of))
        until = {} if as_of is None else {"as_of": as_of.strftime("%Y%m%d.%H%M%S")}
        mine.append(
            Read(began, ended, reader, update and update.id, _names(update), **until, writer=_of(board, update))
        )
    records.put(mine)


def _names(update: Update | None) -> frozenset[str]:
    return frozenset(file.key.removeprefix(f"{update.path}/") for file in update.files) if update else frozenset()


def _of(board: Blackboard, update: Update | None) -> str | None:
    """Return the writer of the update's first part.

    Return None if it is gone or no part: only without the count rule.
    """
    try:
        content = board.get(update.files[0].key) if update and update.files else None
    except InvalidName:
        return None
    return content.decode() if content else None


def _invalidate(ways: Ways, url: str, seed: int, records, over, gate) -> None:
    """Invalidate one of the newest updates at intervals, by its manifest or by a file."""
    board, chance, mine = Blackboard.open(url), random.Random(seed), []  # noqa: S311
    gate.wait(60)
    while not over.wait(0.02):
        names = [name for name in board.children(MEN.path) if parse_update_id(name)][-4:]
        if not names or not (update := _valid(board, chance.choice(names))):
            continue
        how = chance.choice(("manifest", "file"))
        try:
            began, ended, _ = timed(lambda name=update, how=how: invalidate(board, MEN, name, how=how))
        except NoValidUpdate:  # Pruned in the meantime.
            continue
        mine.append(Removed(began, ended, update))
    records.put(mine)


def _valid(board: Blackboard, name: str) -> str | None:
    """Return the name if its manifest exists: an update that is still being written is not invalidated."""
    return name if board.get(f"{MEN.path}/{name}/{MANIFEST}") is not None else None


def _prune(ways: Ways, url: str, seed: int, records, over, gate) -> None:
    """Prune repeatedly. An update of which a call deleted anything is invalid at the end of the call."""
    board, mine = Blackboard.open(url), []
    gate.wait(60)
    while not over.wait(0.05):
        keys: list[str] = []
        began = time.monotonic()
        with suppress(BlackboardUnavailable):  # written into again: the next turn removes it
            ways.prune(Watched(board, keys.append), MEN)
        ended = time.monotonic()
        gone = {key.removeprefix(f"{MEN.path}/").split("/")[0] for key in keys}
        mine += [Removed(began, ended, name) for name in gone]
    records.put(mine)

"""Sweep what attempts left on the blackboard, a day after they ended. Any step may be killed at any instruction.

An attempt's parts go before its claim: what is interrupted is found again by that claim. Nothing is done that a
second time would do otherwise.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from feed_assets.core.errors import FeedAssetsError, InvalidName, NoValidUpdate
from feed_assets.core.feeds import MANIFEST, Feed, Partition, is_update_id
from feed_assets.core.litter import Fate, Found, Known, fate, is_old, must_look
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import HALF_WRITTEN
from feed_assets.feeds.write import CLAIMS
from feed_assets.ledger import litter
from feed_assets.runs.observe import observe
from feed_assets.runs.reconcile import Settled
from feed_assets.runs.workbench import Workbench

_log = logging.getLogger(__name__)

FINISHED, SWEPT, LEFT = "finished", "swept", "left"


@dataclass(frozen=True)
class Done:
    """One id that something was done about (`finished`, `swept`), or that a person decides about (`left`)."""

    what: str
    partition: Partition
    update_id: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} {self.partition} {self.update_id}: {self.why}"


@dataclass(frozen=True)
class Swept:
    """One look through claims: what was done, how many claims went, and where it stopped ('': all were seen)."""

    done: tuple[Done, ...]
    claims: int
    stopped: str


@dataclass(frozen=True, order=True)
class _Claim:
    key: str
    partition: Partition
    update_id: str


def never() -> bool:
    """There is all the time in the world."""
    return False


def settled(runs: Sequence[Settled]) -> tuple[Done, ...]:
    """What `reconcile` did, update by update."""
    found: list[Done] = []
    for each in runs:
        told = f"run {each.run.id} ended without saying so"
        found += [Done(FINISHED, row.partition, row.id, f"its manifest is there; {told}") for row in each.published]
        found += [Done(SWEPT, row.partition, row.id, f"it has no manifest; {told}") for row in each.swept]
    return tuple(found)


def sweep(bench: Workbench, feeds: Sequence[Feed], is_over: Callable[[], bool] = never, after: str = "") -> Swept:
    """Settle the old claims on our own feeds, until the time is over; `after` is where the call before stopped.

    Costs a listing of each feed's claims; then a read and two listings for each attempt that was given up. A feed
    that cannot be read does not hold up the others; if none can, the first error is raised.
    """
    sweeper = _Sweeper(bench, is_over, after)
    failed: list[FeedAssetsError] = []
    for feed in sorted(feeds, key=lambda feed: f"{feed}/"):
        try:
            if not sweeper.sweep(feed):
                break
        except FeedAssetsError as error:
            _log.warning("litter of %s could not be swept: %s", feed, error)
            failed.append(error)
    if feeds and len(failed) == len(feeds):
        raise failed[0]
    return Swept(tuple(sweeper.done), sweeper.forgotten, sweeper.stopped)


class _Sweeper:
    """One pass over claims: what it did so far, and where it stopped."""

    def __init__(self, bench: Workbench, is_over: Callable[[], bool], after: str) -> None:
        self._bench, self._is_over, self._after = bench, is_over, after
        self.done: list[Done] = []
        self.forgotten = 0
        self.stopped = ""

    def sweep(self, feed: Feed) -> bool:
        """The claims of one feed; False if the time was over before their end."""
        if f"{CLAIMS}/{feed}0" <= self._after:  # The character after the slash: all its claims come before.
            return True
        forgotten: list[str] = []
        try:
            for claim in _claims(self._bench, feed):
                if claim.key <= self._after:
                    continue
                if self._settle(claim):
                    forgotten.append(claim.key)
                if self._is_over():  # After one claim at least, or the last ones would starve.
                    self.stopped = claim.key
                    return False
        finally:
            self._bench.board.delete(forgotten)
            self.forgotten += len(forgotten)
        return True

    def _settle(self, claim: _Claim) -> bool:
        """Do what is to be done about one old id; whether its claim may go."""
        if not is_old(claim.update_id, Known(), self._bench.now()):  # Costs nothing: most claims are young.
            return False
        known = _known(self._bench, claim.partition, claim.update_id)
        if not is_old(claim.update_id, known, self._bench.now()):
            return False
        try:
            found = _found(self._bench, claim.partition, claim.update_id) if must_look(known) else Found()
        except InvalidName as error:  # A key that no store can share, under this id alone.
            self.done.append(_said(LEFT, claim.partition, claim.update_id, str(error)))
            return False
        decided = fate(known, found)
        if done := _carry_out(self._bench, claim.partition, claim.update_id, decided, known, found):
            self.done.append(done)
        return decided not in (Fate.KEEP, Fate.ASK)


def sweep_unclaimed(bench: Workbench, feeds: Sequence[Feed], *, unknown: bool = False) -> tuple[Done, ...]:
    """Walk all of our own feeds for old parts that have no claim any more, or that the ledger does not know.

    The latter are reported as `left`, unless `unknown`: without the ledger nobody can tell the parts of a dead attempt
    from an update whose manifest was removed to invalidate it. Costs a listing for each partition, then three requests
    for each id that the ledger has not as published or invalidated.
    """
    done: list[Done] = []
    for feed in sorted(feeds):
        for partition in read.partitions(bench.board, feed):
            for update_id in filter(is_update_id, bench.board.children(partition.path)):
                done += _settle_unclaimed(bench, partition, update_id, unknown)
    return tuple(done)


def _settle_unclaimed(bench: Workbench, partition: Partition, update_id: str, unknown: bool) -> Iterator[Done]:
    if not is_old(update_id, Known(), bench.now()):
        return
    known = _known(bench, partition, update_id)
    if not must_look(known) or not is_old(update_id, known, bench.now()):
        return
    found = _found(bench, partition, update_id)
    if not found.objects:
        return
    decided = fate(known, found)
    if decided is Fate.ASK and unknown:
        decided = Fate.SWEEP
    if decided is Fate.ASK:
        why = f"{found.objects} objects without a manifest that the ledger does not know; --unknown sweeps them"
        yield _said(LEFT, partition, update_id, why)
    elif done := _carry_out(bench, partition, update_id, decided, known, found):
        yield done


def _carry_out(
    bench: Workbench, partition: Partition, update_id: str, decided: Fate, known: Known, found: Found
) -> Done | None:
    if decided is Fate.FINISH:
        observe(bench.board, bench.ledger, partition, bench.now())
        return _said(FINISHED, partition, update_id, "it is valid, though its run gave it up")
    if decided is Fate.SWEEP and found.objects:
        bench.board.sweep(f"{partition.path}/{update_id}")
        why = known.reason or "the ledger does not know it"
        return _said(SWEPT, partition, update_id, f"{found.objects} objects without a valid manifest: {why}")
    return None


def _said(what: str, partition: Partition, update_id: str, why: str) -> Done:
    done = Done(what, partition, update_id, why)
    _log.info("%s", done)
    return done


def _claims(bench: Workbench, feed: Feed) -> Iterator[_Claim]:
    """The claims of a feed, by key; those that a killed writer left half-written on local disk, too."""
    for file in bench.board.files(f"{CLAIMS}/{feed}"):
        path, _, name = file.key.removeprefix(f"{CLAIMS}/{feed}").strip("/").rpartition("/")
        update_id = HALF_WRITTEN.sub("", name)
        try:
            partition = Partition(feed, path)
        except InvalidName as error:
            _log.warning("claim %s is skipped: %s", file.key, error)
            continue
        if is_update_id(update_id):
            yield _Claim(file.key, partition, update_id)


def _known(bench: Workbench, partition: Partition, update_id: str) -> Known:
    """What the ledger knows of an id; of one that it never heard of, the claim itself names the run."""
    with bench.ledger.read() as connection:
        found = litter.known(connection, partition, update_id)
    if found != Known():
        return found
    token = bench.board.get(f"{CLAIMS}/{partition.path}/{update_id}", 100) or b""
    with bench.ledger.read() as connection:
        return litter.claimed_by(connection, token.decode(errors="replace"))


def _found(bench: Workbench, partition: Partition, update_id: str) -> Found:
    """Listed first and judged afterwards: a manifest that comes in between is seen."""
    path = f"{partition.path}/{update_id}"
    files = bench.board.files(path)
    try:
        read.named(bench.board, partition, update_id)
        is_valid = True
    except NoValidUpdate:
        is_valid = False
    return Found(is_valid, any(file.key == f"{path}/{MANIFEST}" for file in files), len(files))

"""Find what attempts left on the blackboard, and do what the table of `core/orphans.py` says of it.

An attempt's parts go before its claim: what is interrupted is found again by that claim, and doing it a second time
changes nothing. So any step may be killed at any instruction.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from feed_assets.core.errors import FeedAssetsError, InvalidName, NoValidUpdate
from feed_assets.core.feeds import MANIFEST, Feed, Partition, is_update_id
from feed_assets.core.orphans import RULES, Attempt, Contents, Fate, Status, is_old, must_look
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import HALF_WRITTEN
from feed_assets.feeds.write import CLAIMS
from feed_assets.ledger import orphans
from feed_assets.runs.observe import observe
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


@dataclass(frozen=True)
class _Orphan:
    """An old id, what its attempt left, and what becomes of it."""

    partition: Partition
    update_id: str
    attempt: Attempt
    objects: int
    fate: Fate

    def done(self, what: str, why: str) -> Done:
        return _logged(Done(what, self.partition, self.update_id, why))


@dataclass(frozen=True, order=True)
class _Claim:
    key: str
    partition: Partition
    update_id: str


def never() -> bool:
    """False: what is called with it has no limit of time."""
    return False


def contents_of(bench: Workbench, partition: Partition, update_id: str) -> tuple[Contents, int]:
    """What lies under an id, and how many objects.

    Listed first and judged afterwards: a manifest that comes in between is seen.
    """
    path = f"{partition.path}/{update_id}"
    files = bench.board.files(path)
    try:
        read.named(bench.board, partition, update_id)
        return Contents.VALID, len(files)
    except NoValidUpdate:
        has_manifest = any(file.key == f"{path}/{MANIFEST}" for file in files)
    return (Contents.MISCOUNTED if has_manifest else Contents.PARTS if files else Contents.NOTHING), len(files)


def sweep(bench: Workbench, feeds: Sequence[Feed], is_over: Callable[[], bool] = never, after: str = "") -> Swept:
    """Finish or sweep what old claims on our own feeds lead to, until the time is over.

    `after` is where the call before stopped. Costs a listing of each feed's claims; then a read and two listings for
    each attempt that was given up. A feed that cannot be read does not hold up the others; if none can, the first
    error is raised.
    """
    sweeper = _Sweeper(bench, is_over, after)
    failed: list[FeedAssetsError] = []
    for feed in sorted(feeds, key=lambda feed: f"{feed}/"):
        try:
            if not sweeper.sweep(feed):
                break
        except FeedAssetsError as error:
            _log.warning("orphans of %s could not be swept: %s", feed, error)
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
            for claim in _claims(self._bench, Partition(feed)):
                if claim.key <= self._after:
                    continue
                if self._is_finished(claim):
                    forgotten.append(claim.key)
                if self._is_over():  # After one claim at least, or the last ones would starve.
                    self.stopped = claim.key
                    return False
        finally:
            self._bench.board.delete(forgotten)
            self.forgotten += len(forgotten)
        return True

    def _is_finished(self, claim: _Claim) -> bool:
        """Do what is to be done about one claimed id; whether its claim may go."""
        try:
            orphan = _orphan(self._bench, claim.partition, claim.update_id)
        except InvalidName as error:  # A key that no store can share, under this id alone.
            self.done.append(_logged(Done(LEFT, claim.partition, claim.update_id, str(error))))
            return False
        if orphan is None:
            return False
        if done := _carry_out(self._bench, orphan):
            self.done.append(done)
        return orphan.fate not in (Fate.KEEP, Fate.ASK)


def forget_claims(bench: Workbench, partition: Partition) -> None:
    """Remove the old claims on a partition that lead to nothing more; `sweep` goes by those that stay."""
    claims = [claim for claim in _claims(bench, partition) if claim.partition == partition]
    bench.board.delete([claim.key for claim in claims if _leads_to_nothing(bench, claim)])


def _leads_to_nothing(bench: Workbench, claim: _Claim) -> bool:
    try:
        orphan = _orphan(bench, claim.partition, claim.update_id)
    except InvalidName:
        return False
    return orphan is not None and orphan.fate is Fate.FORGET


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
                orphan = _orphan(bench, partition, update_id)
                done += filter(None, [_carry_out(bench, orphan, unknown=unknown, asks=True)] if orphan else [])
    return tuple(done)


def _carry_out(bench: Workbench, orphan: _Orphan, *, unknown: bool = False, asks: bool = False) -> Done | None:
    """Do what becomes of an id, but for its claim; None if that is nothing."""
    if orphan.fate is Fate.FINISH:
        observe(bench.board, bench.ledger, orphan.partition, bench.now())
        return orphan.done(FINISHED, "it is valid, though its run gave it up")
    if orphan.fate is Fate.SWEEP or (orphan.fate is Fate.ASK and unknown):
        bench.board.sweep(f"{orphan.partition.path}/{orphan.update_id}")
        why = orphan.attempt.reason or "the ledger does not know it"
        return orphan.done(SWEPT, f"{orphan.objects} objects without a valid manifest: {why}")
    if orphan.fate is Fate.ASK and asks:
        why = f"{orphan.objects} objects without a manifest that the ledger does not know; --unknown sweeps them"
        return orphan.done(LEFT, why)
    return None


def _logged(done: Done) -> Done:
    _log.info("%s", done)
    return done


def _orphan(bench: Workbench, partition: Partition, update_id: str) -> _Orphan | None:
    """An id by what ledger and blackboard have of it; None while it, or the end of its run, is too young."""
    if not is_old(update_id, bench.now()):  # Costs nothing: most are young.
        return None
    attempt = _attempt(bench, partition, update_id)
    if not is_old(update_id, bench.now(), attempt.ended):
        return None
    looked = must_look(attempt.status)
    contents, objects = contents_of(bench, partition, update_id) if looked else (Contents.NOTHING, 0)
    return _Orphan(partition, update_id, attempt, objects, RULES[attempt.status][contents])


def _attempt(bench: Workbench, partition: Partition, update_id: str) -> Attempt:
    """What the ledger knows of an id; of one that it never heard of, the claim itself names the run."""
    with bench.ledger.read() as connection:
        found = orphans.attempt(connection, partition, update_id)
    if found != Attempt(Status.UNKNOWN):
        return found
    token = bench.board.get(f"{CLAIMS}/{partition.path}/{update_id}", 100) or b""
    with bench.ledger.read() as connection:
        return orphans.claimed_by(connection, token.decode(errors="replace"))


def _claims(bench: Workbench, below: Partition) -> Iterator[_Claim]:
    """The claims on a partition and those below it, by key; also what a killed writer left half-written on disk."""
    for file in bench.board.files(f"{CLAIMS}/{below.path}"):
        path, _, name = file.key.removeprefix(f"{CLAIMS}/{below.feed}").strip("/").rpartition("/")
        update_id = HALF_WRITTEN.sub("", name)
        try:
            partition = Partition(below.feed, path)
        except InvalidName as error:
            _log.warning("claim %s is skipped: %s", file.key, error)
            continue
        if is_update_id(update_id):
            yield _Claim(file.key, partition, update_id)

"""Find leftovers of attempts on the blackboard, and treat them by the rules in `core/orphans.py`.

An attempt's parts are removed before its claim. So the process may be killed at any moment: the claim leads to what
remains, and repeating the removal does no harm.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from feed_assets.core.errors import FeedAssetsError, InvalidName, NoValidUpdate
from feed_assets.core.feeds import MANIFEST, Feed, Partition, is_update_id
from feed_assets.core.message_words import shortened
from feed_assets.core.orphans import RULES, AttemptStatus, Contents, KnownAttempt, Treatment, is_old, must_look
from feed_assets.feeds import read
from feed_assets.feeds.local_disk import HALF_WRITTEN
from feed_assets.feeds.write import CLAIMS, INTAKE
from feed_assets.ledger import claimed_attempts
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync

_log = logging.getLogger(__name__)

FINISHED, SWEPT, LEFT = "finished", "swept", "left"

_INTAKE_KILLED = "intake was killed before it recorded the batch in the ledger"


@dataclass(frozen=True)
class OrphanAction:
    """An update id and what was done about it: `finished`, `swept`, or `left` for a person to decide."""

    action: str
    partition: Partition
    update_id: str
    why: str

    def __str__(self) -> str:
        return f"{self.action} {self.partition} {self.update_id}: {self.why}"


@dataclass
class Swept:
    """Result of one sweep: actions, number of removed claims, and the key at which it stopped ('' at the end)."""

    done: tuple[OrphanAction, ...] = ()
    claims: int = 0
    stopped: str = ""


@dataclass(frozen=True)
class _Orphan:
    """An old update id whose attempt left files, and what is done with these leftovers.

    `problem` says why the leftovers cannot be read.
    """

    partition: Partition
    update_id: str
    attempt: KnownAttempt
    fate: Treatment
    objects: int = 0
    problem: str = ""

    @property
    def is_batch(self) -> bool:
        """Return whether the update is a batch.

        An attempt of intake always writes a batch, because intake publishes only batches.
        """
        return self.attempt.reason == _INTAKE_KILLED

    def done(self, action: str, why: str) -> OrphanAction:
        done = OrphanAction(action, self.partition, self.update_id, why)
        _log.info("%s", done)
        return done


def never() -> bool:
    """Return False: there is no time limit."""
    return False


def contents_of(services: Services, partition: Partition, update_id: str) -> tuple[Contents, int]:
    """Return the kind of contents below an update id, and the number of objects.

    Objects are listed before the manifest is read, so a manifest written in between is noticed.
    """
    path = f"{partition.path}/{update_id}"
    board = services.board_of(partition.feed)
    files = board.files(path)
    try:
        read.named(board, partition, update_id)
        return Contents.VALID, len(files)
    except NoValidUpdate:
        has_manifest = any(file.key == f"{path}/{MANIFEST}" for file in files)
    return (Contents.MISCOUNTED if has_manifest else Contents.PARTS if files else Contents.NOTHING), len(files)


def sweep(services: Services, feeds: Sequence[Feed], out_of_time: Callable[[], bool] = never, after: str = "") -> Swept:
    """Clean up after the attempts that have an old claim on one of our own feeds, until the time is over.

    A valid update of an abandoned attempt is recorded in the ledger. Other leftovers of the attempt are removed.

    `after` is where the previous call stopped. The cost is one listing of claims per feed, then a read and two listings
    for each abandoned attempt. If a feed cannot be read, the other feeds are still swept. If no feed can be read, raise
    the first error.
    """
    swept, failed = Swept(), list[FeedAssetsError]()
    for feed in sorted(feeds, key=lambda feed: f"{feed}/"):
        try:
            # A feed's claims sort before this text, because `0` sorts after `/`. So feeds that are done are skipped.
            if f"{CLAIMS}/{feed}0" > after and not swept.stopped:
                _sweep_feed(services, feed, out_of_time, after, swept)
        except FeedAssetsError as error:
            _log.warning("orphans of %s could not be swept: %s", feed, error)
            failed.append(error)
    if feeds and len(failed) == len(feeds):
        raise failed[0]
    return swept


def _sweep_feed(services: Services, feed: Feed, out_of_time: Callable[[], bool], after: str, swept: Swept) -> None:
    """Record or remove the leftovers of attempts that have a claim on one feed. A claim reserves an update id.

    Then remove the claims of attempts that have no more leftovers.
    """
    forgotten: list[str] = []
    try:
        for key, partition, update_id in _claims(services, Partition(feed)):
            if key > after:
                orphan = _orphan(services, partition, update_id)
                swept.done += _carry_out(services, orphan)
                if orphan and orphan.fate not in (Treatment.KEEP, Treatment.ASK):
                    forgotten.append(key)
                if out_of_time():  # Check the time only after a claim, so that each call treats at least one.
                    swept.stopped = key
                    break
    finally:
        services.board_of(feed).delete(forgotten)
        swept.claims += len(forgotten)


def forget_claims(services: Services, partition: Partition) -> None:
    """Remove a partition's old claims whose attempts have no leftovers. `sweep` treats all other claims."""
    claims = [(key, update_id) for key, at, update_id in _claims(services, partition) if at == partition]
    orphans = [(key, _orphan(services, partition, update_id)) for key, update_id in claims]
    forgotten = [key for key, orphan in orphans if orphan and orphan.fate is Treatment.FORGET]
    services.board_of(partition.feed).delete(forgotten)


def sweep_unclaimed(services: Services, feeds: Sequence[Feed], *, unknown: bool = False) -> tuple[OrphanAction, ...]:
    """Search all of our own feeds for old parts that have no claim, or that the ledger does not know.

    Parts unknown to the ledger are only reported as `left`, unless `unknown` is set. They may belong to a dead attempt,
    or to an update that somebody invalidated by removing its manifest. Only the ledger could tell which. The cost is
    one listing per partition, then three requests for each id that is neither published nor invalidated in the ledger.
    """
    done: tuple[OrphanAction, ...] = ()
    for feed in sorted(feeds):
        board = services.board_of(feed)
        for partition in read.partitions(board, feed):
            for update_id in filter(is_update_id, board.children(partition.path)):
                done += _carry_out(services, _orphan(services, partition, update_id), unknown=unknown, asks=True)
    return done


def _carry_out(
    services: Services, orphan: _Orphan | None, *, unknown: bool = False, asks: bool = False
) -> tuple[OrphanAction, ...]:
    """Remove, record or keep the leftovers of an old update id, as decided. Keep its claim (the reservation of the id).

    Return what was done, if anything.
    """
    if orphan is None:
        return ()
    board = services.board_of(orphan.partition.feed)
    if orphan.problem:
        return (orphan.done(LEFT, orphan.problem),)
    if orphan.fate is Treatment.FINISH:
        sync(board, services.ledger, orphan.partition, services.now(), is_batch=orphan.is_batch)
        return (orphan.done(FINISHED, "it is valid, although its attempt was abandoned"),)
    if orphan.fate is Treatment.SWEEP or (orphan.fate is Treatment.ASK and unknown):
        board.sweep(f"{orphan.partition.path}/{orphan.update_id}")
        why = orphan.attempt.reason or "the ledger does not know it"
        return (orphan.done(SWEPT, f"{orphan.objects} objects without a valid manifest: {why}"),)
    if orphan.fate is Treatment.ASK and asks:
        why = f"{orphan.objects} objects without a manifest that the ledger does not know; --unknown sweeps them"
        return (orphan.done(LEFT, why),)
    return ()


def _orphan(services: Services, partition: Partition, update_id: str) -> _Orphan | None:
    """Return an update id with its facts from ledger and blackboard.

    Return None if the id is too recent, or if its run ended too recently.
    """
    if not is_old(update_id, services.now()):  # Check this first: it costs nothing, and most ids are young.
        return None
    attempt = _attempt(services, partition, update_id)
    if not is_old(update_id, services.now(), attempt.ended):
        return None
    try:
        looked = must_look(attempt.status)
        contents, objects = contents_of(services, partition, update_id) if looked else (Contents.NOTHING, 0)
    except InvalidName as error:  # An object below this id has an invalid key.
        return _Orphan(partition, update_id, attempt, Treatment.ASK, problem=str(error))
    return _Orphan(partition, update_id, attempt, RULES[attempt.status][contents], objects)


def _attempt(services: Services, partition: Partition, update_id: str) -> KnownAttempt:
    """Return the ledger's facts about an update id. If the ledger has none, use the run or intake that the claim names.

    Intake records a batch in the ledger in the call that publishes it. If intake claimed a batch a day ago and never
    recorded it, intake was killed.
    """
    with services.ledger.read() as connection:
        attempt = claimed_attempts.attempt(connection, partition, update_id)
    if attempt != KnownAttempt(AttemptStatus.UNKNOWN):
        return attempt
    claim = services.board_of(partition.feed).get(f"{CLAIMS}/{partition.path}/{update_id}", 100)
    token = (claim or b"").decode(errors="replace")
    if token.startswith(INTAKE):
        return KnownAttempt(AttemptStatus.GIVEN_UP, reason=_INTAKE_KILLED)
    with services.ledger.read() as connection:
        return claimed_attempts.claimed_by(connection, token)


def _claims(services: Services, below: Partition) -> Iterator[tuple[str, Partition, str]]:
    """Yield key, partition and update id of each claim on a partition, or on a partition below it, ordered by key.

    Half-written claims, which a killed writer left on disk, are included.
    """
    odd = list[str]()
    for file in services.board_of(below.feed).files(f"{CLAIMS}/{below.path}"):
        path, _, name = file.key.removeprefix(f"{CLAIMS}/{below.feed}").strip("/").rpartition("/")
        update_id = HALF_WRITTEN.sub("", name)
        try:
            partition = Partition(below.feed, path)
        except InvalidName as error:
            odd.append(f"{file.key} ({error})")
            continue
        if is_update_id(update_id):
            yield file.key, partition, update_id
    if odd:
        _log.warning("%s: these claims are skipped: %s", below.feed, shortened(odd, 3))

"""Rules for leftovers of attempts on the blackboard: which are removed, and when. Every cleaner uses this table.

An attempt creates its claim first and removes it last. So the existing claims list all unfinished attempts, even if
the ledger was lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType

from feed_assets.core.feeds import parse_update_id

ORPHANED_AFTER = timedelta(hours=24)
"""Age up to which leftovers stay. A run may still write them, or a person may examine why they were refused."""


class AttemptStatus(Enum):
    """State of the attempt that claimed an update id, according to the ledger."""

    UNKNOWN = "unknown"
    OPEN = "open"
    """The run is in progress, or has ended but is not reconciled yet."""
    GIVEN_UP = "given up"
    """The attempt was refused or abandoned. `reconcile` also uses this for an attempt that it is about to give up."""
    DONE = "done"
    """The update was published. It may have been invalidated or pruned since."""


class Contents(Enum):
    """Content of an update id's folder on the blackboard."""

    NOTHING = "nothing"
    PARTS = "parts without a manifest"
    MISCOUNTED = "a manifest that is not right"
    VALID = "a valid update"


class Treatment(Enum):
    """The action of a cleaner for an update id."""

    KEEP = "keep"
    """No object is touched."""
    FORGET = "forget"
    """Only the claim is removed: the update is finished, or was never begun."""
    FINISH = "finish"
    """The update is valid although its attempt was given up: the ledger records it, and the claim is removed."""
    SWEEP = "sweep"
    """The parts are removed, then the claim."""
    ASK = "ask"
    """Parts of a dead attempt, or of an update that was invalidated by removing its manifest: a person decides."""


_NOTHING, _PARTS, _MISCOUNTED, _VALID = Contents
RULES: Mapping[AttemptStatus, Mapping[Contents, Treatment]] = MappingProxyType(
    {
        AttemptStatus.OPEN: dict.fromkeys(Contents, Treatment.KEEP),
        AttemptStatus.DONE: dict.fromkeys(Contents, Treatment.FORGET),
        AttemptStatus.GIVEN_UP: {
            _NOTHING: Treatment.FORGET,
            _PARTS: Treatment.SWEEP,
            _MISCOUNTED: Treatment.SWEEP,
            _VALID: Treatment.FINISH,
        },
        AttemptStatus.UNKNOWN: {
            _NOTHING: Treatment.FORGET,
            _PARTS: Treatment.ASK,
            _MISCOUNTED: Treatment.FORGET,
            _VALID: Treatment.FORGET,
        },
    }
)


@dataclass(frozen=True)
class KnownAttempt:
    """Ledger facts about an update id; `ended` is when the run that claimed it ended (UTC)."""

    status: AttemptStatus = AttemptStatus.UNKNOWN
    ended: datetime | None = None
    reason: str | None = None


def is_old(update_id: str, now: datetime, *touched: datetime | None) -> bool:
    """Return whether an id, and its last known use, are at least `ORPHANED_AFTER` old (UTC).

    An id may be later than its writer's clock, but is never earlier. So parts may stay longer, but never shorter.
    """
    moment = parse_update_id(update_id)
    return moment is not None and max([moment, *filter(None, touched)]) + ORPHANED_AFTER <= now


def must_look(status: AttemptStatus) -> bool:
    """Return whether the treatment of an update id with this status depends on its contents on the blackboard."""
    return len({*RULES[status].values()}) > 1

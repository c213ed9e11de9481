"""Rules for leftovers of attempts on the blackboard: which are removed, and when. Every cleaner uses this table.

An attempt begins with a claim, which is removed last. So the existing claims are the list of what is unfinished,
whatever the ledger still has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType

from feed_assets.core.feeds import parse_update_id

ORPHANED_AFTER = timedelta(hours=24)
"""Age of leftovers before which they stay: somebody may be writing them, or examining why they were refused."""


class AttemptStatus(Enum):
    """State in the ledger of the attempt behind an update id."""

    UNKNOWN = "unknown"
    OPEN = "open"
    """Its run is in progress, or has ended and is not reconciled yet."""
    GIVEN_UP = "given up"
    """Refused or abandoned; in `reconcile` also an attempt that it is about to give up."""
    DONE = "done"
    """Published, and perhaps invalidated or pruned since."""


class Contents(Enum):
    """Contents of an update id's folder on the blackboard."""

    NOTHING = "nothing"
    PARTS = "parts without a manifest"
    MISCOUNTED = "a manifest that is not right"
    VALID = "a valid update"


class Treatment(Enum):
    """Treatment of an update id."""

    KEEP = "keep"
    """No object is touched."""
    FORGET = "forget"
    """Only its claim is removed: its update is finished, or was never begun."""
    FINISH = "finish"
    """It is valid though its attempt was given up: the ledger records it, and the claim is removed."""
    SWEEP = "sweep"
    """Its parts are removed, then its claim."""
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
    """Return whether an id's moment, and all known times of its use, lie `ORPHANED_AFTER` back or more (UTC).

    An id is never behind its writer's clock; if it is ahead of it, its parts stay longer.
    """
    moment = parse_update_id(update_id)
    return moment is not None and max([moment, *filter(None, touched)]) + ORPHANED_AFTER <= now


def must_look(status: AttemptStatus) -> bool:
    """Return whether the blackboard has to be read before the fate of an id is known."""
    return len({*RULES[status].values()}) > 1

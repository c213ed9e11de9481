"""What attempts leave on the blackboard, and when it may go.

Every attempt begins with a claim, and its claim goes last: so the claims that are there are the list of what is
unfinished, whatever the ledger still knows.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from feed_assets.core.feeds import parse_update_id

AGE = timedelta(hours=24)
"""What is younger is left alone: somebody may be writing it, or looking into why it was refused."""


class Fate(Enum):
    """What becomes of one claimed id."""

    KEEP = "keep"
    """Nothing is touched."""
    FORGET = "forget"
    """Only its claim goes: its update is done with, or was never begun."""
    FINISH = "finish"
    """It is valid though its run gave it up: the ledger learns of it, the claim goes."""
    SWEEP = "sweep"
    """Its parts go, then its claim."""
    ASK = "ask"
    """Parts that the ledger does not know: of a dead attempt, or of an invalidated update. A person decides."""


class Standing(Enum):
    """How the ledger knows an id."""

    UNKNOWN = "unknown"
    OPEN = "open"
    GIVEN_UP = "given up"
    DONE = "done"


@dataclass(frozen=True)
class Known:
    """What the ledger knows of a claimed id; `ended` is when the run that claimed it did (UTC)."""

    standing: Standing = Standing.UNKNOWN
    is_running: bool = False
    ended: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Found:
    """What lies under an id on the blackboard."""

    is_valid: bool = False
    has_manifest: bool = False
    objects: int = 0


def is_old(update_id: str, known: Known, now: datetime) -> bool:
    """Whether an id, and the end of its run, lie `AGE` back or more; `now` is timezone-aware.

    An id is never behind its writer's clock; where it is ahead of it, its litter stays longer.
    """
    moment = parse_update_id(update_id)
    return moment is not None and max(moment, known.ended or moment) + AGE <= now


def must_look(known: Known) -> bool:
    """Whether the blackboard has to be asked before the fate of an old id is known."""
    return not known.is_running and known.standing in (Standing.UNKNOWN, Standing.GIVEN_UP)


def fate(known: Known, found: Found) -> Fate:
    """The fate of an old id; what `found` says counts only where `must_look`."""
    if known.is_running or known.standing is Standing.OPEN:
        return Fate.KEEP
    if known.standing is Standing.DONE:
        return Fate.FORGET
    if known.standing is Standing.GIVEN_UP:
        return Fate.FINISH if found.is_valid else Fate.SWEEP
    return Fate.FORGET if found.has_manifest or not found.objects else Fate.ASK

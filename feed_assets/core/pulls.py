"""What is pulled of a partner: which of their files, the moment that a file's name says, and what becomes of it."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Literal

from feed_assets.core.cadence import check_cron, tick_after
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import UNREADABLE, File
from feed_assets.core.rules import BoardName, NotNegative, Prefix
from feed_assets.core.typed import typed

_CODES = {"%Y": "[0-9]{4}", "%m": "[0-9]{2}", "%d": "[0-9]{2}", "%H": "[0-9]{2}"}
_DATE = ("%Y", "%m", "%d")
_NEVER = re.compile(r"^/|/$|//|\*\*|[?\[\]]")
"""What other tools know, or nobody: such a pattern would match no file, and nobody would hear of it."""

_PIECE = re.compile(r"(%.?|\*)")
_UNSAFE = re.compile("[^A-Za-z0-9=@+_-]+")
_SLUG = 100
"""Characters of a file's name that a batch and a part go on with, for people: what tells them apart comes before."""


@typed
@dataclass(frozen=True)
class Pull:
    """A partner's files, which are pulled several times a day into the batches of a feed, each file once.

    The receiver pipeline of the article "Handling late arriving data" (IAS, 2021) does so.

    Args:
        blackboard: The name of the blackboard that they are on, of those in `FEED_ASSETS_BLACKBOARDS`.
        pattern: Their names below the prefix, such as `%Y-%m-%d/%H/men_*.csv`: the codes of date and hour (UTC), and
            `*` for any characters but `/`. The date comes before the first `*` and the hour, as only the files of some
            days are listed. What is named otherwise is no file of theirs.
        prefix: The folder that they are in; by default the blackboard itself.
        cron: When they are looked for (UTC); what a look leaves, for want of time, the next tick goes on with.
        lookback: Days before today whose files are listed, too. What is later than that is never seen.
        changed: What becomes of a file that is another one under a name that was pulled: a new update of its batch, or
            an alert, and it stays as it was pulled.

    Raises:
        InvalidDefinition: A value is of a wrong type, the cron is none, or the pattern does not say the date.
    """

    blackboard: BoardName
    pattern: str
    prefix: Prefix | None = None
    cron: str = "0 */4 * * *"
    lookback: NotNegative = 3
    changed: Literal["new_version", "alert"] = "new_version"

    def __post_init__(self) -> None:
        check_cron("Pull", self.cron, "UTC")
        wrong = [each for each in self._pieces if each.startswith("%") and each not in _CODES]
        if odd := _NEVER.search(self.pattern):
            raise InvalidDefinition(
                f"Pull: the pattern is {self.pattern!r}, with {odd[0]!r}, which no name below the prefix matches as "
                "meant: expected no '/' at either end, nor '//', '**', '?' or '[', such as %Y-%m-%d/%H/men_*.csv."
            )
        if wrong or any(code not in self._leading for code in _DATE):
            raise InvalidDefinition(
                f"Pull: the pattern is {self.pattern!r}{f', with {wrong[0]!r}' if wrong else ''}: expected %Y, %m and "
                "%d before the first '*' or %H, and no other codes, such as %Y-%m-%d/%H/men_*.csv."
            )

    @property
    def says_hour(self) -> bool:
        """Whether a name says the hour."""
        return "%H" in self._pieces

    def days(self, now: datetime) -> list[date]:
        """The days that are looked at, the newest first."""
        today = now.astimezone(UTC).date()
        return [today - timedelta(days=back) for back in range(self.lookback + 1)]

    def told_since(self, now: datetime) -> datetime:
        """What was seen to be wrong with a file from then on is told of: before that nobody lists it any more."""
        return now - timedelta(days=self.lookback + 1)

    def begins(self, day: date) -> str:
        """What the keys of a day's files begin with."""
        return self._above + "".join(day.strftime(each) if each in _DATE else each for each in self._leading)

    def moment_of(self, key: str) -> datetime | None:
        """The day or hour (UTC) that a file's name says; None if it is no file of theirs. InvalidName for no moment."""
        found = self._names.fullmatch(key)
        if not found:
            return None
        codes = [code for code in _CODES if code in self._pieces]
        said = "".join(found[code[1:]] for code in codes)
        try:
            return datetime.strptime(said, "".join(codes)).replace(tzinfo=UTC)
        except ValueError:
            raise InvalidName(f"its name says {said}: expected a day and an hour that exist. Rename it") from None

    def is_due(self, last: datetime | None, now: datetime) -> bool:
        """Whether a tick of the cron has come since the last look, or there was none."""
        tick = tick_after(self.cron, "UTC", last) if last else now
        return tick is not None and tick <= now

    @property
    def _above(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    @cached_property
    def _pieces(self) -> list[str]:
        return [each for each in _PIECE.split(self.pattern) if each]

    @property
    def _leading(self) -> list[str]:
        """The pieces before the first that a day does not say."""
        stop = next((at for at, each in enumerate(self._pieces) if each in ("*", "%H")), len(self._pieces))
        return self._pieces[:stop]

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """The pattern of whole keys; a code that comes again says the same."""
        said, pattern = set[str](), re.escape(self._above)
        for each in self._pieces:
            name = each[1:]
            code = f"(?P={name})" if each in said else f"(?P<{name}>{_CODES.get(each, '')})"
            pattern += "[^/]*" if each == "*" else code if each in _CODES else re.escape(each)
            said.add(each)
        return re.compile(pattern)


class State(StrEnum):
    """What became of a file."""

    DONE = "done"
    CHANGED = "changed"
    """It was pulled, and another one is under its name: it stays as it was pulled."""
    REFUSED = "refused"
    """It was never pulled."""


@dataclass(frozen=True)
class Pulled:
    """A file in the registry, as it was pulled (or refused): where to, and what is wrong with it."""

    file: File
    time: datetime | None
    """The start of the day or hour that its name says."""
    state: State
    reason: str | None = None
    batch: str | None = None
    """The key of the batch that it is; None if it was never pulled."""
    update_id: str | None = None


class Fate(StrEnum):
    """What is to be done with a listed file."""

    LEAVE = "leave"
    PULL = "pull"
    RESTORE = "restore"
    """It is again what was pulled of it."""
    REFUSE = "refuse"


def fate_of(file: File, known: Pulled | None, pull: Pull) -> tuple[Fate, str | None]:
    """What is to be done with a listed file, and why nothing is pulled of it.

    An empty file is no data: of one that was pulled it is a change that nobody follows.
    """
    if known and known.batch and known.file == file:
        return (Fate.RESTORE if known.state is State.CHANGED else Fate.LEAVE), None
    if UNREADABLE in file.key:
        return Fate.REFUSE, "its name has characters that no store can share. Rename it"
    if known is None or known.batch is None:
        return (Fate.PULL, None) if file.size else (Fate.REFUSE, "it is empty, and pulled once it is not")
    if file.size and pull.changed == "new_version":
        return Fate.PULL, None
    was = f"it was pulled with {known.file.size} bytes ({known.file.etag})"
    return Fate.REFUSE, f"{was}, and has {file.size} ({file.etag}) now: it stays as it was pulled"


def batch_name(key: str) -> str:
    """The name of a file's batch: no two files have the same, whatever they are called."""
    return f"{sha256(key.encode()).hexdigest()[:12]}-{_slug(key)}"


def part_name(file: File) -> str:
    """The name of the part that holds one version of a file: another one has another name (ADR 65)."""
    version = sha256(f"{file.size} {file.etag}".encode()).hexdigest()[:8]
    return f"{version}-{_slug(file.key)}"


def _slug(key: str) -> str:
    """The end of a file's name, as any store takes it: what a format is known by stays."""
    return ".".join(_UNSAFE.sub("-", each) for each in key.rpartition("/")[2].split(".") if each)[-_SLUG:]

"""Pulls of a partner's files: patterns of their names, the moment in a name, and the action for each file."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Literal

from feed_assets.core.argument_types import BoardName, NotNegative, Prefix
from feed_assets.core.cadence import check_cron, tick_after
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import UNREADABLE, File
from feed_assets.core.typed import typed

_CODES = {"%Y": "[0-9]{4}", "%m": "[0-9]{2}", "%d": "[0-9]{2}", "%H": "[0-9]{2}"}
_DATE = ("%Y", "%m", "%d")
_NEVER = re.compile(r"^/|/$|//|\*\*|[?\[\]]")
"""Pattern syntax that is not supported. Without an error such a pattern would silently match no file."""

_PIECE = re.compile(r"(%.?|\*)")
_UNSAFE = re.compile("[^A-Za-z0-9=@+_-]+")
_MOST_STARS = 2

_SLUG = 100
"""Maximum number of characters of a file's name in the name of a batch or part.

These characters only help people: the digest before them makes the name unique.
"""


@typed
@dataclass(frozen=True)
class Pull:
    """A partner's files, which are pulled several times a day into batches of a feed. Each file is pulled once.

    Source: the receiver pipeline of the article "Handling late arriving data" (IAS, 2021).

    Args:
        blackboard: The name of the partner's blackboard in `FEED_ASSETS_BLACKBOARDS`.
        pattern: The pattern of file names below the prefix, such as `%Y-%m-%d/%H/men_*.csv`. It has codes for the date
            and the hour (UTC). `*` stands for any characters except `/`. Each part between two `/` may contain at most
            two `*`. The date must be before the first `*` and before the hour, because files are listed day by day.
            Files that do not match are ignored.
        prefix: The folder of the files. The default is the blackboard itself.
        cron: When the files are listed (UTC). If a tick runs out of time, the next tick continues.
        lookback: Number of days before today whose files are also listed. A file that arrives later is missed.
        changed: What happens if a pulled file changes. `new_version` writes a new update of its batch. `alert` opens an
            alert, and the batch stays as it was pulled.

    Raises:
        InvalidDefinition: A value is of a wrong type, the cron is invalid, or the pattern does not have the date.
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
                f"Pull: the pattern is {self.pattern!r}, with {odd[0]!r}, which a pattern cannot have: expected no "
                "'/' at either end, nor '//', '**', '?' or '[', such as %Y-%m-%d/%H/men_*.csv."
            )
        if many := next((each for each in self.pattern.split("/") if each.count("*") > _MOST_STARS), None):
            raise InvalidDefinition(
                f"Pull: the pattern is {self.pattern!r}, with {many.count('*')} '*' in {many!r}: expected at most "
                f"{_MOST_STARS} between two '/', because more take too long to compare with long names."
            )
        if wrong or any(code not in self._leading for code in _DATE):
            raise InvalidDefinition(
                f"Pull: the pattern is {self.pattern!r}{f', with {wrong[0]!r}' if wrong else ''}: expected %Y, %m and "
                "%d before the first '*' or %H, and no other codes, such as %Y-%m-%d/%H/men_*.csv."
            )

    @property
    def says_hour(self) -> bool:
        """Return whether file names have an hour."""
        return "%H" in self._pieces

    def days(self, now: datetime) -> list[date]:
        """Return the days whose files are listed now, newest first."""
        today = now.astimezone(UTC).date()
        return [today - timedelta(days=back) for back in range(self.lookback + 1)]

    def told_since(self, now: datetime) -> datetime:
        """Return the moment since which problems of files are reported. Older files are no longer listed."""
        return now - timedelta(days=self.lookback + 1)

    def begins(self, day: date) -> str:
        """Return the prefix with which the keys of all files of a day begin."""
        return self._above + "".join(day.strftime(each) if each in _DATE else each for each in self._leading)

    def moment_of(self, key: str) -> datetime | None:
        """Return the day or hour (UTC) in a file's name. Return None if the name does not match the pattern.

        Raise InvalidName if the name contains a day or hour that does not exist.
        """
        match = self._names.fullmatch(key)
        if not match:
            return None
        codes = [code for code in _CODES if code in self._pieces]
        digits = "".join(match[code[1:]] for code in codes)
        try:
            return datetime.strptime(digits, "".join(codes)).replace(tzinfo=UTC)
        except ValueError:
            raise InvalidName(
                f"its name contains {digits}, which is not a real day and hour. Rename the file"
            ) from None

    def is_due(self, last: datetime | None, now: datetime) -> bool:
        """Return whether a cron tick has passed since the last listing, or there was no listing."""
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
        """Return the pieces at the start of the pattern that depend on nothing but the day."""
        stop = next((at for at, each in enumerate(self._pieces) if each in ("*", "%H")), len(self._pieces))
        return self._pieces[:stop]

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """Return the regular expression of whole keys. A code that occurs twice must have the same value both times."""
        folders = self.pattern.split("/")
        patterns = [self._folder(each, "/".join(folders[:at])) for at, each in enumerate(folders)]
        return re.compile(re.escape(self._above) + "/".join(patterns))

    def _folder(self, text: str, before: str) -> str:
        """Return the regular expression for the text between two `/`. `before` is the pattern of the folders above.

        The expression is an atomic group: if the text after the group does not match, no other way to match the group
        is tried. So matching takes at most quadratic time in the length of a name. If a date code of this folder occurs
        twice in the pattern, both places must have the same value. In this case there is no atomic group, because the
        first match of this folder may give a value that the other place does not have.
        """
        pattern, above = "", {*_PIECE.split(before)}
        pieces = [each for each in _PIECE.split(text) if each]
        for at, each in enumerate(pieces):
            name = each[1:]
            is_repeated = each in above or each in pieces[:at]
            code = f"(?P={name})" if is_repeated else f"(?P<{name}>{_CODES.get(each, '')})"
            pattern += "[^/]*" if each == "*" else code if each in _CODES else re.escape(each)
        new = {*pieces} & _CODES.keys() - above
        is_free = any(self.pattern.count(each) > 1 for each in new)
        return pattern if is_free else rf"(?>{pattern}(?=/|\Z))"


class FileState(StrEnum):
    """The state of a partner's file in the ledger."""

    DONE = "done"
    CHANGED = "changed"
    """The file was pulled, and a different file has its name now. The batch stays as it was pulled."""
    REFUSED = "refused"
    """The file was never pulled."""


@dataclass(frozen=True)
class Pulled:
    """The ledger's entry for a partner's file, as the file was when it was pulled or refused."""

    file: File
    time: datetime | None
    """The start of the day or hour in its name."""
    state: FileState
    reason: str | None = None
    batch: str | None = None
    """The key of its batch; None if it was never pulled."""
    update_id: str | None = None


class FileAction(StrEnum):
    """The action for a listed file."""

    LEAVE = "leave"
    PULL = "pull"
    RESTORE = "restore"
    """The file had changed, and is now again as it was pulled."""
    REFUSE = "refuse"


def fate_of(file: File, pulled: Pulled | None, pull: Pull) -> tuple[FileAction, str | None]:
    """Return the action for a listed file, and the reason if it is refused. `pulled` is the ledger's entry, if any.

    An empty file is never pulled, not even as a change of a pulled file.
    """
    if pulled and pulled.batch and pulled.file == file:
        return (FileAction.RESTORE if pulled.state is FileState.CHANGED else FileAction.LEAVE), None
    if UNREADABLE in file.key:
        return FileAction.REFUSE, "its name has characters that not all stores allow. Rename the file"
    if pulled is None or pulled.batch is None:
        return (
            (FileAction.PULL, None) if file.size else (FileAction.REFUSE, "it is empty: it is pulled when it has data")
        )
    if file.size and pull.changed == "new_version":
        return FileAction.PULL, None
    was = f"it was pulled with {pulled.file.size} bytes ({pulled.file.etag})"
    return FileAction.REFUSE, f"{was}, and has {file.size} ({file.etag}) now: its batch stays as it was pulled"


def batch_name(key: str) -> str:
    """Return the name of a file's batch, which is unique."""
    return f"{sha256(key.encode()).hexdigest()[:12]}-{_slug(key)}"


def part_name(file: File) -> str:
    """Return the name of the part for one version of a file. Each version has its own name (ADR 65)."""
    version = sha256(f"{file.size} {file.etag}".encode()).hexdigest()[:8]
    return f"{version}-{_slug(file.key)}"


def _slug(key: str) -> str:
    """Return the end of a file's name, in characters that every store allows. It keeps the ending such as `.csv`."""
    return ".".join(_UNSAFE.sub("-", each) for each in key.rpartition("/")[2].split(".") if each)[-_SLUG:]

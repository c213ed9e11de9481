"""Pull of a partner's files into the batches of a feed. Each file is pulled once.

A scan lists the files of some days. If the time is over before its end, the next call continues the scan. The registry
of finished files (`ledger/intake_files`) is written after a batch is published. After a kill in between, the file is
copied again, and `publish` recognises its batch. So no file is lost or duplicated.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from feed_assets.core.errors import BlackboardRefused, BlackboardUnavailable, InvalidName
from feed_assets.core.feeds import UNREADABLE, File, Partition
from feed_assets.core.limits import excerpt
from feed_assets.core.pulls import FileAction, FileState, Pulled, batch_name, fate_of, part_name
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.object_keys import checked, is_key
from feed_assets.feeds.write import invalidate
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.intake.pull_room import lacking_room
from feed_assets.intake.pull_turns import PullSource, turn_of
from feed_assets.ledger import intake_files, updates
from feed_assets.ledger.database import drop_cursor, get_cursor, put_cursors
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync

FILES_PER_DAY = 100_000
"""The most files of a day in one scan. Otherwise an endless listing of one day would keep the scan from other days."""

KEY_BYTES = 1024
"""The most bytes of a file's key in UTF-8, as on S3. The registry's index cannot store much longer keys."""

TURN = timedelta(hours=1)
"""The time after which a partner's store gets no further request in its turn. One download may take longer."""

FORGOTTEN_TOGETHER = 100
"""The most files that are checked and cleared in one transaction. It stays if the store fails later."""

PUT = "file in the registry"
"""The name of the step after which a file is finished."""

_log = logging.getLogger(__name__)


def pull(services: Services, source: PullSource, now: datetime, out_of_time: Callable[[], bool]) -> bool:
    """Pull new files, at least one, until the time is over. Return whether all were pulled.

    The next call continues an incomplete scan. A scan costs one request per 1,000 files of the days that it lists, and
    a few requests for each new file. Raise errors of the blackboards; the next call then begins where this call began.
    """
    with turn_of(services, source) as began:
        return _FileListing(services, source, now, out_of_time, began + TURN).run()


@dataclass(frozen=True)
class _At:
    """Position of a scan: when it began, its current day, the last key, and how many files of the day it has listed."""

    began: datetime
    day: date
    after: str = ""
    listed: int = 0

    def dump(self) -> str:
        return json.dumps([self.began.isoformat(), self.day.isoformat(), self.after, self.listed])

    @classmethod
    def load(cls, text: str) -> "_At":
        began, day, after, listed = json.loads(text)
        return cls(datetime.fromisoformat(began), date.fromisoformat(day), after, listed)


@dataclass(frozen=True)
class _FileListing:
    """One scan of the files of some days, newest day first."""

    services: Services
    source: PullSource
    now: datetime
    out_of_time: Callable[[], bool]
    last_request: datetime
    """The time after which the partner's store gets no further request in this turn."""
    existing_keys: set[str] = field(default_factory=set[str])
    """Keys of the day's files that are known to exist, so that each of them is requested at most once."""

    def run(self) -> bool:
        """Scan the files of all days until the time is over. Return whether all days are done."""
        at, wrong = self._begun(), self._wrong()
        for day in [day for day in self.source.pull.days(at.began) if day <= at.day]:
            at = at if day == at.day else _At(at.began, day)
            if stopped := self._day(at):
                with self.services.ledger.write() as connection:
                    put_cursors(connection, {self.source.place: stopped.dump()})
                return False
            self._forget_gone(day, wrong)
        with self.services.ledger.write() as connection:
            drop_cursor(connection, self.source.place)
            put_cursors(connection, {self.source.last_scan: at.began.isoformat()})
        return True

    def _begun(self) -> _At:
        with self.services.ledger.read() as connection:
            cursor = get_cursor(connection, self.source.place)
        return _At.load(cursor) if cursor else _At(self.now, self.source.pull.days(self.now)[0])

    def _day(self, at: _At) -> _At | None:
        """Pull the new files of a day. Return the position to continue from. Return None if the day is done."""
        self.existing_keys.clear()
        for page in filter(None, self._board.file_pages(self.source.pull.begins(at.day), at.after)):
            pulled_by_key = self._pulled_by_key(page)
            self.existing_keys.update(_registry_name(file.key) for file in page)
            if at.listed + len(page) > FILES_PER_DAY:
                problem = f"more than {FILES_PER_DAY} files of {at.day}: this file and later ones are ignored"
                self._refuse(page[0], problem, pulled_by_key.get(_registry_name(page[0].key)))
                return None
            for number, file in enumerate(page, 1):
                if self._take(file, pulled_by_key.get(_registry_name(file.key))) and self.out_of_time():
                    return replace(at, after=file.key, listed=at.listed + number)
            at = replace(at, after=page[-1].key, listed=at.listed + len(page))
            if self.out_of_time():
                return at
        return None

    def _take(self, file: File, pulled: Pulled | None) -> bool:
        """Handle a listed file. Return whether it needed work. Nearly all files are unchanged and need none."""
        if pulled and pulled.file == file and pulled.state is FileState.DONE:
            return False
        try:
            # Check the length first: two `*` take quadratic time, in which no other thread of this process works.
            _check_length(file.key)
            if (moment := self.source.pull.moment_of(file.key)) is None:
                return False
            checked(file.key)
        except InvalidName as error:
            return self._refuse(file, str(error), pulled)
        fate, reason = fate_of(file, pulled, self.source.pull)
        if fate is FileAction.PULL:
            return self._pull(file, moment, pulled)
        if fate is FileAction.REFUSE:
            return self._refuse(file, reason or "", pulled)
        if pulled and fate is FileAction.RESTORE:
            self._put(replace(pulled, state=FileState.DONE, reason=None))
        return fate is FileAction.RESTORE

    def _pull(self, file: File, moment: datetime, pulled: Pulled | None) -> bool:
        """Copy one file into a batch, unless it was only renamed. Skip a file that has changed since it was listed."""
        if (key := self.source.key_of(moment)) is None:
            problem = f"the file name contains {moment:%Y-%m-%d %H}, and {self.source.feed} has no such partition"
            return self._refuse(file, problem, pulled)
        if before := self._before_its_rename(file, moment):
            if pulled and pulled.batch:
                self._withdraw(Partition(self.source.feed, pulled.batch))
            self._put(replace(before, file=file, state=FileState.DONE, reason=None), instead_of=before.file.key)
            return True
        if problem := lacking_room(file.size, self._target, pulled.reason if pulled else None):
            return self._refuse(file, problem, pulled)
        with TemporaryDirectory(prefix="feed-assets-") as folder:
            copy = Path(folder, "copy")
            try:
                served = self._board.download(file.key, copy, file)
            except (BlackboardRefused, BlackboardUnavailable) as error:
                return self._not_served(file, error, pulled)
            if served != file or copy.stat().st_size != file.size:
                _log.info("%s: %s is being replaced or removed: the next scan handles it", self.source.feed, file.key)
                return True
            batch = self._batch_of(file, moment, key, pulled)
            update = publish(self.services, BatchContent(batch, {part_name(file): copy}), f"pull of {file.key}")
        self._put(Pulled(file, moment, FileState.DONE, batch=batch.key, update_id=update.id))
        return True

    def _not_served(self, file: File, error: Exception, pulled: Pulled | None) -> bool:
        """Record why one file could not be read. The next scan retries it. Raise the error if the store is down."""
        next(self._board.file_pages(file.key), None)
        self._refuse(file, f"{error} The next scan tries again", pulled)
        return True

    def _before_its_rename(self, file: File, moment: datetime) -> Pulled | None:
        """Return the registry's entry of this file under its old name, if it was renamed.

        That entry has the same size, etag and moment, and its file no longer exists.
        """
        if not file.etag:
            return None
        with self.services.ledger.read() as connection:
            like = intake_files.like(connection, self.source.feed, file, moment)
        return next((each for each in like if self._is_gone(each.file.key)), None)

    def _withdraw(self, batch: Partition) -> None:
        """Invalidate the batch of a pulled file, because another pulled file was renamed to its name.

        The partner no longer has the data of that batch. The registry is written after this step. If the process is
        killed in between, the next scan repeats the step.
        """
        board, ledger = self._target, self.services.ledger
        while valid := read.latest(board, batch).update:
            invalidate(board, batch, valid.id)
        sync(board, ledger, batch, self.services.now(), is_batch=True)

    @property
    def _target(self) -> Blackboard:
        return self.services.board_of(self.source.feed)

    def _is_gone(self, key: str) -> bool:
        if key in self.existing_keys:
            return False
        is_gone = self._board.get(key, 0) is None
        self.existing_keys.update(() if is_gone else [key])
        return is_gone

    def _batch_of(self, file: File, moment: datetime, key: str, pulled: Pulled | None) -> Partition:
        """Return the batch of a file, usually named after the file.

        The name gets a number if a renamed file already uses it, or if the batch with that name was withdrawn.
        """
        feed = self.source.feed
        if pulled and pulled.batch:
            return Partition(feed, pulled.batch)
        with self.services.ledger.read() as connection:
            used_names = intake_files.batches(connection, feed, moment, batch_name(file.key))
            free = (Partition(feed, each) for each in _names(f"{key}/{batch_name(file.key)}") if each not in used_names)
            return next(batch for batch in free if not updates.gone(connection, batch))

    def _refuse(self, file: File, reason: str, pulled: Pulled | None) -> bool:
        """Record why a file is not pulled or, if it was pulled before, how it differs now.

        Return False if this reason is already recorded.
        """
        if pulled and pulled.reason == reason:
            return False
        refused = Pulled(replace(file, key=_registry_name(file.key)), None, FileState.REFUSED, reason)
        self._put(replace(pulled, state=FileState.CHANGED, reason=reason) if pulled and pulled.batch else refused)
        return True

    def _wrong(self) -> list[Pulled]:
        """Return the partner's files for which the ledger has a problem.

        Leave out files whose names cannot be requested from the store.
        """
        feed = self.source.feed
        with self.services.ledger.read() as connection:
            files = intake_files.wrong(connection, {feed: self.source.pull.told_since(self.now)}).get(feed, [])
        return [each for each in files if UNREADABLE not in each.file.key and is_key(each.file.key)]

    def _forget_gone(self, day: date, wrong: Sequence[Pulled]) -> None:
        """Clear the problems of a day's files that no longer exist. If such a file was pulled, its batch stays.

        Call this after the day's listing. Files in the listing need no request. Each other file costs one request, and
        only once.
        """
        begins = self.source.pull.begins(day)
        keys = [each.file.key for each in wrong if each.file.key.startswith(begins)]
        for start in range(0, len(keys), FORGOTTEN_TOGETHER):
            if gone := [key for key in keys[start : start + FORGOTTEN_TOGETHER] if self._is_gone(key)]:
                with self.services.ledger.write() as connection:
                    intake_files.forget_gone(connection, self.source.feed, gone)

    def _put(self, each: Pulled, instead_of: str | None = None) -> None:
        with self.services.ledger.write() as connection:
            if instead_of:
                intake_files.drop(connection, self.source.feed, instead_of)
            intake_files.put(connection, self.source.feed, each, self.services.now())
        self.services.on_step(PUT)

    def _pulled_by_key(self, files: Sequence[File]) -> dict[str, Pulled]:
        with self.services.ledger.read() as connection:
            return intake_files.registered(connection, self.source.feed, [_registry_name(file.key) for file in files])

    @property
    def _board(self) -> Blackboard:
        """Return the partner's blackboard. Raise BlackboardUnavailable if its answers took longer than TURN.

        One step can cost many requests, each of which may take seconds. This error ends the turn.
        """
        board = self.services.board_named(self.source.pull.blackboard)
        if self.services.now() > self.last_request:
            hours = TURN // timedelta(hours=1)
            raise BlackboardUnavailable(
                f"{board.title} answers so slowly that a pull took more than {hours} h: expected answers within "
                "seconds. It is tried again after the others. Ask its owner."
            )
        return board


def _check_length(key: str) -> None:
    if (size := len(key.encode())) > KEY_BYTES:
        raise InvalidName(f"its name has {size:,} bytes: expected at most {KEY_BYTES:,}. Rename the file")


def _registry_name(key: str) -> str:
    """Return the name of a file in the registry: its key, or the start and digest of a key that is too long."""
    return excerpt(key, KEY_BYTES)


def _names(name: str) -> Iterator[str]:
    """Yield a name, then numbered names for the case that it is already used."""
    return chain([name], (f"{name}-{number}" for number in count(2)))

"""The services that every step of a run uses: the blackboard, the ledger, the maker of rows and the clock."""

import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import psutil

from feed_assets.core.data_centers import board_key
from feed_assets.core.feeds import Feed
from feed_assets.core.slices import SliceReader
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board, open_center
from feed_assets.ledger.database import Ledger, found_ledger, open_ledger
from feed_assets.settings import Settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from feed_assets.runs.maker import Maker

    Watch = Callable[[AbstractContextManager[SparkSession]], AbstractContextManager[SparkSession]]


NO_PROFILE: Mapping[str, str] = MappingProxyType({})
NOWHERE: Mapping[Feed, str] = MappingProxyType({})
"""The default of `elsewhere`: all feeds are on the default blackboard."""


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def _silent(_step: str) -> None:
    """Do nothing."""


class Boards(dict[str | None, Blackboard]):
    """Blackboards by name, None for the default one. Each blackboard is opened on first use.

    Those in the settings have their names there, those of data centers their `board_key`.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, name: str | None) -> Blackboard:
        centers = {board_key(each): each for each in self._settings.data_centers.get_secret_value()}
        if name in centers:
            self[name] = open_center(self._settings, centers[name])
        else:
            self[name] = open_board(self._settings, name=name, makes=False)
        return self[name]


def elsewhere_of(settings: Settings, declared: Mapping[Feed, str] = NOWHERE) -> dict[Feed, str]:
    """Return the blackboards of feeds that are not on the default one: as declared, or where they are listed.

    Another code location's datasets are not declared here. They are on the one of our blackboards that has their
    folder, on the default one if it has it.
    """
    boards = Boards(settings)
    listed = {feed: name for name in settings.own_places if name for feed in read.feeds(boards[name])}
    undeclared = [feed for feed in listed.keys() - declared.keys() if not boards[None].page(str(feed)).names]
    return {**{feed: listed[feed] for feed in undeclared}, **declared}


@dataclass(frozen=True)
class Services:
    """The services of a run. `on_step` is called after each step, for logs and for tests that kill the run there.

    `elsewhere` names the blackboard of each feed that is on one of the `other_boards`. All other feeds are on `board`,
    the default one, which nothing but `board_named` reads: each use names its feed. We write `board` and `own_boards`.
    """

    board: Blackboard
    ledger: Ledger
    maker: "Callable[[], Maker]"
    now: Callable[[], datetime] = utc_now
    on_step: Callable[[str], None] = field(default=_silent)
    elsewhere: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    other_boards: Mapping[str | None, Blackboard] = field(default_factory=dict[str | None, Blackboard])
    own_boards: Collection[str] = ()
    place: str | None = None
    """The data center from whose blackboard a run reads its inputs. None means the primary."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        maker: "Callable[[], Maker] | None" = None,
        *,
        elsewhere: Mapping[Feed, str] = NOWHERE,
        makes: bool = True,
    ) -> "Services":
        """Return the configured services. By default the maker is Spark, which starts with the first run.

        `makes` creates a missing blackboard or ledger. Commands that only read do not set it.
        """
        board = open_board(settings, makes=makes)
        ledger = open_ledger(settings.ledger) if makes else found_ledger(settings.ledger)
        make = maker or (lambda: spark_maker(settings))
        own = frozenset(name for name in settings.own_places if name)
        return cls(board, ledger, make, elsewhere=elsewhere, other_boards=Boards(settings), own_boards=own)

    def board_of(self, feed: Feed) -> Blackboard:
        """Return the blackboard that a feed is on."""
        return self.board_named(self.elsewhere.get(feed))

    def board_named(self, name: str | None) -> Blackboard:
        """Return the blackboard with this name in the settings, or the default one if `name` is None.

        Raise InvalidSetting if the name is unknown.
        """
        return self.other_boards[name] if name else self.board

    def boards(self) -> list[Blackboard]:
        """Return all blackboards that we write, the default one first."""
        return [*map(self.board_named, (None, *sorted(self.own_boards)))]

    def of_others(self) -> set[Feed]:
        """Return the feeds on blackboards of other teams."""
        return {feed for feed, name in self.elsewhere.items() if name not in self.own_boards}


def spark_maker(
    settings: Settings,
    profile: Mapping[str, str] = NO_PROFILE,
    *,
    may_start: bool = True,
    reader: SliceReader | None = None,
    watch: "Watch | None" = None,
) -> "Maker":
    """Return a maker on the process's Spark session. The maker sets a profile's configuration only while it works.

    This is the only place that chooses Spark. `reader` reads the slices that a function gets. `watch` wraps the session
    of each task, and detects that its compute target has died.
    """
    from feed_assets.runs.spark_maker import SparkMaker  # PySpark takes a second to load
    from feed_assets.spark.run_profile import profiled

    def session(size: int) -> "AbstractContextManager[SparkSession]":
        opened = profiled(settings, profile, may_start=may_start, size=size)
        return watch(opened) if watch else opened

    return SparkMaker(session, reader)


def this_process() -> str:
    """Return this process as recorded in the ledger: host, pid and start, because pids are reused."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start(psutil.Process())}"


def _start(process: psutil.Process) -> str:
    """Return the seconds from boot to the start of a process. They do not change when the clock is set."""
    return f"{process.create_time() - psutil.boot_time():.2f}"


def is_dead(process: str) -> bool:
    """Return whether a recorded process has ended for certain. Return False for a process on another host."""
    return process.rsplit(":", 2)[0] == socket.gethostname() and living(process) is None


def living(process: str) -> psutil.Process | None:
    """Return a recorded process if it is on this host and alive. Otherwise return None."""
    host, pid, started = process.rsplit(":", 2)
    with suppress(psutil.NoSuchProcess):
        candidate = psutil.Process(int(pid))
        if host == socket.gethostname() and candidate.status() != psutil.STATUS_ZOMBIE and _start(candidate) == started:
            return candidate
    return None

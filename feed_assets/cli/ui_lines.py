"""Lines that `feed-assets ui` prints while it works: each build when it ends, and each alert once."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from feed_assets.cli.run_output import sentence
from feed_assets.core.errors import LedgerUnavailable
from feed_assets.core.feeds import Feed
from feed_assets.ledger import alerts, log, runs
from feed_assets.ledger.database import found_ledger

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pydantic import SecretStr

Opened = dict[str, tuple[datetime, str]]
"""Open alerts by name, each with the time (UTC) when it opened, and the reason."""

SAID_BY_RUNS = "audit:"
"""The prefix of alerts whose reason the refused run's own line already shows."""


class UiLines:
    """A reader of the ledger, in which all processes of all code locations record their work.

    Args:
        url: The ledger's SQLAlchemy URL.
        say: The function that prints a line.
    """

    def __init__(self, url: "SecretStr | str", say: Callable[[str], None]) -> None:
        self._url, self._say = url, say
        self._position: int | None = None
        self._open: Opened = {}
        self._problem = ""

    def print_new(self) -> None:
        """Print what has happened since the last call. At the first call, print only the open alerts."""
        try:
            with found_ledger(self._url).read() as connection:
                upto = log.last(connection)
                lines = [*_ended(connection, upto if self._position is None else self._position, upto)]
                opened = _open_alerts(connection)
        except LedgerUnavailable as error:
            self._print_problem(str(error))
            return
        for line in lines:
            self._say(line)
        self._print_alerts(opened, is_first=self._position is None)
        self._position, self._problem = upto, ""

    def _print_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._say(f"no news of runs: {problem} The query is repeated until it succeeds.")
        self._problem = problem

    def _print_alerts(self, opened: Opened, *, is_first: bool) -> None:
        old, self._open = self._open, opened
        for name in sorted(opened, key=opened.__getitem__):
            is_new = name not in old or old[name][0] != opened[name][0]
            if is_new and (is_first or not name.startswith(SAID_BY_RUNS)):
                self._say(f"ALERT   {name}: {opened[name][1]}")
        for name in sorted(old.keys() - opened.keys()):
            self._say(f"over    {name}")


def _ended(connection: "sa.Connection", after: int, upto: int) -> Iterator[str]:
    """Yield a line for each build whose end is in the log with a number greater than `after`, at most `upto`."""
    from feed_assets.orchestration.run_outcomes import Ended, numbers_of

    ended = runs.ended_within(connection, after, upto) if after < upto else ()
    written = runs.records(connection, ended) if ended else {}
    for run in ended:
        other_names = sorted(Feed.parse(feed).name for build, feed in written if build == run.id)
        names = [run.output.feed.name, *other_names]
        numbers = numbers_of(run, written)
        end = Ended(tuple(dict.fromkeys(names)), run.output.key or None, run.is_well, run.reason, *numbers)
        yield sentence(end, run.dagster_run or run.id)


def _open_alerts(connection: "sa.Connection") -> Opened:
    opened = alerts.open_alerts(connection)
    return {each.name: (each.opened, each.reason) for each in opened if not each.name.startswith(alerts.NO_ALERTS)}

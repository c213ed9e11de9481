"""A partner whose files are pulled into a feed, and access to the feed's content."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pulls import Pull, Pulled
from feed_assets.feeds import batch_set
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.intake.pull import pull
from feed_assets.intake.pull_turns import PullSource
from feed_assets.ledger import intake_files
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.database import Ledger
from feed_assets.runs.services import Services

FEED = Feed.parse("partners/women/v1.0")
NOW = datetime(2024, 2, 29, 17, tzinfo=UTC)
PATTERN = "%Y-%m-%d/%H/*.csv"
FIRST = "2024-02-29/05/a.csv"


def never() -> bool:
    return False


def at_once() -> bool:
    return True


def key_of(moment: datetime) -> str | None:
    """Return the key of an hourly partition; the feed begins in 2024."""
    return f"{moment:%Y-%m-%d-%H:%M}" if moment.year >= 2024 else None


def no_spark():
    raise AssertionError("pulling needs no Spark")


@dataclass
class Partner:
    """A partner with the blackboard `theirs`; the feed is on `ours`.

    Each look happens at `now`, and its clock advances.
    """

    theirs: Blackboard
    ours: Blackboard
    ledger: Ledger
    pull: Pull = field(default_factory=lambda: Pull("women", PATTERN, prefix="out"))
    now: datetime = NOW
    seconds: count = field(default_factory=count)
    on_step: Callable[[str], None] = lambda _: None

    @property
    def services(self) -> Services:
        clock = lambda: self.now + timedelta(seconds=next(self.seconds))  # noqa: E731
        others = {"women": self.theirs}
        return Services(self.ours, self.ledger, no_spark, clock, self.on_step, other_boards=others)

    def put(self, name: str, content: str) -> None:
        self.theirs.put(f"out/{name}", content.encode())

    def remove(self, name: str) -> None:
        self.theirs.delete([f"out/{name}"])

    def declare(self, **options) -> None:
        self.pull = replace(self.pull, **options)

    def look(self, out_of_time: Callable[[], bool] = never) -> bool:
        return pull(self.services, PullSource(FEED, self.pull, key_of), self.now, out_of_time)

    def look_at_all(self, out_of_time: Callable[[], bool] = at_once) -> int:
        """Look until everything is done, with an expired deadline. Return the number of calls."""
        for calls in range(1, 1000):
            if self.look(out_of_time):
                return calls
        raise AssertionError("a look does not end")

    def registered(self, name: str = FIRST) -> Pulled:
        with self.ledger.read() as connection:
            return intake_files.registered(connection, FEED, [f"out/{name}"])[f"out/{name}"]

    def held(self) -> dict[str, list[str]]:
        """Return the content of all batches by partition, as a reader gets it."""
        found = {}
        for key in self.ours.children(str(FEED)):
            reading = batch_set.latest(self.ours, Partition(FEED, key))
            files = [file for update in reading.updates for file in update.files]
            found[key] = sorted((self.ours.get(file.key) or b"").decode() for file in files)
        return found

    def known(self) -> dict[str, int]:
        """Return the number of batches in the ledger, by partition."""
        partitions = [Partition(FEED, key) for key in self.ours.children(str(FEED))]
        with self.ledger.read() as connection:
            return {at.key: len(pins) for at, pins in pins_of(connection, partitions).items()}

    def updates(self) -> int:
        """Return the number of updates of all batches."""
        return sum(key.endswith("/_SUCCESS") for key in (file.key for file in self.ours.files(str(FEED))))


HOUR = "2024-02-29-05:00"


def rename_file(partner: Partner, name: str, to: str) -> None:
    """Rename a file of the partner, on local disk."""
    root = partner.theirs._root
    (root / "out" / name).rename(root / "out" / to)


def wrong_files(partner: Partner) -> list[str]:
    """Return the files that were not pulled, each with the reason."""
    with partner.ledger.read() as connection:
        found = intake_files.wrong(connection, {FEED: NOW - timedelta(days=3)})
    return [f"{each.file.key}: {each.reason}" for each in found.get(FEED, [])]

"""A feed as a state machine: writers that die, invalidations, clocks that jump, prunes, foreign producers and readers.

The model is a dictionary with the files of each valid update, and the set of ids that were ever used.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import MANIFEST, File, Update, parse_update_id, update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import history, named
from feed_assets.feeds.write import claim, invalidate, publish, seal
from feed_assets_tests.faults.manifests import BAD
from feed_assets_tests.faults.ways import RIGHT, Watched, Ways
from feed_assets_tests.support.counted_blackboards import MEN, Counting

START = datetime(2019, 11, 25, 6, tzinfo=UTC)
JUMPS = [timedelta(0), timedelta(seconds=1), timedelta(hours=-3), timedelta(days=-400), timedelta(days=30_000)]
REQUESTS = ("list", "children", "create", "put", "get")
bad = st.none() | st.just(b"1") | st.sampled_from([content for content in BAD.values() if len(content) < 100])
counts = st.integers(0, 3)
moments = st.timedeltas(timedelta(days=-2), timedelta(days=2)).map(lambda delta: START + delta)


class Killed(BaseException):
    """The end of a writer between two requests; no code of the product catches it."""


class FeedMachine(RuleBasedStateMachine):
    """A driver of one partition in the given ways. `opened` returns its blackboard."""

    opened: Callable[[], AbstractContextManager[Blackboard]]
    ways: Ways = RIGHT
    updates = Bundle("updates")
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.context = type(self).opened()
        self.board = self.ways.over(self.context.__enter__())
        self.now = START
        self.valid: dict[str, frozenset[str]] = {}
        self.used: set[str] = set()

    def teardown(self) -> None:
        self.context.__exit__(None, None, None)

    @initialize()
    def begin(self) -> None:
        self.publish(1)

    @rule(jump=st.sampled_from(JUMPS))
    def the_clock_jumps(self, jump) -> None:
        self.now = min(self.now + jump, datetime(2400, 1, 1, tzinfo=UTC))

    @rule(target=updates, count=counts)
    def publish(self, count):
        return self._published(publish(self.board, MEN, _parts(count), self.now))

    @rule(target=writers)
    def a_writer_claims(self):
        return self._fresh(claim(self.board, MEN, b"a writer", self.now))

    @rule(target=writers)
    def two_writers_claim_at_once(self):
        """Let a second writer claim between the first writer's listing and its claim."""
        second: list[str] = []
        raced = Counting.around(self.board)
        raced.before = {"create": lambda: second or second.append(claim(self.board, MEN, b"second", self.now))}
        first = claim(raced.board, MEN, b"first", self.now)
        return multiple(self._fresh(second[0]), self._fresh(first))

    @rule(target=updates, name=consumes(writers), count=counts)
    def it_seals(self, name, count):
        for part, data in _parts(count).items():
            self.board.put(f"{MEN.path}/{name}/{part}", data)
        expected = [File(f"{MEN.path}/{name}/{part}", len(data)) for part, data in _parts(count).items()]
        return self._valid(seal(self.board, MEN, name, expected))

    @rule(name=consumes(writers), count=counts)
    def it_dies(self, name, count) -> None:
        for part, data in _parts(count).items():
            self.board.put(f"{MEN.path}/{name}/{part}", data)

    @rule(step=st.integers(0, 9), count=counts)
    def a_publisher_is_killed_between_two_requests(self, step, count) -> None:
        dying = Counting.around(self.board)

        def tell() -> None:
            if len(dying.requests) > step:
                raise Killed

        dying.before = dict.fromkeys(REQUESTS, tell)
        with suppress(Killed):
            self._published(publish(dying.board, MEN, _parts(count), self.now))

    @rule(target=updates, moment=moments, count=counts)
    def a_foreign_producer_publishes(self, moment, count):
        return self._foreign(moment, count, str(count).encode())

    @rule(target=updates, moment=moments, manifest=bad)
    def a_foreign_producer_gets_it_wrong(self, moment, manifest):
        name = self._foreign(moment, 2, manifest)
        del self.valid[name]
        return name

    @rule(name=updates, how=st.sampled_from(["manifest", "file"]))
    def invalidate(self, name, how) -> None:
        try:
            invalidate(self.board, MEN, name, how=how)
        except NoValidUpdate:
            assert name not in self.valid
        self.valid.pop(name, None)

    @rule()
    def prune(self) -> None:
        self._prune(None)

    @rule(last=st.integers(0, 3))
    def a_prune_is_killed_before_a_deletion(self, last) -> None:
        self._prune(last)

    @rule(moment=moments)
    def read_as_of(self, moment) -> None:
        names = [name for name in self.valid if name <= update_id(moment)]
        self._read(moment, max(names, default=None))

    @rule(name=updates)
    def read_by_name(self, name) -> None:
        try:
            assert _names(named(self.board, MEN, name)) == self.valid[name]
        except NoValidUpdate:
            assert name not in self.valid
        self._read(parse_update_id(name), max((known for known in self.valid if known <= name), default=None))

    @invariant()
    def the_newest_valid_update_is_read(self) -> None:
        self._read(None, max(self.valid, default=None))

    @invariant()
    def the_history_is_what_is_valid(self) -> None:
        found = {update.id: _names(update) for update in history(self.board, MEN) if isinstance(update, Update)}
        assert found == self.valid

    def _prune(self, last: int | None) -> None:
        """Prune, and read between any two deletions: an update of which anything was deleted is no longer valid."""
        keys: list[str] = []
        before = max(self.valid, default=None)

        def deleting(key: str) -> None:
            self._look_at_what_is_left(keys)
            if len(keys) == last:
                raise Killed
            keys.append(key)

        with suppress(Killed):
            self.ways.prune(Watched(self.board, deleting), MEN)
        self._look_at_what_is_left(keys)
        assert max(self.valid, default=None) == before, "the newest valid update was pruned"

    def _look_at_what_is_left(self, deleted: list[str]) -> None:
        for key in deleted:
            self.valid.pop(key.removeprefix(f"{MEN.path}/").split("/")[0], None)
        self.the_newest_valid_update_is_read()
        self.the_history_is_what_is_valid()

    def _read(self, as_of: datetime | None, expected: str | None) -> None:
        update = self.ways.latest(self.board, MEN, as_of)
        assert (update and update.id) == expected
        assert update is None or _names(update) == self.valid[update.id]

    def _fresh(self, name: str) -> str:
        assert name not in self.used, f"{name} was given out twice"
        assert all(name > other for other in self.valid), f"{name} is hidden by a newer update"
        self.used.add(name)
        return name

    def _published(self, update: Update) -> str:
        self._fresh(update.id)
        return self._valid(update)

    def _valid(self, update: Update) -> str:
        self.valid[update.id] = _names(update)
        return update.id

    def _foreign(self, moment: datetime, count: int, manifest: bytes | None) -> str:
        name = update_id(moment)
        assume(name not in self.used and name not in self.board.children(MEN.path))
        assume(not any(file.key.endswith(name) for file in self.board.files("_feed_assets")))
        for part, data in _parts(count).items():
            self.board.put(f"{MEN.path}/{name}/{part}", data)
        if manifest is not None:
            self.board.put(f"{MEN.path}/{name}/{MANIFEST}", manifest)
        self.used.add(name)
        self.valid[name] = frozenset(_parts(count))
        return name


def _parts(count: int) -> dict[str, bytes]:
    return {f"part-{number}": b"x" * number for number in range(count)}


def _names(update: Update) -> frozenset[str]:
    return frozenset(file.key.removeprefix(f"{update.path}/") for file in update.files)

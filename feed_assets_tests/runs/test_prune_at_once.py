"""Prune, readers and publishers at once, on every store."""

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from itertools import count
from threading import Event

from feed_assets.core.errors import UpdateChanged
from feed_assets.core.retention import Retention
from feed_assets.feeds.read import download, latest, require
from feed_assets.feeds.write import publish
from feed_assets.runs.prune import prune
from feed_assets.runs.services import Services, utc_now
from feed_assets_tests.support.counted_blackboards import MEN

LAST = Retention(keep=1)
TURNS = 12


def no_spark():
    raise AssertionError("no Spark is needed")


class AtOnce:
    """Publishers, and threads that prune and read until they are done."""

    def __init__(self, board, ledger, folder):
        self.services = Services(board, ledger, no_spark, utc_now)
        self.board, self.folder = board, folder
        self.done, self.gone, self.read = Event(), [], []

    def publisher(self, number):
        for turn in range(TURNS):
            content = f"{number} {turn} ".encode() * (turn * 97 + 1)
            publish(self.board, MEN, {"a": content, "b": content}, utc_now())

    def pruner(self):
        while not self.done.is_set():
            self.gone += prune(self.services, MEN, LAST, apply=True).gone

    def reader(self, number):
        """Read until a turn begins after the last publication: its update is the newest, which no prune removes."""
        last = ""
        for turn in count():
            final = self.done.is_set()
            found = require(latest(self.board, MEN))
            assert found.id >= last, f"{found.id} after {last}"
            last = found.id
            with nullcontext() if final else suppress(UpdateChanged):
                self.copy(found, self.folder / f"{number}-{turn}")
            if final:
                return

    def copy(self, found, folder):
        try:
            download(self.board, found, folder)
        except UpdateChanged:
            assert not folder.exists()
            raise
        assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
        self.read.append(found.id)


def test_readers_beside_a_prune_never_see_torn_or_older_updates(board, ledger, tmp_path):
    """Two publish, one prunes all but the last without pause, two read: ids never go back, copies are whole.

    The clock is the real one: a day ahead, a prune would forget the claim of who is just publishing.
    """
    world = AtOnce(board, ledger, tmp_path)
    publish(board, MEN, {"a": b"0", "b": b"0"}, utc_now())
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(world.reader, 0), pool.submit(world.reader, 1), pool.submit(world.pruner)]
        wait([pool.submit(world.publisher, number) for number in range(2)])
        world.done.set()
    for other in others:
        other.result()
    assert max(world.read) == require(latest(board, MEN)).id
    world.gone += prune(world.services, MEN, LAST, apply=True).gone
    assert len({each.id for each in world.gone}) == 2 * TURNS

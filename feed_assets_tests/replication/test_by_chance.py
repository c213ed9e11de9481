"""Histories by chance of a source and two places: readers of each place get what an oracle in plain Python allows.

The oracle knows each update that the source ever had. A reader of a place may get only one of these, whole; it may go
back to an older one only if the newer one was invalidated; and in the end both places have what the source has.
"""

import shutil
from collections import defaultdict
from contextlib import suppress
from hashlib import md5
from pathlib import Path
from random import Random

import pytest

from feed_assets.core.feeds import Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.replication import publication, replicator
from feed_assets.replication.comparison import compare, feeds_of, repair
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.replication.file_copies import copy_file
from feed_assets.replication.turn import LASTS, Turn
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.sync import sync
from feed_assets_tests.replication.two_ends import REJECTS, SALES, Ends, history, overwrite, place_on, visible, wired
from feed_assets_tests.support.own_updates import publish_own

PARTITIONS = [Partition(SALES, "2026-01-30"), Partition(SALES, "2026-01-31"), Partition(REJECTS, "2026-01-31")]
STEPS = 40


class Dead(BaseException):
    """The death of a process at a step."""


class History:
    """A source and two places, what their readers may get, and what they got last."""

    def __init__(self, seed: int, source: Blackboard, boards: list[Blackboard], ledger) -> None:
        self.random = Random(seed)  # noqa: S311
        views, self.wires = zip(*map(wired, boards), strict=True)
        self.places = [place_on(views[0], "b", at_once=1), place_on(views[1], "c", at_once=1, keep=2)]
        self.ends = Ends(source, self.places[0], ledger)
        self.ever = defaultdict[tuple[Partition, str], list](list)
        self.revoked = set[tuple[Partition, str]]()
        self.last = dict[tuple[str, Partition], str]()

    def step(self) -> None:
        """Do one thing, and look what readers of each place get."""
        doings = [self.publish, self.publish, self.replicate, self.replicate, self.die, self.die_later]
        doings += [self.invalidate, self.revalidate, self.write_again, self.prune, self.damage, self.slow]
        self.random.choice(doings)()
        self.look("")

    def look(self, _step: str) -> None:
        for place in self.places:
            for partition in PARTITIONS:
                self.look_at(place, partition)

    def look_at(self, place, partition: Partition) -> None:
        got = visible(place.board, partition)
        before = self.last.get((place.name, partition), "")
        if got is not None:
            assert got[1] in self.ever[partition, got[0]], "it is an update that the source had"
        now = got[0] if got else ""
        if now < before:
            assert (partition, before) in self.revoked, "it went back, and nobody invalidated the newer one"
        self.last[place.name, partition] = now

    def publish(self) -> None:
        """Publish an update of a dataset, after its rejects if it has some."""
        partition = self.random.choice(PARTITIONS)
        if self.random.random() < 0.3:
            self.ends.clock.pass_(seconds=1)
            update = publish_own(self.ends.services, partition, self.ends.clock())
        else:
            count = self.random.randrange(4)
            files = {f"part-{each}.csv": self.random.randbytes(self.random.randrange(50)) for each in range(count)}
            update = self.ends.publish(partition, files)
        self.ever[partition, update.id].append(history(self.ends.source, partition)[update.id])

    def chosen(self):
        """Return a partition, and the id and content of one of its valid updates. Return None if there is none."""
        partition = self.random.choice(PARTITIONS)
        valid = history(self.ends.source, partition)
        return (partition, update_id := self.random.choice([*valid]), valid[update_id]) if valid else None

    def invalidate(self) -> None:
        if chosen := self.chosen():
            partition, update_id, _ = chosen
            self.ends.invalidate(publication.Update(partition, update_id, ()))
            self.revoked.add((partition, update_id))

    def revalidate(self) -> None:
        if self.revoked:
            partition, update_id = self.random.choice(sorted(self.revoked))
            with suppress(Exception):  # It was pruned, or other files are there.
                revalidate(self.ends.services, partition, update_id)

    def write_again(self) -> None:
        """Let another team write its newest update again under the same id: it is not valid while that lasts."""
        chosen = self.chosen()
        if chosen and chosen[2] and chosen[1] == max(history(self.ends.source, chosen[0])):
            partition, update_id, content = chosen
            path, name = f"{partition.path}/{update_id}", self.random.choice([*content])
            if name.endswith(".csv"):
                self.ends.source.put(f"{path}/{name}", self.random.randbytes(51))
                self.ever[partition, update_id].append(history(self.ends.source, partition)[update_id])
                self.revoked.add((partition, update_id))
                sync(self.ends.source, self.ends.ledger, partition, self.ends.clock())

    def prune(self) -> None:
        self.ends.prune(self.random.choice(PARTITIONS), keep=self.random.randrange(1, 4))

    def place(self):
        return self.random.choice(self.places)

    def replicate(self) -> None:
        self.ends.clock.pass_(seconds=self.random.choice([1, 10, 600]))
        self.ends.on_step = self.look
        self.ends.replicate(self.place())
        self.ends.on_step = lambda _: None

    def die(self, meanwhile=lambda: None) -> None:
        """Let a replicator die at a step. Its turn stays."""
        steps = iter(range(self.random.randrange(12)))

        def on_step(step: str) -> None:
            self.look(step)
            if next(steps, None) is None:
                meanwhile()
                raise Dead

        self.ends.on_step, end = on_step, Turn.end
        Turn.end = lambda turn: None  # type: ignore[method-assign]
        try:
            with suppress(Dead):
                self.ends.replicate(self.place())
        finally:
            Turn.end = end  # type: ignore[method-assign]
        self.ends.on_step = lambda _: None
        self.ends.clock.pass_(seconds=self.random.choice([1, LASTS.total_seconds()]))

    def die_later(self) -> None:
        """Let the source change between a replicator's steps, and the replicator die."""
        self.die(self.random.choice([self.invalidate, self.write_again, self.publish]))

    def slow(self) -> None:
        """Let a replicator lose its turn at a step without noticing, and another one do its work meanwhile."""
        steps, place = iter(range(self.random.randrange(12))), self.place()

        def on_step(step: str) -> None:
            self.look(step)
            if next(steps, None) is None:
                self.ends.on_step = self.look
                self.ends.clock.pass_(seconds=2 * LASTS.total_seconds())
                self.random.choice([self.invalidate, self.write_again, self.publish])()
                self.ends.replicate(place)

        self.ends.on_step = on_step
        self.ends.replicate(place)
        self.ends.on_step = lambda _: None

    def damage(self) -> None:
        """Damage bytes on the way for one copy, or a file at rest, which a repair puts right."""
        if self.random.random() < 0.5:
            wire = self.random.choice(self.wires)
            wire.on_chunk = lambda _, chunk: chunk[:-1] + b"!"
            self.replicate()
            wire.on_chunk = lambda _, chunk: chunk
            return
        place, partition = self.place(), self.random.choice(PARTITIONS)
        if (got := visible(place.board, partition)) and got[1]:
            name, data = self.random.choice([*got[1].items()])
            overwrite(place.board, f"{partition.path}/{got[0]}/{name}", bytes(each ^ 1 for each in data))
            self.repair(place)

    def repair(self, place) -> None:
        self.ends.clock.pass_(seconds=LASTS.total_seconds())
        turn = Turn(self.ends.ledger, place.name, self.ends.clock)
        turn.take_or_raise()
        for each in self.differences(place):
            self.revoked.add((each.partition, each.update_id))
            repair(CopyEnds(self.ends.services, place, turn), each)
        turn.end()

    def differences(self, place):
        return [*compare(self.ends.services, place, feeds_of(self.ends.services, place))]

    def end(self) -> None:
        """Do all work: then both places have what the source has, each as much as it keeps.

        Before the last updates, a place may still have one that the source has pruned without a newer valid one.
        """
        self.ends.clock.pass_(seconds=LASTS.total_seconds())
        for place in self.places:
            self.ends.on_step = self.look
            assert self.ends.settle(place).failed == 0
            assert self.differences(place) == []
        for partition in PARTITIONS:
            update = self.ends.publish(partition)
            self.ever[partition, update.id].append(history(self.ends.source, partition)[update.id])
        for place in self.places:
            self.ends.on_step = self.look
            assert self.ends.settle(place).failed == 0
            assert self.differences(place) == []
            for partition in PARTITIONS:
                assert visible(place.board, partition) == visible(self.ends.source, partition)
        for partition in PARTITIONS:
            originals, copies = (history(board, partition) for board in (self.ends.source, self.places[0].board))
            assert copies == {each: originals.get(each) for each in copies}


def run(seed: int, folder: Path, empty_ledger: Path) -> None:
    folder.mkdir()
    shutil.copyfile(empty_ledger, folder / "ledger.db")
    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}")
    source, *boards = (Blackboard.open((folder / name).as_uri(), create=True) for name in "abc")
    try:
        past = History(seed, source, boards, ledger)
        for _ in range(STEPS):
            past.step()
        past.end()
    finally:
        ledger.engine.dispose()


def run_all(folder: Path, empty_ledger: Path) -> None:
    for seed in range(12):
        run(seed, folder / str(seed), empty_ledger)


@pytest.mark.parametrize("seed", range(12))
def test_readers_of_each_place_get_whole_updates_in_order_and_both_places_converge(seed, tmp_path, empty_ledger):
    run(seed, tmp_path / "history", empty_ledger)


def _manifest_first(ends, update, since, again=None):
    """Copy as a tool does that knows no manifest: it is one of the files."""
    ends.board.put(f"{update.path}/_SUCCESS", str(len(update.files)).encode())
    for file in update.files:
        copy_file(ends.source_of(update.partition), ends.board, file, lambda _: None)
        ends.services.on_step("file copied")


@pytest.mark.parametrize("wrong", ["manifest first", "no withdrawal", "no look at the source", "no digest"])
def test_wrong_replicators_are_caught(wrong, tmp_path, empty_ledger, monkeypatch):
    if wrong == "manifest first":
        monkeypatch.setattr(replicator, "copy_update", _manifest_first)
    elif wrong == "no withdrawal":
        monkeypatch.setattr(replicator, "withdraw", lambda *_: True)
    elif wrong == "no look at the source":
        monkeypatch.setattr(publication, "check_source", lambda *_: None)
        monkeypatch.setattr(replicator, "withdraw", lambda *_: True)
    else:
        monkeypatch.setattr(publication, "copy_file", _unverified)
    with pytest.raises(AssertionError):
        run_all(tmp_path, empty_ledger)


def _unverified(source, place, file, checkpoint):
    data = source.get(file.key)
    place.put_chunks(file.key, [data])
    return publication.CopiedFile(
        file.size, md5(data, usedforsecurity=False).hexdigest(), file.etag, place.file(file.key).etag
    )

"""One cell of the S3 fault grid: a writer or a reader meets a fault, and the cell asserts what readers may see then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from uuid import uuid4

from feed_assets.core.errors import BlackboardRefused, FeedAssetsError, UpdateAbandoned
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.s3_proxy import Fault, Proxy

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
BIG = Partition(Feed.parse("grid/big/v1.0"), "readers")
"""A partition whose newest update has more files than a page of a listing."""

Write = Callable[[Blackboard, Partition, Mapping[str, bytes], datetime], Update]
_Outcome = tuple[Update | None, Exception | None]
Read = Callable[[Blackboard, Partition], Update | None]


def read_latest(board: Blackboard, partition: Partition) -> Update | None:
    """Read the newest update by the product's own code."""
    return read.latest(board, partition).update


@dataclass(frozen=True)
class Cell:
    """Request that is struck, kind of fault, and seed of the other choices."""

    target: str
    kind: str
    seed: int

    def fault(self) -> Fault:
        """Return the fault: it strikes once for an even seed, so that a repetition heals it, and else always."""
        random = Random(f"{self.target} {self.kind} {self.seed}")  # noqa: S311
        times = 1 if self.seed % 2 == 0 else 1_000
        return Fault(self.target, self.kind, times, is_applied=random.random() < 0.5)

    @property
    def heals(self) -> bool:
        """Return True if a repetition, or a look at what was applied, must heal the fault."""
        if self.kind == "reset after" and self.target in ("put manifest", "create"):
            return True
        return self.seed % 2 == 0 and self.kind in ("503", "500", "reset before", "reset after")


@dataclass
class Grid:
    """A blackboard seen through the proxy and without it; `write` and `read` are the functions under test."""

    proxy: Proxy
    through: Blackboard
    hasty: Blackboard
    direct: Blackboard
    write: Write = write.publish
    read: Read = read_latest

    def run(self, cell: Cell) -> None:
        """Run the cell, and assert what must hold. Every message names the cell."""
        try:
            if cell.target in ("put part", "put manifest", "create"):
                self._writer_meets(cell)
            else:
                self._reader_meets(cell)
        except AssertionError as error:
            raise AssertionError(f"{cell}: {error}") from error
        finally:
            self.proxy.begin()

    def _writer_meets(self, cell: Cell) -> None:
        partition, old, new = _partition(cell), _parts("old"), _parts("new")
        first = write.publish(self.direct, partition, old, NOW)
        self._seen(partition)  # Leaves a listing in the proxy that will be stale.
        acknowledged, error = self._under(cell, lambda board: self.write(board, partition, new, NOW))
        valid = read_latest(self.direct, partition)
        assert valid is not None, "nothing is left to be read"
        content = {name: self.direct.get(f"{valid.path}/{name}") for name in new}
        if acknowledged:
            assert valid.id == acknowledged.id, f"lost: {acknowledged.id} was acknowledged, {valid.id} is read"
            claim = self.direct.get(f"{write.CLAIMS}/{partition.path}/{valid.id}")
            assert claim is not None, "published without a claim"
        assert len(valid.files) == 2, "torn"
        assert content in ([old] if valid.id == first.id else [new]), "torn"
        self._judge(cell, acknowledged, error)
        if cell.heals:
            assert len(self.direct.files(f"{write.CLAIMS}/{partition.path}")) == 2, "an id was given up for nothing"
        again = self.write(self.through, partition, _parts("again"), NOW)
        assert read_latest(self.direct, partition) == again, "the next publication is not what is read"

    def _reader_meets(self, cell: Cell) -> None:
        partition = BIG if cell.target == "list page 2" else _partition(cell)
        if partition != BIG:
            write.publish(self.direct, partition, _parts("old"), NOW)
            self._seen(partition)
            write.publish(self.direct, partition, _parts("new"), NOW)
        expected = read_latest(self.direct, partition)
        found, error = self._under(cell, lambda board: self.read(board, partition))
        if error is None and cell.kind != "stale list":
            assert found == expected, f"read {found and found.id}, and {expected and expected.id} was there before"
        elif error is None and found is not None:
            assert found == read.named(self.direct, partition, found.id), "torn"
        self._judge(cell, found, error)
        assert self.read(self.through, partition) == expected, "the fault outlived itself"

    def _under(
        self, cell: Cell, action: Callable[[Blackboard], Update | None]
    ) -> tuple[Update | None, Exception | None]:
        self.proxy.begin(cell.fault())
        try:
            return action(self.hasty if cell.kind == "timeout" else self.through), None
        except FeedAssetsError as error:
            return None, error
        finally:
            fired, self.proxy.fault = self.proxy.fired, None
            assert fired, "the fault never struck"

    def _judge(self, cell: Cell, result: Update | None, error: Exception | None) -> None:
        if cell.kind == "access denied":
            assert isinstance(error, BlackboardRefused), f"refused access came out as {result or error!r}"
        elif cell.heals:
            assert error is None, f"not healed by repetition: {error}"
        elif isinstance(error, UpdateAbandoned):
            assert cell.kind == "stale list", error

    def _seen(self, partition: Partition) -> None:
        self.proxy.begin()
        self.read(self.through, partition)


def _partition(cell: Cell) -> Partition:
    return Partition(Feed.parse("grid/small/v1.0"), f"{cell.seed}-{uuid4().hex[:12]}")


def _parts(text: str) -> dict[str, bytes]:
    return {f"part-{number}.csv": f"{text} {number}\n".encode() * 20 for number in (1, 2)}

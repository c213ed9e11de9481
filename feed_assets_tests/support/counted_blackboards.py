"""A foreign producer, and a blackboard that counts its requests and can call a function before one."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.store_clients import ObstoreClient

FEED = Feed.parse("ads/shown/v1.0")
MEN = Partition(FEED, "2019-11-24/men")
OLD, NEW = "20191125.060000", "20191126.060000"


@dataclass
class Counting:
    """A client that records every call and passes it on to another client."""

    client: ObstoreClient
    before: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    requests: list[tuple[str, object]] = field(default_factory=list)
    board: Blackboard = field(init=False)

    @classmethod
    def around(cls, board: Blackboard, before: Mapping[str, Callable[[], object]] | None = None) -> "Counting":
        """Return a counter of the requests of a second view of the same blackboard: `.board`."""
        counting = cls(board._client, before or {})
        counting.board = Blackboard(board.url, counting, board._root)
        return counting

    def _passed(self, name: str, argument: object) -> None:
        self.requests.append((name, argument))
        self.before.get(name, lambda: None)()

    def list(self, prefix, /, after=None):
        self._passed("list", prefix)
        return self.client.list(prefix, after)

    def children(self, prefix, /):
        self._passed("children", prefix)
        return self.client.children(prefix)

    def get(self, key, /, start=0):
        self._passed("get", key)
        return self.client.get(key, start)

    def part(self, key, start, length, /):
        self._passed("part", key)
        return self.client.part(key, start, length)

    def head(self, key, /):
        self._passed("head", key)
        return self.client.head(key)

    def put(self, key, data, /, *, create):
        self._passed("create" if create else "put", key)
        self.client.put(key, data, create=create)

    def delete(self, keys, /):
        self._passed("delete", tuple(keys))
        self.client.delete(keys)


def with_operations(
    board: Blackboard, before: Callable[[str], object] = lambda _: None
) -> tuple[Blackboard, list[str]]:
    """Return a second view of a blackboard, and a list to which each of its operations is added, such as `read KEY`.

    `before` is called before each operation.
    """
    view, operations = copy(board), list[str]()

    def noted(action: str, *keys: str, is_folder: bool = False) -> AbstractContextManager[None]:
        before(action)
        operations.append(action)
        return board._translated(action, *keys, is_folder=is_folder)

    view._translated = noted  # type: ignore[method-assign]
    return view, operations


def write(board, update_id, manifest=b"2", files=("part-1.csv", "part-2.csv"), partition=MEN):
    """Write an update as a foreign producer does: nothing is checked."""
    for name in files:
        board.put(f"{partition.path}/{update_id}/{name}", name.encode())
    if manifest is not None:
        board.put(f"{partition.path}/{update_id}/_SUCCESS", manifest)


def tree(folder):
    """Return every file under a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

"""The right ways to write, read and prune a feed, and deliberately wrong ones that the fault tests must catch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, File, Partition, Update, parse_update_id
from feed_assets.feeds import read, removal, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.store_clients import ObstoreClient


def prune(board: Blackboard, partition: Partition) -> None:
    """Remove updates that have a manifest and are older than the newest valid one, as the product's retention does."""
    for path in _prunable(board, partition):
        removal.remove(board, partition, path.rsplit("/", 1)[-1])


def latest_valid(board: Blackboard, partition: Partition, as_of: datetime | None) -> Update | None:
    """Read by the product's own code."""
    return read.latest(board, partition, as_of).update


@dataclass(frozen=True)
class Ways:
    """Functions that a fault test drives: the product's own, unless one is replaced by a wrong one."""

    publish: Callable[[Blackboard, Partition, Mapping[str, bytes], datetime], Update] = write.publish
    latest: Callable[[Blackboard, Partition, datetime | None], Update | None] = latest_valid
    prune: Callable[[Blackboard, Partition], None] = prune
    client: Callable[[ObstoreClient], ObstoreClient] | None = None

    def over(self, board: Blackboard) -> Blackboard:
        """Return a view of the blackboard through this way's client."""
        return Blackboard(board.url, self.client(board._client), board._root) if self.client else board


RIGHT = Ways()


class Watched(Blackboard):
    """A view of a blackboard that deletes one key at a time and calls `deleting` before each; the call may raise."""

    def __init__(self, board: Blackboard, deleting: Callable[[str], object]) -> None:
        super().__init__(board.url, board._client, board._root)
        self._deleting = deleting

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._deleting(key)
            super().delete([key])

    def sweep(self, prefix: str) -> int:
        self.delete(file.key for file in self.files(prefix))
        return super().sweep(prefix)


def _prunable(board: Blackboard, partition: Partition) -> list[str]:
    newest = read.latest(board, partition).update
    names = [name for name in board.children(partition.path) if parse_update_id(name) and newest and name < newest.id]
    paths = [f"{partition.path}/{name}" for name in names]
    return [path for path in paths if board.get(f"{path}/{MANIFEST}") is not None]


def publish_counting_before_the_last_part(board, partition, parts, now) -> Update:
    """Publish wrongly: the manifest counts the parts so far, and is put before the last part."""
    update_id = write.claim(board, partition, uuid4().hex.encode(), now)
    path, (*first, last) = f"{partition.path}/{update_id}", parts.items()
    for name, data in first:
        board.put(f"{path}/{name}", data)
    board.put(f"{path}/{MANIFEST}", str(len(board.files(path))).encode())
    board.put(f"{path}/{last[0]}", last[1])
    board.put(f"{path}/{MANIFEST}", str(len(parts)).encode())
    return Update(partition, update_id, tuple(File(f"{path}/{name}", len(data)) for name, data in parts.items()))


def prune_parts_first(board: Blackboard, partition: Partition) -> None:
    """Prune wrongly: without one part, an update that had an extra file counts right again."""
    for path in _prunable(board, partition):
        for file in write.listed(board, partition, path.rsplit("/", 1)[-1]):
            board.delete([file.key])
        board.sweep(path)


def latest_without_count(board, partition, as_of) -> Update | None:
    """Read wrongly: a manifest is enough."""
    return _latest_by(lambda manifest, files: True, board, partition, as_of)


def latest_by_int(board, partition, as_of) -> Update | None:
    """Read wrongly: `int()` takes '+2', '1_0', ' 2' and Arabic digits."""
    return _latest_by(_counts_by_int, board, partition, as_of)


def _latest_by(judge: Callable[[bytes, tuple[File, ...]], bool], board, partition, as_of) -> Update | None:
    for name in reversed(board.children(partition.path)):
        moment = parse_update_id(name)
        if moment is None or (as_of and moment > as_of):
            continue
        manifest = board.get(f"{partition.path}/{name}/{MANIFEST}", MANIFEST_LIMIT + 1)
        files = write.listed(board, partition, name)
        if manifest is not None and judge(manifest, files):
            return Update(partition, name, files)
    return None


def _counts_by_int(manifest: bytes, files: tuple[File, ...]) -> bool:
    try:
        return int(manifest.decode()) == len(files)
    except ValueError:
        return False


class Unconditional:
    """A wrong client, whose conditional create overwrites an existing object."""

    def __init__(self, client: ObstoreClient) -> None:
        self._client = client
        self.list, self.children, self.get, self.delete = client.list, client.children, client.get, client.delete

    def put(self, key, data, /, *, create):
        self._client.put(key, data, create=False)

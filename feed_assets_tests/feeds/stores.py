"""A blackboard that counts its requests, and can be made to do something before one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from feed_assets.feeds.blackboard import Blackboard, Client


@dataclass
class Counting:
    """A client that passes every call on to another one and remembers it."""

    client: Client
    before: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    requests: list[tuple[str, object]] = field(default_factory=list)
    board: Blackboard = field(init=False)

    @classmethod
    def around(cls, board: Blackboard, before: Mapping[str, Callable[[], object]] | None = None) -> "Counting":
        """Count the requests of a second view of the same blackboard: `.board`."""
        counting = cls(board._client, before or {})
        counting.board = Blackboard(board.url, counting, board._root)
        return counting

    def _passed(self, name: str, argument: object) -> None:
        self.requests.append((name, argument))
        self.before.get(name, lambda: None)()

    def list(self, prefix, /):
        self._passed("list", prefix)
        return self.client.list(prefix)

    def children(self, prefix, /):
        self._passed("children", prefix)
        return self.client.children(prefix)

    def get(self, key, /):
        self._passed("get", key)
        return self.client.get(key)

    def put(self, key, data, /, *, create):
        self._passed("create" if create else "put", key)
        self.client.put(key, data, create=create)

    def delete(self, keys, /):
        self._passed("delete", tuple(keys))
        self.client.delete(keys)

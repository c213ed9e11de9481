"""A publisher that is killed at one of twelve points. It runs as a process of its own, so it imports little else."""

import os
import random
import resource
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

import obstore

from feed_assets.core.feeds import MANIFEST
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.store_clients import ObstoreClient
from feed_assets_tests.support.feed_processes import MEN, NOW

CLAIM = "the claim"
POINTS = [
    *((CLAIM, when) for when in ("half", "whole")),
    *((part, when) for part in ("first", "middle", "last") for when in ("half", "whole")),
    *((MANIFEST, when) for when in ("before", "empty", "half", "whole")),
]
"""Object that is being written, and how much of it exists at the kill. `whole`: the reply is not read."""


def parts(seed: int) -> dict[str, bytes]:
    """Return ten to twelve parts, so that half a manifest is a number too.

    Each part holds the seed and the number of parts.
    """
    chance = random.Random(seed)  # noqa: S311
    count = chance.randint(10, 12)
    head = f"{seed} of {count} ".encode()
    return {f"part-{number:02}": head + b"x" * chance.choice([1, 60, 5_000]) for number in range(count)}


def publish_and_die(publish: Callable, url: str, point: tuple[str, str], seed: int) -> None:
    """Publish the parts of a seed, and kill the process at a point."""
    board, names = Blackboard.open(url, credentials=_credentials), [*parts(seed)]
    keys = {"first": names[0], "middle": names[len(names) // 2], "last": names[-1]}
    dying = Dying(board, keys.get(point[0], point[0]), point[1])
    publish(Blackboard(board.url, dying, board._root), MEN, parts(seed), NOW)


def _credentials():
    """Return the credentials of the environment directly: boto3 needs a tenth of a second to find them."""
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    return {**{key: os.environ[name] for key, name in names.items()}, "token": None, "expires_at": None}


class Dying:
    """A client that kills its process while it writes one object."""

    def __init__(self, board: Blackboard, name: str, when: str) -> None:
        self._client: ObstoreClient = board._client
        self._name, self._when, self._local = name, when, board._root is not None
        self.list, self.children, self.get, self.delete = (
            *(self._client.list, self._client.children, self._client.get, self._client.delete),
        )

    def put(self, key: str, data: bytes, /, *, create: bool) -> None:
        if (CLAIM if create else key.rsplit("/", 1)[-1]) != self._name:
            self._client.put(key, data, create=create)
            return
        if self._when in ("empty", "half"):
            cut = len(data) // 2 if self._when == "half" else 0
            self._cut_on_disk(cut) if self._local else self._send(key, data, cut)
        if self._when != "before":
            self._client.put(key, data, create=create)
        _die()

    def _cut_on_disk(self, cut: int) -> None:
        """Make the kernel kill this process during obstore's own write, after `cut` bytes of the file."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (cut, cut))

    def _send(self, key: str, data: bytes, cut: int) -> None:
        """Send the request with `cut` bytes of its body, and kill the process: obstore cannot be stopped midway."""
        url = urlsplit(obstore.sign(self._client._store, "PUT", key, timedelta(minutes=5)))  # pyright: ignore
        head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(head.encode() + data[:cut])
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

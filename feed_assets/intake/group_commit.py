"""Group commit: items that arrive during a commit are committed together by the next one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """Group commit with the function `commit`, which runs in a thread for one group of items at a time.

    `commit` returns one result per item, in order. If it raises an error, each caller of the group gets that error.
    """

    def __init__(self, commit: Callable[[Sequence[T]], Sequence[R]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        """Commit an item together with all other waiting items. Return the result of this item."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        """Commit groups until no item waits. An item is also committed if its client has disconnected."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                results = await asyncio.to_thread(self._commit, [item for item, _ in group])
            except Exception as error:  # noqa: BLE001 (each caller of the group gets it)
                for _, done in group:
                    _ = done.done() or done.set_exception(error)
            else:
                for (_, done), result in zip(group, results, strict=True):
                    _ = done.done() or done.set_result(result)
        self._running = None

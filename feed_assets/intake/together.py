"""Group commit: what comes while one commit is under way is committed by the next one, all of it at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Together(Generic[T, R]):
    """A commit, called in a thread by one group at a time; it gives a result for each item, in their order.

    What it raises, each of the group gets.
    """

    def __init__(self, commit: Callable[[Sequence[T]], Sequence[R]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        """Commit an item with whatever else is in flight."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        """Commit groups until nobody waits. Whose client has gone is committed all the same, and not told."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                results = await asyncio.to_thread(self._commit, [item for item, _ in group])
            except Exception as error:  # noqa: BLE001 (each of the group raises it)
                for _, done in group:
                    _ = done.done() or done.set_exception(error)
            else:
                for (_, done), result in zip(group, results, strict=True):
                    _ = done.done() or done.set_result(result)
        self._running = None

"""Renewal of a loader's lease during long copies. Otherwise another loader would take the lease."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine

RENEW_SECONDS = 10.0
"""Seconds between two renewals outside of transactions. A load's transaction renews the lease itself."""


@contextmanager
def kept(engine: Engine, holder: str) -> Generator[None]:
    """Renew the lease until the block ends. The block must not open a transaction, which would block the renewals.

    Raise WarehouseTaken at the end of the block if the lease was lost.
    """
    done = Event()
    with ThreadPoolExecutor(1) as pool:
        renewed = pool.submit(_renewed, engine, holder, done)
        try:
            yield
        finally:
            done.set()
    renewed.result()


def _renewed(engine: Engine, holder: str, done: Event) -> None:
    while not done.wait(RENEW_SECONDS):
        try:
            with engine.open() as connection:
                load_state.renew(connection, engine, holder)
        except WarehouseUnavailable:  # If this lasts, the load's transaction raises the error.
            continue

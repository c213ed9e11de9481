"""The lease of a loader that copies for long: it is renewed meanwhile, or another loader would take it."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine

RENEW_SECONDS = 10.0
"""Seconds between two renewals, outside of transactions: these renew the lease themselves, and hold it."""


@contextmanager
def kept(engine: Engine, holder: str) -> Generator[None]:
    """Renew the lease until the block ends, which has no transaction: it and a renewal would wait for each other.

    Raise WarehouseTaken at the end of the block.
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
        except WarehouseUnavailable:  # If it still is when all is copied, the transaction raises it.
            continue

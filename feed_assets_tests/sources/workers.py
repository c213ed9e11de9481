"""Functions that the tests of event sources run in other processes."""

import random
import time

import psycopg

from feed_assets_tests.support import feed_processes

feed_processes.processes.set_forkserver_preload([feed_processes.__name__, __name__])
INSERT = (
    "INSERT INTO events (table_name, marker, event_marker, correlation_id, write_operation, partition_key, context) "
    "VALUES ('retail/purchases', %s, 0, %s, 'UPSERT', '', '{}')"
)


def write_many(uri: str, writer: int, count: int, hold: float, barrier=None, seed=None) -> None:
    """Insert events, each in a transaction that stays open for up to `hold` seconds after it has its number."""
    dice = random.Random(f"{seed} {writer}")  # noqa: S311
    with psycopg.connect(uri) as connection:
        if barrier:
            barrier.wait(60)
        for number in range(count):
            connection.execute(INSERT, (number, f"{writer}-{number}"))
            time.sleep(dice.uniform(0, hold))
            connection.commit()

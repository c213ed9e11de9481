"""Latency from a message to its row in a warehouse: connector and loader as services, over real servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from time import sleep

from benchmarks import Benchmark, Goal, Pair
from benchmarks.chunks import NAME, PARTITIONS, Clicks, connector, served, stopped
from feed_assets.core.topics import Topic
from feed_assets.core.warehouses import Warehouse
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.offset_range import Chunking
from feed_assets.warehouse import load_state, loader
from feed_assets.warehouse.table import Loading
from feed_assets_tests.support.servers import postgresql_server


@contextmanager
def to_a_row() -> Iterator[Pair]:
    """Produce a message and wait for its row in PostgreSQL; both time limits are one second."""
    with served(PARTITIONS) as (servers, schemas, folder), postgresql_server() as postgresql:
        clients, board = Clients({"bootstrap.servers": servers}), Blackboard.open(folder.as_uri())
        warehouse = Warehouse(url=postgresql.database(), seconds=1)
        loading, topics = Loading("bench", warehouse, clients, schemas, board), {NAME: Topic(key=("id",))}
        clicks, dice = Clicks(servers, schemas), Random(1)  # noqa: S311
        with (
            connector(Chunking(clients, schemas, board, lambda _: None)),
            stopped(partial(loader.run, loading, topics)),
            loading.engine.open() as connection,
        ):

            def there() -> int:
                return sum(each.next_offset for each in load_state.read(connection, NAME).positions.values())

            def one() -> None:
                before = there()
                clicks.send(1)
                while there() == before:
                    sleep(0.01)

            sleep(5)  # Wait until earlier messages are loaded.
            # Each message is sent at a random moment of the loader's polls.
            yield Pair(one, lambda: sleep(2), lambda: sleep(dice.random()))


BENCHMARKS = [
    Benchmark(
        "row-latency",
        "a message produced to its row (PostgreSQL), with two time limits of 1 s",
        "the two seconds",
        Goal(1.5),
        100,
        10,
        to_a_row,
        tail=99,
    )
]

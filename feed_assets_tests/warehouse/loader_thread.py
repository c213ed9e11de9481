"""A loader in a thread, and a value that it cannot load."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from feed_assets.warehouse import loader
from feed_assets.warehouse.table import Loading
from feed_assets_tests.support.kafka_topics import FIELDS, World


@contextmanager
def loading_in_thread(
    loading: Loading, *worlds: World, figures: dict[str, float] | None = None
) -> Iterator[list[BaseException]]:
    """Run a loader in a thread; yield a list that receives the exception it ends with.

    `figures` gets the numbers of its signs of life.
    """
    stopping, ended, kept = Event(), list[BaseException](), {} if figures is None else figures

    def run() -> None:
        try:
            sources = {each.name: each.settings for each in worlds}
            loader.run(loading, sources, stopping, (0.05, 0.1), beat=lambda made: kept.update(made()))
        except BaseException as error:  # noqa: BLE001 - it is looked at by the test
            ended.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        stopping.set()
        thread.join(60)


def value_of_other_type(world: World) -> bytes:
    from feed_assets.kafka import avro

    fields = [FIELDS[0], {"name": "n", "type": "boolean"}]
    schema_id = world.schemas.register(f"{world.name}-other", {"type": "record", "name": "value", "fields": fields})
    return avro.encoded({"id": "k1", "n": True}, world.schemas.get(schema_id), schema_id)

"""Random chunks of a topic, and the check that their table is right."""

from random import Random

from feed_assets.core.sql_text import quoted
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

STATEMENTS = 45
"""Number of statements; more than a load of one schema has."""


def produce_chunks(stream: Stream, chance: Random) -> None:
    """Produce some chunks of two partitions; now and then with a new schema, while the previous one is still in use."""
    made = [each for each in stream.schemas.known if each != stream.key_id]
    if not made or chance.random() < 0.3:
        extra = [{"name": f"x{number}", "type": "int", "default": number} for number in range(len(made))]
        made.append(stream.schemas.add(ID, TEXT, *extra))
    for _ in range(chance.randint(1, 3)):
        partition, schema = chance.randint(0, 1), chance.choice(made[-2:])
        names = [each["name"] for each in stream.schemas.get(schema).declared["fields"]][2:]
        keys = [2 * chance.randint(0, 9) + partition for _ in range(chance.randint(1, 6))]
        rows = [{"id": key, "text": f"é{chance.random()}", **dict.fromkeys(names, 7)} for key in keys]
        stream.send(
            schema, *((chance.choice(["update", "create", "delete", None]), row) for row in rows), partition=partition
        )


def check_fold(loader: Loader, stream: Stream) -> None:
    """Check that the table is the fold of the messages up to its positions. New columns of old rows have defaults."""
    known = loader.known(stream)
    if known.shape is None:
        return
    names = [each.name for each in known.shape.columns]
    columns = ", ".join(map(quoted, [*names, "_partition", "_offset"]))
    found = {row[names.index("id")]: row for row in loader.ask(f"SELECT {columns} FROM {quoted(stream.name)}")}
    folded = stream.folded({number: each.next_offset for number, each in known.positions.items()})
    defaults = {name: int(name[1:]) for name in names if name[0] == "x"}
    expected = {
        key: (*({**defaults, **value}[name] for name in names), *place) for (key,), (value, *place) in folded.items()
    }
    assert found == expected, "the table is not what its positions say"

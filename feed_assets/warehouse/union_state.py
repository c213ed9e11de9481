"""The state of a table of several topics, and the shape of its rows, for the load of one of the topics."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from feed_assets.core.errors import InvalidShape, LoadFailed
from feed_assets.core.topic_unions import MOST_TOPICS, TOPIC, UnionPart, partition_name
from feed_assets.warehouse import loader_tables, union_topics
from feed_assets.warehouse.load_state import Position, TopicState
from feed_assets.warehouse.shapes import TEXT, Column, Shape
from feed_assets.warehouse.variants import loose


def with_topic(shape: Shape, part: UnionPart) -> Shape:
    """Return the shape of a union's table for a schema's shape of one topic.

    Its columns are nullable and have no default, except the key: a row has only values of its own topic. They have no
    aliases either: a column with the alias's name may be another topic's.
    """
    if TOPIC in {*shape.key, *(each.name for each in shape.columns)}:
        raise InvalidShape(
            f"the schema or the key has a field {TOPIC}: that is a column of the union's table. Rename the field."
        )
    topic = Column(name=TOPIC, kind=TEXT, is_nullable=not part.topic_in_key)
    fields = [each.model_copy(update={"aliases": ()}) for each in shape.columns]
    columns = (topic, *(each if each.name in shape.key else loose(each) for each in fields))
    key = (TOPIC, *shape.key) if part.topic_in_key else shape.key
    return shape.model_copy(update={"columns": columns, "key": key, "is_union": True})


def staged(shape: Shape, part: UnionPart | None) -> Shape:
    """Return a table's shape for the staging of rows: a union's rows get the topic of the load by default."""
    if part is None:
        return shape
    columns = [
        each.model_copy(update={"default": part.topic}) if each.name == TOPIC else each for each in shape.columns
    ]
    return shape.model_copy(update={"columns": tuple(columns)})


def check_kind(table: str, state: TopicState, *, is_union: bool) -> None:
    """Raise InvalidShape if a table was loaded from one topic, and is now declared as a union, or the reverse."""
    if (state.shape is None and not state.positions) or union_topics.is_union(state.topic_id) == is_union:
        return
    was, now = ("one topic", "a union of topics") if is_union else ("a union of topics", "one topic")
    raise InvalidShape(
        f"{table} was loaded from {was}, and is now declared as the table of {now}: expected the same. Choose another "
        f"name for the union, or make the table anew: `feed-assets warehouse reset WAREHOUSE {table} --apply`."
    )


def with_topics(table: str, state: TopicState, topics: Iterable[str]) -> TopicState:
    """Return the state with all declared topics: new ones get the next numbers, and others keep theirs.

    Raise LoadFailed for topics that no load can have written, and for more than MOST_TOPICS.
    """
    ids = union_topics.ids_in(table, state.topic_id)
    ids |= {each: None for each in topics if each not in ids}
    if len(ids) > MOST_TOPICS:
        raise LoadFailed(
            f"{table} has {len(ids):,} topics, with those that are no longer declared: expected at most {MOST_TOPICS}. "
            f"Declare fewer. {loader_tables.reset_advice(table)}"
        )
    if wrong := [each for each in state.positions if partition_name([*ids], each) is None]:
        expected = f"partitions of {len(ids)} topics"
        raise loader_tables.altered("positions", str(wrong[0]), expected, loader_tables.reset_advice(table))
    return replace(state, topic_id=union_topics.text_of(ids))


def parts(table: str, state: TopicState, topics: Iterable[str], *, topic_in_key: bool) -> list[UnionPart]:
    """Return the declared topics with their numbers, in the order of the numbers."""
    numbered, declared = tuple(union_topics.ids_in(table, state.topic_id)), {*topics}
    return [UnionPart(numbered, number, topic_in_key) for number, topic in enumerate(numbered) if topic in declared]


def positions_of(state: TopicState, part: UnionPart | None) -> Mapping[int, Position]:
    """Return the stored positions of a topic by its own partition numbers."""
    if part is None:
        return state.positions
    own = part.partitions
    return {number - own.start: each for number, each in state.positions.items() if number in own}


def id_of(table: str, state: TopicState, part: UnionPart | None) -> str | None:
    """Return the broker's id of the topic whose messages the stored positions count."""
    return union_topics.ids_in(table, state.topic_id).get(part.topic) if part else state.topic_id


def with_id(table: str, state: TopicState, part: UnionPart | None, topic_id: str | None) -> str | None:
    """Return the text to store for a table after a load of a topic with this id."""
    return (
        union_topics.text_of(union_topics.ids_in(table, state.topic_id) | {part.topic: topic_id}) if part else topic_id
    )

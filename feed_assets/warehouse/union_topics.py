"""The topics of a union in the state tables. Their order gives the numbers of their partitions, and never changes.

The column `topic_id` of a union's table has each topic with its id as JSON. Ids of the broker never begin with `[`.
"""

import json
from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter, ValidationError

from feed_assets.core.errors import LoadFailed
from feed_assets.core.sql_text import literal
from feed_assets.core.topic_unions import partition_name
from feed_assets.warehouse import loader_tables
from feed_assets.warehouse.engines import Connection
from feed_assets.warehouse.statements import STATE

_IDS = TypeAdapter(list[tuple[str, str | None]])

_BEGIN = "["

_LONGEST = 1 << 16
"""The most characters of a stored list of topics: the most topics with long names and ids have fewer."""

_MOST_UNIONS = 1_000
"""The most unions of a warehouse whose topics are read."""


def is_union(text: str | None) -> bool:
    """Return whether a stored `topic_id` has the topics of a union."""
    return text is not None and text.startswith(_BEGIN)


def ids_in(table: str, text: str | None) -> dict[str, str | None]:
    """Return the id of each topic of a union, in order. Raise LoadFailed for a text that no load can have written."""
    if text is None:
        return {}
    try:
        return dict(_IDS.validate_json(text))
    except ValidationError as error:
        expected = "the topics of a union with their ids, as JSON"
        advice = loader_tables.reset_advice(table)
        raise loader_tables.altered("tables", repr(text[:80]), expected, advice) from error


def text_of(ids: Mapping[str, str | None]) -> str:
    """Return the text to store for topics with their ids."""
    return json.dumps([*ids.items()])


def topics_of(connection: Connection) -> dict[str, dict[str, str | None]]:
    """Return the topics of each union in a warehouse, with their ids, by table name and in the order of their numbers.

    Leave out those that no load can have written.
    """
    rows = connection.execute(
        f"SELECT topic, left(topic_id, {_LONGEST}) FROM {STATE}.tables WHERE left(topic_id, 1) = {literal(_BEGIN)} "
        f"ORDER BY topic LIMIT {_MOST_UNIONS}"
    )
    topics = dict[str, dict[str, str | None]]()
    for table, text in rows:
        try:
            topics[table] = ids_in(table, text)
        except LoadFailed:
            continue
    return topics


def name_of(topics: Iterable[str] | None, partition: int | None) -> str | None:
    """Return the name of a partition: its number, or topic and number in a union with these topics.

    Return None without a partition, and for a number that no load can have written.
    """
    if partition is None or topics is None:
        return None if partition is None else str(partition)
    return partition_name([*topics], partition)

"""Checks of a declared union: several Kafka topics that are loaded into one warehouse table."""

import re
from collections.abc import Sequence

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topic_unions import MOST_TOPICS, TOPIC
from feed_assets.core.topics import TOPIC_NAME, Topic
from feed_assets.orchestration.declare.declarations import EventTable, LoadedUnion, declaration_of
from feed_assets.orchestration.declare.input_specs import Input

_SAME = ("key", "newest_by", "conflicts", "masks", "flatten")
"""The rules that the topics of a union have in common. Their formats may differ."""


def union_of(
    name: str, topics: Sequence[dg.AssetSpec], union: str | None, warehouse: str
) -> tuple[list[dg.AssetSpec], LoadedUnion]:
    """Return the topics of a union, and its declaration.

    Raise InvalidDefinition without a valid name, or for topics that do not fit together.
    """
    specs = [Input(each).spec for each in topics]
    tables = [_topic_table(name, each) for each in specs]
    names = tuple(each.table_name for each in tables)
    if union is None or not re.fullmatch(TOPIC_NAME, union):
        raise InvalidDefinition(
            f"{name} has topics, and union is {union!r}: expected the table's name in the warehouse, of letters, "
            "digits, '_', '-' and '.', such as union='shop.orders'."
        )
    if union in names:
        raise InvalidDefinition(f"{name}: union is {union!r}, which is one of its topics. Choose another name.")
    if not names or len(names) > MOST_TOPICS:
        raise InvalidDefinition(f"{name} has {len(names)} topics: expected 1 to {MOST_TOPICS}.")
    if twice := [each for each in names if names.count(each) > 1]:
        raise InvalidDefinition(f"{name}: topics has {twice[0]} more than once. Remove the others.")
    _check_alike(name, {each.table_name: each.topic for each in tables if each.topic})
    return specs, LoadedUnion(union, names, warehouse)


def _topic_table(name: str, spec: dg.AssetSpec) -> EventTable:
    declared = declaration_of(spec)
    if not isinstance(declared, EventTable) or declared.topic is None:
        key = spec.key.to_user_string()
        raise InvalidDefinition(f"{name}: one of topics is {key}: expected what kafka_topic returns.")
    return declared


def _check_alike(name: str, rules: dict[str, Topic]) -> None:
    """Raise InvalidDefinition if two topics have other keys, orders, conflicts or masks."""
    (first, first_rules), *further = rules.items()
    if TOPIC in first_rules.key:
        raise InvalidDefinition(f"{name}: the key has {TOPIC}, a column of every union. Rename the field.")
    for topic, topic_rules in further:
        for each in _SAME:
            one, other = getattr(first_rules, each), getattr(topic_rules, each)
            if one != other:
                rule = "mask" if each == "masks" else each
                raise InvalidDefinition(
                    f"{name}: {rule} of {first} is {one!r}, and of {topic} {other!r}: expected the same for all topics "
                    "of a union, because their rows are in one table. Declare them alike."
                )

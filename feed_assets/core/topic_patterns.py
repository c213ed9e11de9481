"""Patterns of topic names: the topics of a broker that match, and the names of their tables."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.limits import check_feed, check_version
from feed_assets.core.topics import TOPIC_NAME, Topic, dead_letters_of, history_of, signals_of, versions_of

MOST_TOPICS = 1_000
"""The most topics of one pattern. Each is an asset with a sensor, and has two topics beside it."""

KeyFields = Mapping[str, tuple[str, ...]]
"""Matching topics, each with the fields of its message key, or with () if the pattern's declaration has the key."""


@dataclass(frozen=True)
class TopicPattern:
    """Rules for all topics whose whole name matches a regular expression.

    Attributes:
        prefix: The first part of the tables' names.
        pattern: The regular expression. Its group, if there is one, matches the rest of a table's name.
        rules: Rules for the chunks of each topic. Their key counts only if `has_key`.
        has_key: True if one key is declared for all topics. Otherwise each topic has the fields of its message key.
        warehouses: The warehouses into which each topic is loaded.
        histories: The warehouses in which each topic has a history table.
    """

    prefix: str
    pattern: str
    rules: Topic
    has_key: bool
    warehouses: tuple[str, ...] = ()
    histories: tuple[str, ...] = ()

    def table_of(self, topic: str) -> str | None:
        """Return the name of a topic's table. Return None if the topic does not match.

        Raise InvalidName if the topic's name cannot be part of the name of a table, here or in a warehouse.
        """
        if not (match := re.fullmatch(self.pattern, topic)) or topic.startswith("__"):
            return None
        name = f"{self.prefix}/{(match.re.groups and match[1]) or topic}"
        feed = check_version(check_feed(Feed.parse(name)))
        if feed.version or not re.fullmatch(TOPIC_NAME, topic):
            raise InvalidName(f"the table {name!r} of the topic {topic!r} has no valid name: rename the topic.")
        for each in _assets(self, name):
            check_feed(Feed.parse(each))
        return name

    def topic_with(self, fields: tuple[str, ...]) -> Topic:
        """Return the rules for a topic whose message key has these fields. Raise InvalidName for an invalid key."""
        if self.has_key:
            return self.rules
        try:
            return Topic.model_validate({**self.rules.model_dump(), "key": fields})
        except ValidationError as error:
            why = error.errors()[0]["msg"].removeprefix("Value error, ") if fields else "expected one field or more"
            raise InvalidName(f"the message key has the fields {fields}: {why}.") from None

    def topics(self, recorded: KeyFields) -> dict[str, Topic]:
        """Return the rules of recorded topics that still match, ordered by name.

        A topic that was recorded without the fields of its key is left out, until the connector has recorded them. So
        is one whose name is no table's since the pattern was changed. The connector says why.
        """
        matching = {name: fields for name, fields in sorted(recorded.items()) if self._has_table(name)}
        return {name: self.topic_with(fields) for name, fields in matching.items() if fields or self.has_key}

    def _has_table(self, topic: str) -> bool:
        try:
            return self.table_of(topic) is not None
        except InvalidName:
            return False


def check_pattern(pattern: str) -> str:
    """Return a regular expression. Raise InvalidDefinition if it is invalid or has several groups."""
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidDefinition(f"pattern {pattern!r}: {error}: expected a regular expression of Python.") from None
    if groups > 1:
        raise InvalidDefinition(
            f"pattern {pattern!r} has {groups} groups: expected at most one, which matches the rest of a table's "
            "name. Write other groups as (?:…)."
        )
    return pattern


def identifier_of(topic: str) -> str:
    """Return the name of a topic's event source. Names that differ only in `.`, `-` and `_` give the same one."""
    return f"topic_{re.sub('[.-]', '_', topic)}"


def names_of(pattern: TopicPattern, topic: str) -> list[str]:
    """Return all names that a matching topic needs: of assets, of its event source, and of tables in warehouses."""
    table = f"{pattern.table_of(topic)}"
    tables = [table_in(each, topic) for each in pattern.warehouses]
    tables += [table_in(each, name) for each in pattern.histories for name in (history_of(topic), versions_of(topic))]
    return [identifier_of(topic), table, *_assets(pattern, table), *tables]


def _assets(pattern: TopicPattern, table: str) -> list[str]:
    """Return the names of a table's assets in warehouses."""
    names = [f"{each}/{table}" for each in pattern.warehouses]
    return names + [f"{each}/{history_of(table)}" for each in pattern.histories]


def table_in(warehouse: str, name: str) -> str:
    """Return what names a table or view in a warehouse among all names in use."""
    return f"table {name} in {warehouse}"


def new_topics(
    pattern: TopicPattern, listed: Collection[str], recorded: Collection[str], owners: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the topics of a broker that match and are new, and why others are refused, by topic.

    `recorded` are the topics of this pattern. `owners` has all names in use, each with its topic or asset. A topic in
    it never matches, and neither do the topics of signals and of dead letters.
    """
    owned, names, refused = dict(owners), list[str](), dict[str, str]()
    beside = {each for topic in {*listed, *owners.values()} for each in (signals_of(topic), dead_letters_of(topic))}
    for topic in sorted({*listed} - {*owners.values()} - beside):
        try:
            if pattern.table_of(topic) is None:
                continue
        except InvalidName as error:
            refused[topic] = str(error)
            continue
        needed = names_of(pattern, topic)
        if beside_it := {signals_of(topic), dead_letters_of(topic)} & {*owned.values()}:
            refused[topic] = f"{min(beside_it)} is read already, and would be the topic of its signals or dead letters"
        elif used := [name for name in needed if name in owned]:
            refused[topic] = f"its name {used[0]} is that of {owned[used[0]]}"
        elif len(recorded) + len(names) >= MOST_TOPICS:
            refused[topic] = f"the pattern matches more than {MOST_TOPICS:,} topics: narrow it"
        else:
            names.append(topic)
            owned |= dict.fromkeys(needed, topic)
    return names, refused


def check_collisions(pattern: TopicPattern, topics: Iterable[str]) -> None:
    """Raise InvalidDefinition if two topics need the same name. A pattern that was changed can cause this."""
    owners: dict[str, str] = {}
    for topic in topics:
        for name in names_of(pattern, topic):
            if (first := owners.setdefault(name, topic)) != topic:
                raise InvalidDefinition(
                    f"kafka_topics({pattern.prefix!r}): the topics {first} and {topic} both need the name {name}: "
                    "expected different names. Correct the pattern's group."
                )

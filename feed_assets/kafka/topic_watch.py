"""Topics that a connector reads: the declared ones, and those at the broker that match a pattern.

A topic that matches is recorded in the ledger before it is read. So whoever sees one of its chunks has its asset after
the next load of the definitions, and a connector that is killed in between reads it from its first offset.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feed_assets.core.errors import InvalidName, ServiceUnavailable
from feed_assets.core.message_words import shortened
from feed_assets.core.topic_patterns import TopicPattern, names_of, new_topics
from feed_assets.core.topics import Topic
from feed_assets.home import say
from feed_assets.kafka.clients import translated
from feed_assets.kafka.offset_range import Chunking
from feed_assets.ledger import matched_topics
from feed_assets.ledger.database import Ledger

LOOK_SECONDS = 30.0
"""Seconds between two listings of the broker's topics."""

ANSWER_SECONDS = 5.0
"""Seconds within which the broker must list its topics. The connector reads nothing meanwhile."""

NEW_TOPICS = 200
"""The most topics whose key schemas one look requests. A request delays all other topics."""

_NAMED = 4


@dataclass
class TopicWatch:
    """A regular look for topics that match a pattern.

    `declared` are the topics that are always read. `owners` are the names in use in the code location, each with the
    topic or asset that has it.
    """

    ledger: Ledger
    chunking: Chunking
    patterns: Sequence[TopicPattern]
    declared: Mapping[str, Topic]
    owners: Mapping[str, str]
    _next: float = field(default=float("-inf"), init=False)
    _topics: Mapping[str, Topic] = field(default_factory=dict[str, Topic], init=False)
    _refusals: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]], init=False)
    _admin: Any = field(default=None, init=False)

    def look(self, now: float) -> Mapping[str, Topic] | None:
        """Return all topics to read if they have changed. Return None if they have not, or if no look is due.

        If the broker, the registry or the ledger does not answer, print a line, and look again later: the topics that
        are read already must not wait for it.
        """
        if now < self._next:
            return None
        self._next = now + LOOK_SECONDS
        try:
            topics = self._recorded()
            topics = self._recorded() if self._record_new() else topics
        except ServiceUnavailable as error:
            say(f"connector: looks for new topics again in {LOOK_SECONDS:g} s: {error}", level="warning")
            topics = self._readable() or self._topics
        changed, self._topics = topics != self._topics, topics
        return topics if changed else None

    def _readable(self) -> Mapping[str, Topic] | None:
        """Return the topics by the ledger, if the ledger answers: the broker may be away at the start."""
        try:
            return self._recorded()
        except ServiceUnavailable:
            return None

    def _recorded(self) -> dict[str, Topic]:
        topics = dict(self.declared)
        with self.ledger.read() as connection:
            for pattern in self.patterns:
                topics = pattern.topics(matched_topics.recorded(connection, pattern.prefix)) | topics
        return topics

    def _record_new(self) -> bool:
        """Record the topics of the broker that match and are new. Return whether there are any."""
        listed = self._listed()
        return sum(self._record_of(pattern, listed) for pattern in self.patterns) > 0

    def _record_of(self, pattern: TopicPattern, listed: Collection[str]) -> bool:
        with self.ledger.read() as connection:
            recorded = {each: each.topics(matched_topics.recorded(connection, each.prefix)) for each in self.patterns}
        names, refused = new_topics(pattern, listed, recorded[pattern], self._owners(recorded))
        fields, without_key = self._key_fields(pattern, names)
        self._say_refused(pattern, refused | without_key)
        if not fields:
            return False
        with self.ledger.write() as connection:
            matched_topics.record(connection, pattern.prefix, fields)
        say(
            f"connector: reads {len(fields)} new topics that match {pattern.prefix}: {shortened([*fields], _NAMED)}. "
            "Reload the code location to see their assets."
        )
        return True

    def _owners(self, recorded: Mapping[TopicPattern, Collection[str]]) -> dict[str, str]:
        """Return the names in use: those of the code location, and those of all recorded topics."""
        names = [(name, topic) for each in recorded for topic in recorded[each] for name in names_of(each, topic)]
        return {**dict(names), **self.owners}

    def _key_fields(
        self, pattern: TopicPattern, names: Sequence[str]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """Return the fields of the message keys of topics, and why others have none, by topic.

        Topics that were refused before come last, so that they do not use up all requests.
        """
        if pattern.has_key:
            return dict.fromkeys(names, ()), {}
        fields, refused = dict[str, tuple[str, ...]](), dict[str, str]()
        before = self._refusals.get(pattern.prefix, {})
        for name in sorted(names, key=lambda each: each in before)[:NEW_TOPICS]:
            try:
                key = self.chunking.schemas.key_fields(name)
                pattern.topic_with(key)
            except InvalidName as error:
                refused[name] = str(error)
            else:
                fields[name] = key
        return fields, refused

    def _listed(self) -> set[str]:
        self._admin = self._admin or self.chunking.clients.admin()
        with translated("list the topics", self._admin):
            metadata = self._admin.list_topics(timeout=ANSWER_SECONDS)
        return {name for name, each in metadata.topics.items() if each.error is None}

    def _say_refused(self, pattern: TopicPattern, refused: Mapping[str, str]) -> None:
        """Print why matching topics are not read, once for each change of the reasons."""
        if refused and self._refusals.get(pattern.prefix) != refused:
            reasons = [f"{name} ({why})" for name, why in sorted(refused.items())]
            say(
                f"connector: does not read {len(reasons)} topics that match {pattern.prefix}: "
                f"{shortened(reasons, _NAMED)}",
                level="error",
            )
        self._refusals[pattern.prefix] = dict(refused)

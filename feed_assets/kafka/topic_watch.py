"""Topics that a connector reads: the declared ones, and those at the broker that match a pattern.

A topic that matches is recorded in the ledger before it is read. So whoever sees one of its chunks has its asset after
the next load of the definitions, and a connector that is killed in between reads it from its first offset.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from feed_assets.core.errors import InvalidName, KafkaUnavailable, ServiceUnavailable
from feed_assets.core.message_words import shortened
from feed_assets.core.topic_patterns import TopicPattern, names_of, new_topics
from feed_assets.core.topics import Topic
from feed_assets.home import say
from feed_assets.kafka import companion_topics
from feed_assets.kafka.clients import translated
from feed_assets.kafka.offset_range import Chunking
from feed_assets.ledger import matched_topics
from feed_assets.ledger.database import Ledger

LOOK_SECONDS = 30.0
"""Seconds between two listings of the broker's topics."""

ANSWER_SECONDS = 5.0
"""Seconds within which the broker must list its topics. The connector reads nothing meanwhile."""

NEW_TOPICS = 100
"""The most topics that one look begins. Each takes some requests, which delay all other topics."""

MOST_FAILURES = 3
"""Failures to prepare a topic after which a look begins no more of them: each may take as long as the broker likes."""

NEW_SECONDS, AGAIN_SECONDS = 5.0, 1.0
"""Seconds after which a look prepares no further topic: one that is new, or one that was refused before."""

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
    _tries: Counter[str] = field(default_factory=Counter[str], init=False)

    def look(self, now: float) -> Mapping[str, Topic] | None:
        """Return all topics to read if they have changed. Return None if they have not, or if no look is due.

        If the broker, the registry or the ledger does not answer, print a line, and look again later: the topics that
        are read already must not wait for it.
        """
        if now < self._next:
            return None
        began = self.chunking.clock()
        try:
            topics = self._recorded()
            topics = self._recorded() if self._record_new() else topics
        except ServiceUnavailable as error:
            say(f"connector: looks for new topics again in {LOOK_SECONDS:g} s: {error}", level="warning")
            topics = self._readable() or self._topics
        self._next = now + self.chunking.clock() - began + LOOK_SECONDS  # After the look, which may have taken long.
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
            names, refused = self._new(connection, pattern, listed)
        fields, unusable = self._prepared(pattern, names)
        if fields:
            fields, refused_late = self._recorded_of(pattern, fields)
            unusable |= refused_late
        self._say_refused(pattern, refused | unusable)
        if not fields:
            return False
        say(
            f"connector: reads {len(fields)} new topics that match {pattern.prefix}: {shortened([*fields], _NAMED)}. "
            "Reload the code location to see their assets."
        )
        return True

    def _recorded_of(
        self, pattern: TopicPattern, fields: Mapping[str, tuple[str, ...]]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """Record topics with the fields of their keys. Return them, and why others are refused.

        Another connector may have recorded a topic meanwhile that needs the same name. Changes run one after the other.
        """
        with self.ledger.change() as connection:
            names, refused = self._new(connection, pattern, fields)
            kept = {name: fields[name] for name in names}
            matched_topics.record(connection, pattern.prefix, kept)
        return kept, refused

    def _new(
        self, connection: sa.Connection, pattern: TopicPattern, listed: Collection[str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the topics that match and are not recorded, and why others are refused."""
        recorded = {each: each.topics(matched_topics.recorded(connection, each.prefix)) for each in self.patterns}
        return new_topics(pattern, listed, recorded[pattern], self._owners(recorded))

    def _owners(self, recorded: Mapping[TopicPattern, Collection[str]]) -> dict[str, str]:
        """Return the names in use: those of the code location, and those of all recorded topics."""
        names = [(name, topic) for each in recorded for topic in recorded[each] for name in names_of(each, topic)]
        return {**dict(names), **self.owners}

    def _prepared(
        self, pattern: TopicPattern, names: Sequence[str]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """Make the topics beside new topics. Return the fields of their message keys, and why others are not read.

        A topic that cannot be prepared, for example without the rights for it, is not recorded: at the next start it
        would stop all others. Topics that were tried often come last, and have little time: others wait for a look.
        """
        began, fields, failures = self.chunking.clock(), dict[str, tuple[str, ...]](), 0
        refused = {name: why for name, why in self._refusals.get(pattern.prefix, {}).items() if name in names}
        for name in sorted(names, key=lambda each: self._tries[each])[:NEW_TOPICS]:
            if self.chunking.clock() > began + (AGAIN_SECONDS if self._tries[name] else NEW_SECONDS):
                break
            self._tries[name] += 1
            try:
                key = () if pattern.has_key else self.chunking.schemas.key_fields(name)
                pattern.topic_with(key)
                self._prepare(name)
            except InvalidName as error:
                refused[name] = str(error)
            except KafkaUnavailable as error:
                refused[name], failures = str(error), failures + 1
                if failures >= MOST_FAILURES:
                    break
            else:
                fields[name] = key
                refused.pop(name, None)
        return fields, refused

    def _prepare(self, name: str) -> None:
        """Make the topics beside a topic. Raise InvalidName if one is not ours."""
        if other := companion_topics.foreign(self.chunking.admin, name):
            raise InvalidName(
                f"{other} exists and removes messages by age or size, so it is not ours: rename a topic, or set "
                "its retention.ms and retention.bytes to -1 if it is"
            )
        companion_topics.prepare(self.chunking.admin, name)

    def _listed(self) -> set[str]:
        with translated("list the topics", admin := self.chunking.admin):
            metadata = admin.list_topics(timeout=ANSWER_SECONDS)
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

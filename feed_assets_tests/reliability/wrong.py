"""Wrong variants of the system: each is a patch of a forked process, and breaks an invariant of the checker."""

from collections.abc import Callable
from itertools import count
from typing import Any

import sqlalchemy as sa

VARIANT = "WHOLE_WRONG"
"""The environment variable that chooses a wrong variant."""

variants: dict[str, Callable[[], None]] = {}
breaks: dict[str, str] = {}
"""The invariant that each variant breaks."""


def variant(invariant: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a wrong variant under the name of its function, with the invariant that it breaks."""

    def register(patch: Callable[[], None]) -> Callable[[], None]:
        variants[patch.__name__], breaks[patch.__name__] = patch, invariant
        return patch

    return register


def be_wrong(name: str) -> None:
    """Patch this process."""
    if name:
        variants[name]()


@variant("nothing_that_failed_its_check_is_readable")
def publishes_before_the_audit() -> None:
    """Publish whatever the checks have found."""
    from feed_assets.runs.maker import Audit

    Audit.passed = property(lambda _: True)  # type: ignore[assignment,method-assign]


@variant("every_input_is_in_one_current_version")
def forgets_what_it_requested() -> None:
    """Decide only when something arrives: a request is forgotten at once, even if its run is killed."""
    from feed_assets.ledger import due, fan_out

    right = fan_out._add

    def forget(ledger: Any, requested: Any, _now: Any) -> Any:
        with ledger.write() as connection:
            for each in requested:
                same = (due.due.c.feed == str(each.partition.feed)) & (due.due.c.partition == each.partition.key)
                connection.execute(sa.delete(due.due).where(same))
        return requested

    def add(reach: Any, reader: str, change: Any, affected: Any) -> None:
        if str(change.partition.feed) != reader:  # The end of a run does not bring it back either.
            right(reach, reader, change, affected)

    due.claim, fan_out._add = forget, add


@variant("rows_are_those_of_the_named_inputs")
def counts_no_files() -> None:
    """Read each update that has a part, whatever its manifest is."""
    from feed_assets.feeds import read

    read.why_invalid = lambda *_: None  # type: ignore[assignment]


@variant("nothing_is_built_twice_of_one_snapshot")
def asks_not_whether_it_is_done() -> None:
    """Build what the same code has built of the same inputs."""
    from feed_assets.runs.build import _Build

    _Build._is_done = lambda *_: False  # type: ignore[method-assign]


@variant("every_event_is_consumed_once")
def moves_past_events_that_it_has_not_recorded() -> None:
    """Leave out every third event of a source, and move on behind it."""
    from feed_assets.ledger import event_store

    right = event_store.record

    def record(connection: Any, source: str, events: Any, *more: Any, **options: Any) -> Any:
        kept = events if source == event_store.OURS else [each for each in events if each.marker % 30]
        return right(connection, source, kept, *more, **options)

    event_store.record = record


@variant("every_publication_has_one_event")
def moves_past_events_that_its_sink_refused() -> None:
    """Leave out every third event for the sink."""
    from feed_assets.sources.sinks import SqlSink

    right, number = SqlSink.publish_on, count(1)
    SqlSink.publish_on = lambda self, connection, events: right(  # type: ignore[method-assign]
        self, connection, [each for each in events if next(number) % 3]
    )


@variant("deliveries_arrive_at_least_once_and_in_order")
def removes_deliveries_before_they_are_accepted() -> None:
    """Remove a change from the outbox before the target has it."""
    from feed_assets.deliveries import outbox, sender

    take = sender._Turn.take

    def removing(self: Any, head: Any, now: Any) -> Any:
        group = take(self, head, now)
        with self._ledger.write() as connection:
            outbox.remove(connection, group or [])
        return group

    sender._Turn.take = removing


@variant("copies_equal_their_originals")
def copies_without_a_digest() -> None:
    """Copy files over a bad wire, and compare nothing."""
    from hashlib import md5

    from feed_assets.replication import publication

    def copy_file(source: Any, place: Any, file: Any, _checkpoint: Any) -> Any:
        data = source.get(file.key)
        place.put_chunks(file.key, [data[:-1] + b"!"])
        digest = md5(data, usedforsecurity=False).hexdigest()
        return publication.CopiedFile(file.size, digest, file.etag, place.file(file.key).etag)

    publication.copy_file = copy_file


@variant("the_table_equals_the_newest_updates")
def marks_updates_that_it_has_not_loaded() -> None:
    """Move the mark past every third update without loading it."""
    from feed_assets.warehouse.dataset import DatasetTable

    right, number = DatasetTable._load, count(1)

    def load(self: Any, update: Any, now: float) -> None:
        if next(number) % 3:
            right(self, update, now)

    DatasetTable._load = load


@variant("each_explanation_was_true")
def explains_without_a_look() -> None:
    """Explain by the ledger alone, whatever has arrived since the last tick."""
    from feed_assets.runs import sync

    sync.sync_needs = lambda *_: []  # type: ignore[assignment]


@variant("every_acknowledged_event_is_published_once")
def removes_segments_of_unpublished_batches() -> None:
    """Leave out every second batch of a segment, and remove the segment."""
    from feed_assets.intake import flush

    right, number = flush.publish, count(1)
    flush.publish = lambda *more: right(*more) if next(number) % 2 else None  # type: ignore[assignment]

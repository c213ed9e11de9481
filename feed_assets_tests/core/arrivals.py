"""Events as a ledger would have recorded them, from a few words."""

from datetime import UTC, datetime, timedelta

from feed_assets.core.events import Operation, Recorded, WriteEvent, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer, Due, due

START = datetime(2024, 1, 1, tzinfo=UTC)


def feed(name):
    return Feed.parse(name)


def consumer(*tables, pipelines=None, **options):
    named = {name: frozenset(map(feed, each)) for name, each in (pipelines or {}).items()}
    return Consumer(feed("report"), frozenset(map(feed, tables)), named, **options)


def arrived(*reported, key="", operation=Operation.INSERT):
    """Return recorded events from (table, correlation[, marker[, operation[, context]]]), in order."""
    last, found = {}, []
    for number, (table, correlation, *rest) in enumerate(reported, 1):
        marker = rest[0] if rest and rest[0] is not None else number
        kind = rest[1] if len(rest) > 1 else operation
        earlier = [each for each in last.get(table, []) if each < marker]
        previous = encode(max(earlier)) if earlier else None
        last.setdefault(table, []).append(marker)
        at = START + timedelta(minutes=number)
        partition = Partition(feed(table), key)
        context = rest[2] if len(rest) > 2 else {}
        start = WriteEvent(table, marker, at, correlation, kind, key, context).start(previous)
        found.append(
            Recorded(
                number, "", partition, encode(marker), previous, start, encode(at), correlation, kind, context, None, at
            )
        )
    return found


def seen_in(events):
    seen = {}
    for event in events:
        seen.setdefault((event.correlation, event.partition.key), set()).add((event.partition.feed, event.sequence))
    return {key: sorted(reported, key=lambda each: each[1]) for key, reported in seen.items()}


def due_of(who, events, history=()) -> Due:
    """Judge `events`; `history` was consumed before."""
    return due(who, events, seen_in([*history, *events]))


def taken(found):
    """Return the selected correlation ids, in order."""
    return [each.correlation for each in found.selected]


def ranges(found):
    """Return the slices by table as (after, upto) in whole numbers."""
    return {str(s.partition.feed): (int(s.start) if s.start else None, int(s.end)) for s in found.slices}

"""Invariants of events: those of others, those that partners push, and ours."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

from feed_assets_tests.reliability.evidence import Evidence, invariant
from feed_assets_tests.reliability.published import CLICKED, CLICKS, SLICES


@invariant
def every_event_is_consumed_once(evidence: Evidence) -> Iterator[str]:
    """Object unless the slices of all reports follow each other from the first event of each table to its last."""
    pieces = defaultdict[str, list[tuple[int, int]]](list)
    for update in evidence.updates[SLICES].get("", []):
        for row in evidence.rows(update):
            pieces[row["table"]].append((row["after"], row["upto"]))
    for name, last in evidence.table("team.db", "SELECT table_name, max(CAST(marker AS int)) FROM events GROUP BY 1"):
        found = sorted(pieces[f"team/{name}"])
        if [start for start, _ in found] != [0, *(end for _, end in found)][: len(found)]:
            yield f"team/{name} was read in {found}, which do not follow each other"
        if not found or found[-1][1] != last:
            yield f"team/{name} was read up to {found[-1:]}, not up to {last}"


@invariant
def every_acknowledged_event_is_published_once(evidence: Evidence) -> Iterator[str]:
    """Object unless the batches have each click that the receiver acknowledged once, and a dataset has the same."""
    clicks = defaultdict[str, list[str]](list)
    for batch, found in evidence.updates[CLICKS].items():
        clicks[batch.partition("/")[0]] += [row["id"] for row in evidence.rows(found[-1])]
    taken = {name for fact in evidence.facts if fact["what"] == "acknowledged" for name in fact["ids"]}
    got = Counter(name for ids in clicks.values() for name in ids)
    yield from (f"{name} was acknowledged, and is in no batch" for name in sorted(taken - got.keys()))
    yield from (f"{name} is in {number} batches" for name, number in got.items() if number > 1)
    yield from (f"{name} was never pushed" for name in sorted(got.keys() - taken))
    for hour, ids in clicks.items():
        output = evidence.current(CLICKED, hour)
        consumed = sorted(row["id"] for row in evidence.rows(output)) if output else None
        if consumed != sorted(ids):
            yield f"{CLICKED}/{hour} has {consumed}, and not {sorted(ids)}"


@invariant
def every_publication_has_one_event(evidence: Evidence) -> Iterator[str]:
    """Object unless our table of events has one event of each update that was valid, and none of any other."""
    events = evidence.table("ours.db", "SELECT table_name, partition_key, marker, context FROM events")
    told, any_of = Counter(each[:3] for each in events if _has_data(each[3])), {each[:3] for each in events}
    yield from (f"{event} is told {count} times" for event, count in told.items() if count > 1)
    for feed, key, found in evidence.outputs():
        missing = [update.path for update in found if (feed, key, _marker(update.id)) not in any_of]
        yield from (f"{path} has no event" for path in missing)


def _has_data(context: str) -> bool:
    return not json.loads(context).get("no_new_data")


def _marker(name: str) -> str:
    return f"{datetime.strptime(name, '%Y%m%d.%H%M%S').replace(tzinfo=UTC):%Y-%m-%dT%H:%M:%S}.000000Z"

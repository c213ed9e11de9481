"""Invariants of what others get: deliveries, copies, a table, explanations."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import duckdb

from feed_assets_tests.reliability import published
from feed_assets_tests.reliability.evidence import READS, Evidence, invariant
from feed_assets_tests.reliability.published import CLEAN, Update
from feed_assets_tests.reliability.store import Store, opened


@invariant
def deliveries_arrive_at_least_once_and_in_order(evidence: Evidence) -> Iterator[str]:
    """Object unless the subscriber has accepted each publication, and those of a partition in their order."""
    path, accepted = evidence.folder / "deliveries.jsonl", defaultdict[str, list[tuple[int, str]]](list)
    for line in path.read_text().splitlines() if path.exists() else ():
        delivery = json.loads(line)
        if delivery["status"] == 204 and delivery["event"]["type"] == "feed_assets.published":
            event = delivery["event"]
            accepted[event["subject"]].append((int(event["sequence"]), event["data"]["update"]))
    for key, found in evidence.updates[CLEAN].items():
        got = [*dict.fromkeys(accepted[key])]
        if got != sorted(got):
            yield f"{CLEAN}/{key} was delivered as {got}"
        missing = {update.id for update in found} - {name for _, name in got}
        yield from (f"{CLEAN}/{key}/{name} was not delivered" for name in sorted(missing))


@invariant
def copies_equal_their_originals(evidence: Evidence) -> Iterator[str]:
    """Object unless the second place has each newest update, and each copy has the bytes of its original."""
    place = opened((evidence.folder / "place").as_uri())
    copies = published.updates(place, CLEAN)
    for key, found in evidence.updates[CLEAN].items():
        newest = copies[key][-1].path if key in copies else None
        if newest != found[-1].path:
            yield f"the newest copy of {CLEAN}/{key} is {newest}, not {found[-1].path}"
        originals = {update.path: update for update in found}
        for copy in copies.get(key, []):
            original = originals.get(copy.path)
            if original is None or _content(place, copy) != _content(evidence.store, original):
                yield f"the copy {copy.path} is not as its original"


def _content(store: Store, update: Update) -> dict[str, bytes]:
    return {key: store.get(key) for key in update.files}


@invariant
def the_table_equals_the_newest_updates(evidence: Evidence) -> Iterator[str]:
    """Object unless the warehouse's table has the rows of the newest update of each partition."""
    expected = [
        (row["id"], row["amount"], row["made_of"])
        for found in evidence.updates[CLEAN].values()
        for row in evidence.rows(found[-1])
    ]
    path, got = evidence.folder / "warehouse.duckdb", list[tuple[Any, ...]]()
    if path.exists():
        with duckdb.connect(str(path), read_only=True) as connection:
            if connection.execute("SELECT 1 FROM duckdb_tables WHERE table_name = ?", [CLEAN]).fetchall():
                got = connection.execute(f'SELECT id, amount, made_of FROM "{CLEAN}"').fetchall()  # noqa: S608
    if sorted(got) != sorted(expected):
        missing, more = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
        yield f"the table lacks {sorted(missing)} and has {sorted(more)} too much"


@invariant
def each_explanation_was_true(evidence: Evidence) -> Iterator[str]:
    """Object to each explanation that differs from what was on the blackboard at its moment."""
    for fact in evidence.facts:
        if fact["what"] == "explained" and (why := _untrue(evidence, fact)):
            said = f"{fact['state']}: {fact['reason']}"
            yield f"step {fact['step']}: {fact['feed']}/{fact['key']} was explained as {said!r}, but {why}"


def _untrue(evidence: Evidence, fact: dict[str, Any]) -> str | None:
    """Return what contradicts an explanation. Return None if nothing does."""
    valid, inputs = fact["valid"], [fact["valid"][each] for each in READS[fact["feed"]]]
    output = evidence.at(valid[fact["feed"]]) if valid[fact["feed"]] else None
    is_current = output is not None and None not in inputs and evidence.made_of(output) == sorted(inputs)
    if fact["state"] == "current":
        return None if is_current else f"it is {output and evidence.made_of(output)}, and its inputs are {inputs}"
    if fact["state"] == "waits for input":
        return None if None in inputs else f"its inputs are {inputs}"
    if is_current:
        return f"it is made of its newest inputs {inputs}"
    if fact["state"] in ("build", "rebuild") and None in inputs:
        return f"its inputs are {inputs}"
    return None

"""Rows of a ledger of the first schema, in every table, as its code left them."""

from typing import Any

OFFSET = 20
"""Number of an update's last change."""

AT = "2019-11-25 06:00:00"
SHOWN, TABLE = "ads/shown/v1.0", "shop/orders"
EFFECT, REPORT, OTHER = "ads/effect/v1.0", "ads/report/v1.0", "ads/other/v1.0"
DAY, NEW = "2019-11-24", "2019-11-25"
FIRST = "20191125.010000"

Row = tuple[str, dict[str, Any]]


def _update(feed: str, key: str, changed: int, state: str, run: str | None = None, told: int | None = None) -> Row:
    values = {"id": FIRST, "state": state, "run": run, "version": "v", "at": AT, "changed": changed, "told": told}
    return "update_", {"feed": feed, "partition": key, **values}


def _run(name: str, state: str, *, settled: bool, key: str | None = None, reason: str | None = None) -> Row:
    values = {"id": name, "feed": EFFECT, "partition": key or name, "state": state, "process": "host:1:0.00"}
    ended = None if state == "running" else AT
    return "run", {**values, "started": AT, "ended": ended, "reason": reason, "settled": settled}


def _due(feed: str, key: str, changed: int, state: str | None = None, *, awaited: bool = False) -> Row:
    values = {"awaited": awaited, "changed": changed, "since": AT, "requested": 0, "look_at": AT, "state": state}
    return "due", {"feed": feed, "partition": key, **values}


def _event(sequence: int, feed: str, key: str, correlation: str, source: str = "") -> Row:
    values = {"marker": f"m{sequence}", "event_marker": f"m{sequence}", "correlation": correlation, "at": AT}
    values |= {"operation": "UPSERT", "context": "{}", "source": source}
    return "event", {"sequence": sequence, "feed": feed, "partition": key, **values}


def _inbox(feed: str, key: str, sequence: int) -> Row:
    return "inbox", {"feed": feed, "partition": key, "sequence": sequence, "run": None}


def _consumed(feed: str, key: str, source: str, position: str, start: str | None = None) -> Row:
    read = {"input_feed": source, "input_partition": key, "position": position, "slice_from": start}
    size = {"version": "v", "size": 7, "files": 1, "is_input": True}
    return "consumed", {"feed": feed, "partition": key, "id": FIRST, **read, **size}


def _marker(feed: str, key: str) -> Row:
    values = {"input_feed": TABLE, "input_partition": key, "marker": "m2", "event_marker": "m2", "at": AT}
    return "marker", {"feed": feed, "partition": key, **values}


ROWS: list[Row] = [
    _update(SHOWN, DAY, 1, "published", told=3),
    _update(EFFECT, "stale", 2, "published", run="good", told=3),
    _update(EFFECT, "running", 3, "claimed", run="running"),
    _update(EFFECT, "refused", 4, "refused", run="refused"),
    _update(EFFECT, "failed", 5, "abandoned", run="failed"),
    _update(SHOWN, "gone", 6, "invalidated"),
    _update(SHOWN, "old", 7, "pruned"),
    _update(SHOWN, "unheard", 15, "published"),
    ("batch", {"feed": SHOWN, "partition": "2019", "key": "2019/a"}),
    _consumed(EFFECT, "stale", SHOWN, FIRST),
    _consumed(REPORT, DAY, TABLE, "m2", "m1"),
    _consumed(OTHER, DAY, TABLE, "m7", "m1"),
    _run("refused", "refused", settled=False, reason="two rows twice"),
    _run("failed", "failed", settled=False),
    _run("killed", "abandoned", settled=False, key="failed"),
    _run("once failed", "failed", settled=True, key="fine"),
    _run("once refused", "refused", settled=True, key="fine"),
    _run("good", "published", settled=True, key="fine"),
    _run("same", "unchanged", settled=True, key="fine"),
    _run("running", "running", settled=False),
    _due(EFFECT, "stale", 9, "rebuild"),
    _due(REPORT, f"{TABLE}|{NEW}", 12, awaited=True),
    _event(1, SHOWN, DAY, "s1"),
    _event(2, TABLE, DAY, "o1", "team"),
    _event(3, EFFECT, "stale", "s2"),
    _event(4, TABLE, DAY, "o2", "team"),
    _event(5, TABLE, NEW, "n1", "team"),
    _event(7, TABLE, DAY, "o3", "team"),
    _inbox(REPORT, DAY, 4),
    _inbox(REPORT, f"{TABLE}|{NEW}", 5),
    _inbox(OTHER, NEW, 5),
    _marker(REPORT, DAY),
    _marker(OTHER, DAY),
    ("alert", {"name": "late", "opened": AT, "resolved": None, "reason": "it is late", "log": "opened"}),
    ("event_reject", {"source": "team", "digest": "d", "raw": "{", "reason": "no JSON", "at": AT}),
]
"""Rows of one ledger.

REPORT has consumed o1, waits with o2 and has not received o3; OTHER has consumed the whole day.
"""

WITHOUT_EVENTS: list[Row] = [
    _update(SHOWN, DAY, 1, "published"),
    _update(SHOWN, "unheard", 2, "published"),
    _consumed(EFFECT, DAY, SHOWN, FIRST),
]
"""Rows without events, as in a ledger that was rebuilt from the blackboard; the last numbers belong to claims."""

BEGINNINGS: list[tuple[str, Row]] = [
    (start, ("event", {**_event(number, feed, DAY, f"e{number}")[1], "previous": "m0", **values}))
    for number, (feed, start, values) in enumerate(
        [
            (TABLE, "m0", {"operation": "UPSERT"}),
            (TABLE, "m0", {"operation": "INSERT", "context": '{"note": "no_new_data is what it has not"}'}),
            (TABLE, None, {"operation": "OVERWRITE"}),
            (TABLE, "m23", {"operation": "UPSERT", "context": '{"no_new_data": true}'}),
            (TABLE, "m24", {"operation": "OVERWRITE", "context": '{"no_new_data": true}'}),
            (SHOWN, None, {"operation": "UPSERT", "marker": FIRST}),
            (SHOWN, None, {"operation": "UPSERT", "marker": FIRST, "context": '{"no_new_data": true}', "source": "x"}),
        ],
        start=20,
    )
]
"""Events after the marker `m0`, each with the marker after which its data begin. Those of a feed's update come last."""

CURSORS = {
    "change": str(OFFSET),
    f"fanned out to {EFFECT}": "14",
    f"fanned out to {REPORT}": "20",
    f"fanned out to {OTHER}": "20",
    f"events of {TABLE} to {REPORT}": "5",
    f"events of {SHOWN} to {REPORT}": "7",
    f"events of {TABLE} to {OTHER}": "7",
    f"events of {SHOWN} to {OTHER}": "7",
    f"paused {OTHER}": "the day is wrong",
    "published to file://events": "1",
    "read team/0": "12",
    f"looked through {SHOWN}": "2019",
    f"looked again through {SHOWN}": "2018",
    f"watched since {SHOWN}": "2019-11-25T06:00:00+00:00",
    "looked for litter": "2019-11-25T06:00:00+00:00",
    "stopped looking for litter": "claim 7",
}

"""Lines read together are accepted only if each alone would be, and then in the same windows."""

import json
from random import Random

from feed_assets.core.errors import InvalidEvent
from feed_assets.intake.bodies import sent
from feed_assets_tests.intake.event_types import LATEST, TYPES
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import NOW, event, pushed

FEED = pushed(schema=TYPES)
USUAL = {"id": "a", "at": "2026-01-02T11:29:59.5Z", "n": 1, "b": 1, "big": 1, "x": 1.5, "d": "1.5", "ok": True}


def one_by_one(lines: list[bytes], feed=FEED) -> list[int] | None:
    """Return the window of each line, judged alone; None if one is rejected."""
    try:
        return [feed.window(each.value, LATEST, each.broken) for each in map(sent, lines)]
    except InvalidEvent:
        return None


def lines(*events: object) -> list[bytes]:
    return [json.dumps(each).encode() for each in events]


def test_usual_lines_are_accepted_on_the_fast_path():
    usual = lines(USUAL, {"at": "2026-01-01T00:00:00+00:00", "id": None}, {**USUAL, "day": "2026-01-01"})
    found = FEED.windows(usual, LATEST)
    assert found is not None
    assert found == one_by_one(usual)


@each_case(
    "smuggled",
    [
        [b'{"id":"a"', b'"at":"2026-01-02T11:00:00Z"}'],
        [b'{"id":"a}', b'{","at":"2026-01-02T11:00:00Z"}'],
        [b'{"id":"a"}', b'{"at":"2026-01-02T11:00:00Z"},{"at":"2026-01-02T11:00:00Z"}'],
        [b'{"id":"a', b'b","at":"2026-01-02T11:00:00Z"},{"at":"2026-01-02T11:00:00Z"}'],
        [b'{"id":[{}', b'{}],"at":"2026-01-02T11:00:00Z"},{"at":"2026-01-02T11:00:00Z"}'],
        [b'{"at":"2026-01-02T11:00:00Z"}]', b'[{"at":"2026-01-02T11:00:00Z"}'],
        [b'{"at":"2026-01-02T11:00:00Z"},{"at":"2026-01-02T11:00:00Z"}', b""],
        [b'{"at":"2026-01-02T11:00:00Z"} {}'],
        [b'{"id":"\\ud800","at":"2026-01-02T11:00:00Z"}'],
        [b'{"id":"\xff","at":"2026-01-02T11:00:00Z"}'],
        [b'{"at":"2026-01-02T11:00:00Z\\n"}'],
        [b'{"at":"2026-02-30T11:00:00Z"}'],
        [b'{"x":NaN,"at":"2026-01-02T11:00:00Z"}'],
    ],
)
def test_lines_that_are_events_only_together_are_judged_each_by_itself(smuggled):
    assert one_by_one([line for line in smuggled if line]) is None
    assert FEED.windows([line or b" " for line in smuggled], LATEST) is None


VALUES = [
    *("a", "", "7", "1.50", "1e3", "2024-02-29", "2023-02-29", "2026-01-02T11:00:00Z", "2026-01-02 11:00:00"),
    *("2026-01-02T11:00:00.1234567Z", "2026-01-02T11:00:00+05:30", "2025-12-31T23:59:59Z", "2026-01-03T12:30:01Z"),
    *(
        0,
        1,
        -1,
        127,
        128,
        2**31,
        2**63,
        2**64,
        10**400,
        1.0,
        1.5,
        3.5e38,
        1e300,
        True,
        False,
        None,
        [],
        {},
        [1],
        {"id": 1},
    ),
]


def test_fast_path_and_single_lines_agree_on_random_lines():
    """Lines accepted together must be accepted alone; lines rejected alone must not be accepted together."""
    chance, taken, rejected = Random(7), 0, 0  # noqa: S311
    names = ["id", "at", "n", "b", "big", "x", "d", "ok", "day", "l", "f", "other"]
    for _ in range(20_000):
        odd = {name: chance.choice(VALUES) for name in chance.sample(names, chance.randint(0, 2))}
        group = lines({**USUAL, **odd})
        at_once, alone = FEED.windows(group, LATEST), one_by_one(group)
        assert at_once in (None, alone), group
        taken, rejected = taken + (at_once is not None), rejected + (alone is None)
    assert taken > 2000
    assert rejected > 5000


def test_a_window_of_the_feed_s_own_is_the_same_both_ways():
    feed = pushed(grain="5min")
    group = lines(event(1, "2026-01-02T11:04:59Z"), event(2, "2026-01-02T11:05:00Z"))
    assert feed.windows(group, LATEST) == one_by_one(group, feed)
    assert NOW.timestamp() < LATEST

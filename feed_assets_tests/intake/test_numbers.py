"""Numbers of events by their digits, and repeated fields: the receiver refuses all that a run would reject."""

import pytest

from feed_assets.core.errors import InvalidEvent
from feed_assets.intake.bodies import events, sent
from feed_assets.intake.refused import RefusedRequest
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import pushed

LATEST = 253_402_300_799.0
FEED = pushed(schema="at timestamp, big bigint, x double, f float, d decimal(5,2), long decimal(38,18), whole decimal")
AT = b'{"at":"2026-01-02T11:29:59Z",'


def judged(field: bytes) -> tuple[bool, bool | None]:
    """Return if an event with a field is accepted alone and at once; None if it is left to be judged alone."""
    line = AT + field + b"}"
    event = sent(line)
    try:
        FEED.window(event.value, LATEST, event.broken)
        alone = True
    except InvalidEvent:
        alone = False
    return alone, None if FEED.windows([line], LATEST) is None else True


ACCEPTED = [
    *(b'"big":7', b'"big":7.0', b'"big":-9223372036854775808', b'"big":7.0000000000000000000000000000000000000'),
    *(b'"x":1e2', b'"x":1e308', b'"x":7', b'"f":3.4e38', b'"d":1.5', b'"d":1.500', b'"d":999.99', b'"d":"1.50"'),
    *(b'"d":-0.01', b'"d":7', b'"whole":1234567890', b'"long":12345678901234567890.123456789012345678'),
]
REFUSED = [
    *(b'"big":1e2', b'"big":7.5', b'"big":7.0000000000000001', b'"big":9223372036854775808', b'"big":1E0'),
    *(b'"x":1e309', b'"x":-1e309', b'"f":3.5e38', b'"d":1.505', b'"d":1000', b'"d":1e1', b'"d":"1e1"', b'"d":"1.505"'),
    *(b'"d":1.5000000000000000000000000000000000000000', b'"whole":1.5', b'"whole":12345678901'),
    *(
        b'"d":1.2000000000000000001',
        b'"\\u0064":1.2000000000000000001',
        b'"d":  1e1',
        b'"big":1,"big":2',
        b'"big":1,"b\\u0069g":2',
        b'"big" :1,"big":2',
    ),
]


@each_case("field", ACCEPTED)
def test_numbers_that_a_run_accepts_are_accepted(field):
    alone, together = judged(field)
    assert alone
    assert together in (None, True)


@each_case("field", REFUSED)
def test_numbers_that_a_run_rejects_are_refused(field):
    assert judged(field) == (False, None)


@each_case("field", [b'"x":1.5', b'"big":7', b'"d":1.5', b'"d":999.99', b'"d":"1.50"', b'"d":123.45,"x":1e2'])
def test_usual_numbers_are_accepted_on_the_fast_path(field):
    """Judge a decimal with the digits of a float on the fast path."""
    assert judged(field) == (True, True)


def test_an_array_is_judged_by_the_same_digits():
    body = b"[" + b",".join(AT + field + b"}" for field in (b'"big":1e2', b'"d":1.505', b'"big":7.0')) + b"]"
    found = []
    for each in events(body, "array"):
        try:
            found.append(FEED.window(each.value, LATEST, each.broken))
        except InvalidEvent as error:
            found.append(str(error))
    assert found[:2] == ["big: not a bigint", "d: not a decimal(5,2)"]
    assert isinstance(found[2], int)
    with pytest.raises(RefusedRequest, match="field 'big' occurs twice"):
        [*events(b"[" + AT + b'"big":1,"big":2}]', "array")]

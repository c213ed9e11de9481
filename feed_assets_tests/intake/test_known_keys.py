"""The keys that a receiver knows: they are read again after any error, and old ones are reported or end."""

import asyncio
import logging
from collections.abc import Generator
from threading import Event

import pytest
from sqlalchemy import exc

from feed_assets.core.errors import LedgerUnavailable
from feed_assets.intake import authentication
from feed_assets.intake.api import Door
from feed_assets.intake.authentication import OLD_SECONDS, Keys
from feed_assets.intake.limited_log import LimitedLog
from feed_assets.intake.refused import RefusedRequest
from feed_assets.ledger import api_keys
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import MEN, NOW, door_of

CANCELLED = exc.OperationalError("SELECT api_key", None, Exception("canceling statement due to statement timeout"))
ERRORS = (CANCELLED, RuntimeError("no such table"), KeyError("digest"), LedgerUnavailable("no answer"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock of the keys. Its only element is the time now."""
    now = [0.0]
    monkeypatch.setattr(authentication, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def door(local_board, ledger, tmp_path) -> Generator[Door]:
    door = door_of(local_board, ledger, tmp_path / "spool")
    yield door
    door.receiver.spool.close()


def status(keys: Keys, key: str) -> int:
    """Return the status of a request with this key."""
    try:
        keys.of(f"Bearer {key}", NOW)
    except RefusedRequest as error:
        return error.status
    return 200


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let each read of the keys fail."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Keys, "load", fail)


@each_case("error", ERRORS)
def test_keys_are_read_again_after_any_error(ledger, monkeypatch, caplog, error):
    """Revoke a key while reading fails; the next read that succeeds ends it, and knows a new key."""
    monkeypatch.setattr(authentication, "RELOAD_SECONDS", 0)
    key, keys, load, is_read = authentication.add(ledger, "men", (MEN,), NOW), Keys(ledger), Keys.load, Event()
    keys.load()
    answers = iter([error])

    def fails_once(keys: Keys) -> None:
        if problem := next(answers, None):
            raise problem
        load(keys)
        is_read.set()

    monkeypatch.setattr(Keys, "load", fails_once)

    async def read_again() -> None:
        loading = asyncio.create_task(keys.keep_loading(LimitedLog()))
        reading = asyncio.create_task(asyncio.to_thread(is_read.wait, 60))
        await asyncio.wait([loading, reading], return_when=asyncio.FIRST_COMPLETED)
        is_over = loading.done()
        is_read.set()
        loading.cancel()
        assert not is_over, "nobody reads the keys any more"

    authentication.revoke(ledger, "men", None, NOW)
    following = authentication.add(ledger, "men", (MEN,), NOW)
    asyncio.run(read_again())
    assert (status(keys, key), status(keys, following)) == (401, 200)
    assert str(error).partition("\n")[0] in caplog.text


def test_errors_of_reading_are_logged_once_a_minute_and_with_their_stack(ledger, monkeypatch, caplog):
    keys, log = Keys(ledger), LimitedLog()
    for error in (CANCELLED, LedgerUnavailable("no answer")):
        failing(monkeypatch, error)
        for _ in range(12):
            keys.reload(log)
    assert [(each.levelno, bool(each.exc_info)) for each in caplog.records] == [
        (logging.ERROR, True),
        (logging.WARNING, False),
    ]
    assert "SELECT" not in caplog.records[0].getMessage(), "one line"


@each_case(("error", "seconds"), [*((each, 60) for each in ERRORS[:-1]), (ERRORS[-1], 3600)])
def test_a_revoked_key_ends_a_minute_after_an_error_and_an_hour_after_no_answer(
    ledger, monkeypatch, clock, error, seconds
):
    clock[0] = 0
    key, keys = authentication.add(ledger, "men", (MEN,), NOW), Keys(ledger)
    keys.reload(LimitedLog())
    authentication.revoke(ledger, "men", None, NOW)
    with monkeypatch.context() as patch:
        failing(patch, error)
        keys.reload(LimitedLog())
        clock[0] = seconds - 1
        assert status(keys, key) == 200
        clock[0] = seconds
        assert status(keys, key) == 503
    keys.reload(LimitedLog())
    assert status(keys, key) == 401


def test_a_ledger_that_no_longer_answers_keeps_keys_for_an_hour_after_another_error(ledger, monkeypatch, clock):
    key, keys = authentication.add(ledger, "men", (MEN,), NOW), Keys(ledger)
    keys.reload(LimitedLog())
    for error, expected in ((CANCELLED, 503), (LedgerUnavailable("no answer"), 200)):
        failing(monkeypatch, error)
        keys.reload(LimitedLog())
        clock[0] = OLD_SECONDS
        assert status(keys, key) == expected


@each_case(("error", "takes"), [(CANCELLED, False), (LedgerUnavailable("no answer"), True)])
def test_health_reports_keys_that_are_older_than_a_minute(door, monkeypatch, clock, error, takes):
    def reported() -> tuple[bool, bool]:
        report = door.health()
        return report["takes"], report["old_keys"]

    clock[0], door.keys = 0, Keys(door.keys.ledger)
    assert reported() == (False, True), "they were never read"
    door.keys.reload(door.log)
    with monkeypatch.context() as patch:
        failing(patch, error)
        door.keys.reload(door.log)
        clock[0] = OLD_SECONDS - 1
        assert reported() == (True, False)
        clock[0] = OLD_SECONDS
        assert reported() == (takes, True)
    door.keys.reload(door.log)
    assert reported() == (True, False)


def test_a_slow_read_counts_from_its_start(ledger, monkeypatch, clock):
    """Revoke a key just after the ledger was read, while the answer is still on its way."""
    every, keys = api_keys.every, Keys(ledger)

    def slowly(*names: object) -> object:
        rows = every(*names)
        clock[0] = OLD_SECONDS
        return rows

    monkeypatch.setattr(api_keys, "every", slowly)
    keys.load()
    assert keys.are_old

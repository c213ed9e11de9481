"""API keys: how they are made, and how the key of a request is checked.

A key has 256 random bits, so nobody can find it from its SHA-256. A slow hash is needed only for guessable passwords,
and would double the cost of each request.
"""

import asyncio
import hmac
import logging
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from math import inf
from secrets import token_hex, token_urlsafe
from time import monotonic

from feed_assets.core.errors import InvalidKey, LedgerUnavailable, in_short
from feed_assets.core.feeds import Feed, check_segment
from feed_assets.intake.limited_log import LimitedLog
from feed_assets.intake.refused import RefusedRequest
from feed_assets.ledger import api_keys
from feed_assets.ledger.api_keys import KeyRow
from feed_assets.ledger.database import Ledger

EVENTS = "events:"
"""Prefix of a scope that lets a partner send the events of an event source."""

RELOAD_SECONDS = 5
"""Seconds until a receiver accepts a new key, or stops accepting a revoked one."""

HOLD_SECONDS = 3600
"""Seconds for which a receiver continues with its known keys if the ledger does not answer."""

OLD_SECONDS = 60
"""The age in seconds from which `/health` reports the known keys as old.

From this age, a receiver accepts no key if the ledger answers with an error, because keys may have been revoked.
"""

_KEY = re.compile(r"fa_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_LEDGER = "the ledger"
_NOBODY = sha256(b"").hexdigest()


def make(partner: str, scopes: Sequence[str], now: datetime) -> tuple[str, KeyRow]:
    """Return a new key and its row for the ledger, which has only a digest of the key.

    Raise InvalidName for an invalid partner or scope, and InvalidKey without scopes.
    """
    check_segment(partner, "partner")
    if not scopes:
        raise InvalidKey(f"a key of {partner} has no scopes: expected the feeds, or {EVENTS}SOURCE, that it may write.")
    for scope in scopes:
        _ = check_segment(scope.removeprefix(EVENTS), "event source") if scope.startswith(EVENTS) else Feed.parse(scope)
    name = token_hex(6)
    key = f"fa_{name}_{token_urlsafe(32)}"
    return key, KeyRow(name, partner, _digest(key), tuple(sorted({*scopes})), now)


def add(ledger: Ledger, partner: str, scopes: Sequence[str], now: datetime) -> str:
    """Make a key of a partner, store its digest, and return the key."""
    key, row = make(partner, scopes, now)
    with ledger.write() as connection:
        api_keys.add(connection, row)
    return key


def rotate(ledger: Ledger, partner: str, overlap: timedelta, now: datetime) -> str:
    """Return a new key with all scopes of the partner's valid keys. Those keys become invalid after `overlap`.

    Raise InvalidKey if the partner has no valid key.
    """
    with ledger.write() as connection:
        held = _held(api_keys.every(connection, partner), partner, now)
        key, row = make(partner, sorted({scope for each in held for scope in each.scopes}), now)
        api_keys.add(connection, row)
        api_keys.end(connection, [each.id for each in held], now + overlap)
    return key


def revoke(ledger: Ledger, partner: str, name: str | None, now: datetime) -> tuple[str, ...]:
    """Revoke all keys of a partner, or only the key `name`. Return the ids of the revoked keys.

    Raise InvalidKey if there is no such valid key.
    """
    with ledger.write() as connection:
        held = _held(api_keys.every(connection, partner), partner, now)
        ended = tuple(each.id for each in held if name in (None, each.id))
        if not ended:
            raise InvalidKey(f"{partner} has no valid key {name}: expected {', '.join(each.id for each in held)}.")
        api_keys.end(connection, ended, now)
    return ended


def _held(rows: Sequence[KeyRow], partner: str, now: datetime) -> list[KeyRow]:
    held = [row for row in rows if row.holds(now)]
    if not held:
        raise InvalidKey(f"{partner} has no valid key: `feed-assets receive keys ls` lists all, `add` makes one.")
    return held


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


@dataclass
class Keys:
    """The API keys in the ledger, copied into memory so that a request queries no database."""

    ledger: Ledger
    _rows: dict[str, KeyRow] = field(default_factory=dict[str, KeyRow])
    _loaded: float | None = None
    _has_error: bool = False
    """True if the ledger answered the last reading with an error."""

    def load(self) -> None:
        """Read all API keys from the ledger."""
        start = monotonic()
        with self.ledger.read() as connection:
            self._rows = {row.id: row for row in api_keys.every(connection)}
        self._loaded, self._has_error = start, False

    def reload(self, log: LimitedLog) -> None:
        """Read all keys. Log an error and do not raise it, because that would end the task that reads the keys."""
        try:
            self.load()
        except LedgerUnavailable as error:
            self._has_error = False
            log.add(f"keys cannot be read, so the known ones stay valid: {in_short(error)}", _LEDGER)
        except Exception as error:  # noqa: BLE001 (any driver error, such as a cancelled query)
            self._has_error = True
            problem = f"keys cannot be read, so the known ones are valid for {OLD_SECONDS} s: {in_short(error)}"
            log.add(problem, _LEDGER, logging.ERROR, error)

    async def keep_loading(self, log: LimitedLog) -> None:
        """Reload all keys every few seconds, forever."""
        while True:
            await asyncio.to_thread(self.reload, log)
            await asyncio.sleep(RELOAD_SECONDS)

    @property
    def are_known(self) -> bool:
        """Return whether the API keys were read from the ledger recently enough to accept requests by them."""
        return self._age < (OLD_SECONDS if self._has_error else HOLD_SECONDS)

    @property
    def are_old(self) -> bool:
        """Return whether the keys were last read a minute ago or earlier, or never."""
        return self._age >= OLD_SECONDS

    @property
    def _age(self) -> float:
        return inf if self._loaded is None else monotonic() - self._loaded

    def of(self, header: str, now: datetime) -> KeyRow:
        """Return the key in a request's header `Authorization`. Raise RefusedRequest if there is no valid key."""
        if not self.are_known:
            raise RefusedRequest(503, "the keys cannot be read from the ledger: send the request later", retry_after=30)
        kind, _, key = header.partition(" ")
        match = _KEY.fullmatch(key.strip()) if kind.lower() == "bearer" else None
        row = self._rows.get(match[1]) if match else None
        is_same = hmac.compare_digest(_digest(key.strip()), row.digest if row else _NOBODY)
        if row is None or not is_same or not row.holds(now):
            raise RefusedRequest(
                401, "expected 'Authorization: Bearer fa_…' with a valid key: ask the operator of this receiver for one"
            )
        return row


def check_scope(row: KeyRow, scope: str) -> None:
    """Raise RefusedRequest if a key may not write to this feed or event source."""
    if scope not in row.scopes:
        raise RefusedRequest(403, f"the key {row.id} is not for {scope}: it is for {', '.join(row.scopes)}")


@dataclass
class InProgress:
    """A limit for the requests in progress of each partner. Further ones are refused, so other partners get turns."""

    most: int
    _counts: Counter[str] = field(default_factory=Counter[str])

    @contextmanager
    def counted(self, partner: str) -> Generator[None]:
        """Count a request of a partner until the block ends. Raise RefusedRequest if too many are in progress."""
        if not self.has_room(partner):
            problem = f"{self.most} requests of {partner} are in progress: send fewer at a time"
            raise RefusedRequest(429, problem, retry_after=1)
        self._counts[partner] += 1
        try:
            yield
        finally:
            self._counts[partner] -= 1

    def has_room(self, partner: str) -> bool:
        """Return whether a partner is allowed one more request at the same time."""
        return self._counts[partner] < self.most


@dataclass
class Rates:
    """A rate limit for each partner, in events or another unit per second.

    A partner above the limit is refused until its average rate is below the limit again. A request is always accepted
    as a whole, so it may exceed the limit. The next request is then refused for longer.
    """

    per_second: float
    noun: str = "events"
    _remaining: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def check(self, partner: str) -> None:
        """Raise RefusedRequest if a partner is above the limit."""
        if (remaining := self._now(partner)) <= 0:
            wait = 1 + int(-remaining / self.per_second)
            why = f"more than {self.per_second:g} {self.noun} a second of one partner: wait"
            raise RefusedRequest(429, why, retry_after=wait)

    def count(self, partner: str, events: int) -> None:
        """Count the events of a request against the limit of its partner."""
        self._remaining[partner] = self._now(partner) - events, monotonic()

    def _now(self, partner: str) -> float:
        remaining, then = self._remaining.get(partner, (self._most, 0.0))
        return min(self._most, remaining + (monotonic() - then) * self.per_second)

    @property
    def _most(self) -> float:
        """Return the most events that may arrive at once: as many as the limit allows in ten seconds."""
        return 10 * self.per_second

"""Handling of requests with events: check them, write them to disk together with other requests, then answer."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from feed_assets.core.control_characters import printable
from feed_assets.core.errors import InvalidEvent
from feed_assets.core.events import Rejected
from feed_assets.intake.authentication import Rates
from feed_assets.intake.bodies import Sent, events, in_slices, lines_of, sent
from feed_assets.intake.group_commit import Together
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.refused import RefusedRequest
from feed_assets.intake.spool import Frame, Piece, Spool, frames
from feed_assets.ledger import idempotency
from feed_assets.ledger.idempotency import At, Taken
from feed_assets.runs.services import Services

EVENTS_PER_REQUEST = 50_000
"""The most events of one request. A request with more is refused as a whole."""

HOURS_PER_REQUEST = 1_000
"""The most different hours in the events of one request. Each hour becomes a batch with its own files."""

HOURS_PER_SECOND = 10
"""The most hours of event time per second that a partner may add to the spool. Ten times as many may come at once."""

REASONS_TOLD = 100
"""The most rejected events that an answer lists. The ledger keeps all of them."""

ANSWERED_REASON_BYTES = 250
"""The most bytes of a reason in an answer. Answers are kept with idempotency keys. The ledger keeps longer reasons."""

REJECTED_BYTES = 12 << 20
"""The most bytes of rejected events and their reasons in one request: enough for 50,000 usual events."""

EVENTS_AT_A_TIME = 500
"""Number of events after which other requests get a turn, so that a large request does not delay small ones."""

KEY_BYTES = 200
"""The most characters of an idempotency key."""

_NOT_SPOOLED = ""


@dataclass(frozen=True)
class RequestAnswer:
    """The JSON answer to an accepted request, its numbers of events, and whether it repeats an earlier answer."""

    text: str
    accepted: int = 0
    rejected: int = 0
    is_repeated: bool = False


@dataclass
class Receiver:
    """Feeds that take pushed events, and the spool that keeps accepted events until they are published.

    `spooled` has the answers of requests in the spool by idempotency key, and None for a request in progress. `begun`
    has the segments in which only batches of large feeds still wait, with the number of batches already published.
    """

    services: Services
    feeds: Mapping[str, PushedFeed]
    spool: Spool
    ahead: timedelta
    spooled: dict[At, str | None] = field(default_factory=dict[At, str | None])
    begun: dict[Path, int] = field(default_factory=dict[Path, int])
    hours: Rates = field(default_factory=lambda: Rates(HOURS_PER_SECOND, "hours to publish"))

    def __post_init__(self) -> None:
        self._append = Together(self.spool.append)
        self._take = Together(self._take_keys)

    def recover(self) -> None:
        """Load the idempotency keys and answers that an earlier process left in the spool.

        Call this before any request and any flush.
        """
        for segment in self.spool.sealed():
            self.spooled.update({(each.name, each.key): each.answer for each in frames(segment) if each.key})

    def feed(self, name: str) -> PushedFeed:
        """Return the feed of this name. Raise RefusedRequest if there is none."""
        if name not in self.feeds:
            raise RefusedRequest(404, f"no feed {name!r} takes pushed events here: ask the operator of this receiver")
        return self.feeds[name]

    async def accept(
        self, feed: PushedFeed, body: bytes, kind: str, key: str | None = None, partner: str = ""
    ) -> RequestAnswer:
        """Write the events of a body to disk, and return the answer. Raise RefusedRequest, DiskFull or SpoolBroken.

        Events are synced to disk before the answer, so no answered event is lost. If the process is killed before the
        answer, the events may be on disk, too. Then the client repeats the request; with an idempotency key, any
        receiver recognises it and does not accept the events twice.
        """
        judging = _Judging(feed, (self.services.now() + self.ahead).timestamp())
        await judging.judge(body, kind)
        frame, answer = judging.frame(), judging.answer()
        self.hours.check(partner)
        self.hours.count(partner, self.spool.note_hours(frame))
        if key is None:
            await self._append(frame)
            return answer
        own_key = f"{partner}/{key}"  # A partner's name has no slash, so no key of another partner equals this.
        return await self._accept_once(frame, answer, own_key, sha256(body).hexdigest())

    async def _accept_once(self, frame: Frame, answer: RequestAnswer, key: str, digest: str) -> RequestAnswer:
        """Claim the idempotency key in the ledger, then write the frame. So only one of two receivers writes the frame.

        After a kill in between, this receiver owns the key, but its spool has no frame with the key. So it accepts a
        repeated request like a new one.
        """
        requested = Taken(frame.name, key, digest, self.spool.receiver)
        outcome = await self._take(requested)
        if isinstance(outcome, RefusedRequest):
            raise outcome
        if outcome:
            return outcome
        try:
            await self._append(replace(frame, key=key, digest=digest, answer=answer.text))
        except Exception:
            del self.spooled[requested.at]
            raise
        self.spooled[requested.at] = answer.text
        return answer

    def _take_keys(self, group: Sequence[Taken]) -> list[RequestAnswer | RefusedRequest | None]:
        """Claim the idempotency keys of some requests in one transaction.

        Return each request's earlier answer, or its refusal; None for a new request. Read `spooled` before the ledger,
        so that no answer is missed: a flush writes an answer to the ledger before it removes it from `spooled`. Read
        `spooled` again afterwards, because a request in progress may have ended.
        """
        before = [self.spooled.get(each.at, _NOT_SPOOLED) for each in group]
        with self.services.ledger.write() as connection:
            recorded = idempotency.take(connection, group, self.services.now())
        return [self._key_answer(each, recorded[each.at], answer) for each, answer in zip(group, before, strict=True)]

    def _key_answer(
        self, requested: Taken, recorded: Taken, spooled_answer: str | None
    ) -> RequestAnswer | RefusedRequest | None:
        """Return a request's earlier answer, or its refusal. For a new request, note it as in progress; return None.

        `recorded` is the key's row in the ledger. `spooled_answer` was in `spooled` before the ledger was read.
        """
        now = self.spooled.get(requested.at, _NOT_SPOOLED)
        answer = recorded.answer or spooled_answer or now
        is_under_way = spooled_answer is None or now is None  # The key's first request may be in the same group.
        if recorded.digest != requested.digest:
            key = requested.key.partition("/")[2]
            return RefusedRequest(422, f"the Idempotency-Key {key!r} was used with another body: choose a new one")
        if answer:
            return RequestAnswer(answer, is_repeated=True)
        if is_under_way or recorded.receiver != requested.receiver:
            return RefusedRequest(
                409, "a request with this Idempotency-Key is in progress: send the request again later", retry_after=1
            )
        self.spooled[requested.at] = None
        return None


@dataclass
class _Judging:
    """Check of a request's events, with its results: accepted events by window, rejected events, and the reasons."""

    feed: PushedFeed
    latest: float
    count: int = 0
    accepted: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict[int, list[bytes]](list))
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    rejected_size: int = 0
    reasons: list[dict[str, object]] = field(default_factory=list[dict[str, object]])

    async def judge(self, body: bytes, kind: str) -> None:
        """Check all events of a body. Other requests get turns in between.

        Raise RefusedRequest for too many events or hours.
        """
        if kind == "lines":
            for lines in in_slices(lines_of(body), len, EVENTS_AT_A_TIME):
                await _let_others(self.count)
                self._lines(lines)
        else:
            for elements in in_slices(events(body, kind), lambda each: len(each.raw), EVENTS_AT_A_TIME):
                await _let_others(self.count)
                self._each(elements)
        hours = len({start // 3600 for start in self.accepted})
        if hours > HOURS_PER_REQUEST:
            why = f"the body has events of {hours} hours: expected at most {HOURS_PER_REQUEST}"
            raise RefusedRequest(413, f"{why}. Send it in several requests")

    def _lines(self, group: Sequence[bytes]) -> None:
        windows = self.feed.windows(group, self.latest)
        if windows is None:
            self._each(map(sent, group))
            return
        self._count(len(group))
        for raw, start in zip(group, windows, strict=True):
            self.accepted[start].append(raw)

    def _each(self, group: Iterable[Sent]) -> None:
        for raw, value, broken in group:
            try:
                self.accepted[self.feed.window(value, self.latest, broken)].append(raw)
            except InvalidEvent as error:
                self._reject(Rejected(raw.decode(errors="surrogateescape"), str(error)))
            self._count(1)

    def _reject(self, rejected: Rejected) -> None:
        self.rejected.append(rejected)
        self.rejected_size += len(rejected.raw) + len(rejected.reason)
        if self.rejected_size > REJECTED_BYTES:
            why = f"the body has more than {REJECTED_BYTES} bytes of rejected events, the first because of"
            raise RefusedRequest(
                413, f"{why} {self.rejected[0].reason!r}: no event was accepted. Correct the events, or send fewer"
            )
        if len(self.reasons) < REASONS_TOLD:
            self.reasons.append(reason_entry(self.count, rejected.reason))

    def _count(self, added: int) -> None:
        self.count += added
        if self.count > EVENTS_PER_REQUEST:
            raise RefusedRequest(
                413, f"the body has more than {EVENTS_PER_REQUEST} events: send it in several requests"
            )

    def frame(self) -> Frame:
        """Return the frame to write to the spool."""
        texts = {start: b"\n".join(self.accepted[start]) + b"\n" for start in sorted(self.accepted)}
        pieces = (Piece(self.feed.key(at), at, len(self.accepted[at]), len(text)) for at, text in texts.items())
        rejected = tuple((each.raw, each.reason) for each in self.rejected)
        lines, source = b"".join(texts.values()), self.feed.source
        return Frame(str(self.feed.feed), tuple(pieces), lines, rejected, source=source)

    def answer(self) -> RequestAnswer:
        """Return the answer to the request."""
        accepted, rejected = self.count - len(self.rejected), len(self.rejected)
        answer = {"accepted": accepted, "rejected": rejected, "reasons": self.reasons}
        return RequestAnswer(json.dumps(answer, ensure_ascii=False), accepted, rejected)


def reason_entry(index: int, reason: str) -> dict[str, object]:
    """Return the entry of a rejected event in an answer, with a bounded reason."""
    text = printable(reason)
    cut = text.encode()[:ANSWERED_REASON_BYTES].decode(errors="ignore")
    return {"index": index, "reason": text if cut == text else f"{cut}…"}


async def _let_others(count: int) -> None:
    """Give other requests a turn between two groups of events.

    Before the first group (`count` is 0) this is not needed.
    """
    if count:
        await asyncio.sleep(0)

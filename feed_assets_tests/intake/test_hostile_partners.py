"""A partner's S3 with wrong answers: nothing outside is reached, and other files are still pulled."""

import gc
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from feed_assets.core.errors import BlackboardUnavailable, UpdateChanged
from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import answers, read, s3_others, s3_pages
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.s3_others import ByteRange, ServedObject
from feed_assets.feeds.s3_pages import ETAG_BYTES
from feed_assets.intake.pull import KEY_BYTES
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.pull_partners import FEED, FIRST, Partner, wrong_files

BODY = b"id\n1\n"
ETAG = '"1"'
MODIFIED = "Thu, 29 Feb 2024 05:00:00 GMT"
BAD = "out/2024-02-29/04/a.csv"
GOOD = f"out/{FIRST}"


class Served:
    """Objects of a bucket by key with their listed size, and the requests for them."""

    def __init__(self) -> None:
        self.objects = {GOOD: len(BODY)}
        self.etags = dict[str, str]()
        self.requests = list[str]()
        self.is_endless = False
        self.silence = Event()
        """Whoever asks waits until this is set."""
        self.silence.set()
        self.answers = dict[str, tuple[int, dict[str, str], bytes]]()
        """Status, headers and body sent for a key instead of its object."""
        self.headers = list[dict[str, str]]()
        """Headers of each received request."""
        self.empty_pages = 0
        """Number of empty pages before each page with one object; 0 puts all on one page."""

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        listed = [each for each in sorted(self.objects.items()) if each[0].startswith(prefix) and each[0] > after]
        pages = (
            [page for each in listed for page in (*[[]] * self.empty_pages, [each])] if self.empty_pages else [listed]
        )
        number = int(query.get("continuation-token", ["0"])[0])
        contents = "".join(
            f"<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{self.etags.get(key, ETAG)}</ETag>"
            "<LastModified>2024-02-29T05:00:00.000Z</LastModified></Contents>"
            for key, size in ([] if self.is_endless or not pages else pages[number])
        )
        is_last = not self.is_endless and number + 1 >= len(pages)
        more = "" if is_last else f"<NextContinuationToken>{number + 1}</NextContinuationToken>"
        is_truncated = str(not is_last).lower()
        return (
            f"<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{contents}{more}</ListBucketResult>".encode()
        )


@contextmanager
def serving(served: Served) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            parts = urlsplit(self.path)
            served.requests.append(self.path)
            served.headers.append(dict(self.headers))
            served.silence.wait(60)
            key = parts.path.removeprefix("/bucket/")
            if key in served.answers:
                status, headers, body = served.answers[key]
                self.close_connection = True
                self.send_response(status)
                for name, value in {"Connection": "close", "ETag": '"1"', "Last-Modified": MODIFIED, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            elif "list-type" in parts.query:
                self.answer(served.listing(parse_qs(parts.query)))
            else:
                self.answer(BODY, served.etags.get(key, ETAG))

        do_HEAD = do_GET  # noqa: N815  (as its base class calls it)

        def answer(self, body, etag=ETAG):
            self.send_response(200)
            sent = {"Content-Length": str(len(body)), "ETag": etag, "Last-Modified": MODIFIED}
            for name, value in sent.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        def log_message(self, *_):
            """Write no log line."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def keys():
    return {"access_key_id": "a", "secret_access_key": "b", "token": "our session", "expires_at": None}


@pytest.fixture
def served():
    return Served()


class Endless:
    """Endless body that returns some bytes for each read."""

    def __init__(self, length: int = 1) -> None:
        self.data = b"x" * length
        self.reads, self.is_closed = 0, False

    @property
    def _raw_stream(self) -> "Endless":
        return self

    def read1(self, most: int) -> bytes:
        self.reads += 1
        return self.data[:most]

    def close(self) -> None:
        self.is_closed = True


@contextmanager
def pulling(served, ledger) -> Iterator[Partner]:
    with serving(served) as url:
        theirs = Blackboard.open("s3://bucket", endpoint=url, credentials=keys, name="partner")  # type: ignore[arg-type]
        made = Partner(theirs, Blackboard.open("memory://"), ledger)
        made.declare(pattern="%Y-%m-%d/*/*.csv")
        yield made


@pytest.fixture
def partner(served, ledger) -> Iterator[Partner]:
    with pulling(served, ledger) as made:
        yield made


def test_the_stand_in_partner_is_pulled_like_any_store(partner):
    assert partner.look()
    assert partner.held() == {"2024-02-29-00:00": ["id\n1\n"]}


@each_case("status", [301, 302, 307, 308])
def test_a_partner_s_redirect_is_not_followed_and_our_token_stays_private(status, partner, served):
    elsewhere = Served()
    with serving(elsewhere) as url:
        served.objects[BAD] = len(BODY)
        served.answers[BAD] = (status, {"Location": f"{url}/bucket/{BAD}", "Content-Length": "0"}, b"")
        assert partner.look()
    assert elsewhere.requests == []
    assert any(each.get("X-Amz-Security-Token") == "our session" for each in served.headers)
    assert partner.held() == {"2024-02-29-00:00": ["id\n1\n"]}


@each_case(
    ("headers", "body", "reason"),
    [
        ({"Transfer-Encoding": "chunked"}, b"5\r\nid\n1\n\r\n" * 100_000, "has no Content-Length"),
        ({"Content-Length": "5"}, b"id", "ends 3 bytes before its announced size"),
        ({"Content-Length": "-1"}, b"", "has no Content-Length"),
    ],
)
def test_file_whose_bytes_do_not_arrive_is_refused_and_the_others_are_pulled(headers, body, reason, partner, served):
    bad, good = (f"out/2024-02-29/04/{each}-{len(body)}.csv" for each in ("bad", "good"))
    before = len(partner.held().get("2024-02-29-00:00", []))
    served.objects, served.answers = {good: 5, bad: 5}, {bad: (200, headers, body)}
    assert partner.look()
    (wrong,) = wrong_files(partner)
    assert bad in wrong
    assert reason in wrong
    assert len(partner.held()["2024-02-29-00:00"]) == before + 1
    del served.answers[bad]
    assert partner.look()
    assert wrong_files(partner) == []
    assert len(partner.held()["2024-02-29-00:00"]) == before + 2


@each_case("headers", [{}, {"Content-Range": "bytes 0-4/5"}])
def test_file_that_is_larger_than_it_was_listed_is_not_copied(headers, partner, served, monkeypatch, tmp_path):
    copied = []
    monkeypatch.setattr(ServedObject, "stream", lambda *_: copied.append(1) or iter(()))
    served.objects = {BAD: 5}
    served.answers[BAD] = (200, {"Content-Length": str(1 << 60), **headers}, b"id")
    assert partner.look()
    update = Update(Partition(FEED, "2024-02-29-04:00"), "1", partner.theirs.files("out"))
    with pytest.raises(BlackboardUnavailable if headers else UpdateChanged):
        read.download(partner.theirs, update, tmp_path / "copy")
    assert copied == []


def answer(content_range: str | None, **changes):
    found = {"ContentLength": 5, "LastModified": None, "Body": Endless(), "ContentRange": content_range, **changes}
    return {name: value for name, value in found.items() if value is not None or name == "LastModified"}


WHOLE, PART = None, ByteRange(2, 6)


@each_case(
    ("span", "found", "problem"),
    [
        (WHOLE, answer(None, ContentLength=None), "has no Content-Length"),
        (WHOLE, {"ContentLength": 5, "Body": Endless()}, "has no Last-Modified"),
        (WHOLE, answer("bytes 0-4/5"), "has a Content-Range: expected the whole object"),
        (PART, answer(None), "has 5 bytes and the Content-Range ''"),
        (PART, answer("bytes 2-6/9", ContentLength=1 << 40), "has 1099511627776 bytes"),
        (PART, answer("bytes 1-5/9"), "Content-Range 'bytes 1-5/9': expected bytes=2-6"),
        (PART, answer("bytes 2-8/9", ContentLength=7), "expected bytes=2-6"),
        (PART, answer("bytes 2-6/*"), "expected bytes=2-6"),
        (PART, answer(f"bytes 2-6/{'9' * 5000}"), "expected bytes=2-6"),
        (ByteRange(2), answer("bytes 2-6/9"), "expected bytes=2-"),
    ],
)
def test_answer_that_does_not_fit_its_request_is_an_error_of_the_store(span, found, problem):
    with pytest.raises(OSError, match=f"the answer for key .*{re.escape(problem)}"):
        ServedObject("key", found, span)


@each_case(("span", "whole"), [(PART, 9), (ByteRange(2, 20), 7), (ByteRange(2), 7)])
def test_requested_range_has_the_size_of_its_object(span, whole):
    assert ServedObject("key", answer(f"bytes 2-6/{whole}"), span).meta["size"] == whole


@each_case(("sent", "limit"), [(5, 0), (5, 3), (1 << 20, 65), (1, 65)])
def test_read_with_a_limit_ends_there_whatever_size_was_announced(sent, limit, monkeypatch):
    board, raw = Blackboard.open("memory://"), Endless(sent)
    body = ServedObject("key", answer(None, Body=raw, ContentLength=1000))
    body.meta["size"] = 1
    monkeypatch.setattr(board, "_stored", lambda *_: body)
    assert board.get("key", limit) == b"x" * limit
    assert raw.reads == -(-limit // min(sent, max(limit, 1)))


def body_of(raw: Endless, size: int) -> ServedObject:
    """Return a body of `size` bytes, by a clock on which each read takes 10 seconds."""
    clock = count(0, 10)
    found = {"ContentLength": size, "Body": raw, "LastModified": None}
    return ServedObject("key", found, now=lambda: float(next(clock)))


@each_case("size", [64 << 20, 20 << 30, 1 << 60])
def test_body_that_arrives_a_byte_at_a_time_is_given_up_whatever_size_it_announces(size):
    body = body_of(raw := Endless(), size)
    with pytest.raises(OSError, match="key has not arrived in time: expected 65536 bytes a second"):
        body.bytes()
    assert raw.reads == s3_others.PATIENCE.timeout // 10 + 1
    del body
    gc.collect()
    assert raw.is_closed


def test_body_that_arrives_at_the_slowest_speed_is_read():
    raw = Endless(10 * s3_others.SLOWEST)
    assert sum(map(len, body_of(raw, 100 * s3_others.SLOWEST).stream())) == 100 * s3_others.SLOWEST


def test_body_that_arrives_at_the_slowest_speed_is_given_up_after_an_hour():
    raw = Endless(10 * s3_others.SLOWEST)
    with pytest.raises(OSError, match="and the whole within 3600 s"):
        deque(body_of(raw, 1 << 30).stream(), maxlen=0)
    assert raw.reads == s3_others.BODY_SECONDS // 10 + 1


def test_a_listing_of_empty_pages_without_end_is_given_up(partner, served, monkeypatch):
    monkeypatch.setattr(s3_pages, "EMPTY_PAGES", 20)
    served.is_endless = True
    with pytest.raises(BlackboardUnavailable, match="pages without a name"):
        partner.look()
    assert len(served.requests) == s3_pages.EMPTY_PAGES + 1


def test_a_listing_with_empty_pages_before_each_file_is_read_to_its_end(partner, served, monkeypatch):
    monkeypatch.setattr(s3_pages, "EMPTY_PAGES", 2)
    served.empty_pages = 2
    served.objects = {f"out/2024-02-29/0{number}/a.csv": len(BODY) for number in range(5)}
    assert partner.look()
    assert len(partner.held()["2024-02-29-00:00"]) == 5


@each_case("name", ["..", ".", ""])
def test_a_name_that_leads_elsewhere_is_refused_and_the_others_are_pulled(name, partner, served):
    odd = f"out/2024-02-29/{name}/a.csv"
    served.objects = {odd: 5, GOOD: 5, "out/2024-02-29/06/b.csv": 5}
    for _ in range(2):
        assert partner.look()
    assert wrong_files(partner) != []
    assert len(partner.held()["2024-02-29-00:00"]) == 2


def test_a_file_that_this_machine_has_no_room_for_is_refused_before_it_is_copied(partner, served):
    served.objects["out/2024-02-29/04/a.csv"] = 1 << 60
    assert partner.look()
    assert not [each for each in served.requests if "04/a.csv" in each]
    assert len(partner.held()["2024-02-29-00:00"]) == 1


def test_files_that_no_ledger_could_register_are_refused_once_and_the_others_are_pulled(partner, served):
    reasons = {
        f"{'k' * 4000}.csv": "its name has 4,022 bytes: expected at most 1,024. Rename the file",
        # It is compared with no pattern: for a name of 1 MB, two `*` would take minutes.
        f"{'k' * 4000}.no": "its name has 4,021 bytes: expected at most 1,024. Rename the file",
        "large.csv": "this machine has no room for it",
        "less.csv": "it is empty",
    }
    sizes = zip((f"out/2024-02-29/04/{name}" for name in reasons), (5, 5, 1 << 70, -5), strict=True)
    served.objects, steps = {**dict(sizes), GOOD: 5}, list[str]()
    assert partner.look()
    wrong = wrong_files(partner)
    assert len(wrong) == len(reasons)
    assert all(any(reason in each for each in wrong) for reason in reasons.values())
    assert all(len(each.encode()) < KEY_BYTES + 300 for each in wrong)
    partner.on_step = steps.append
    assert partner.look()
    assert (steps, wrong_files(partner)) == ([], wrong)
    assert partner.held() == {"2024-02-29-00:00": ["id\n1\n"]}
    assert not [each for each in served.requests if "/04/" in each]


def test_a_file_with_an_etag_of_thousands_of_letters_is_pulled_once_and_registered_with_its_digest(partner, served):
    served.etags[GOOD] = f'"{"e" * 4000}"'
    for _ in range(2):
        assert partner.look()
    etag = partner.registered().file.etag
    assert "4002 bytes, sha256" in etag
    assert len(etag) <= ETAG_BYTES
    assert partner.held() == {"2024-02-29-00:00": ["id\n1\n"]}


def test_a_listing_that_never_ends_delays_a_tick_once_and_other_stores_never(served, monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.2)
    served.silence = Event()
    with serving(served) as url:
        silent, again = (Blackboard.open("s3://bucket", endpoint=url, credentials=keys, name="silent") for _ in "ab")
        with pytest.raises(BlackboardUnavailable, match=r"'silent'\).*no answer within 0\.2 s"):
            silent.files("out")
        with pytest.raises(BlackboardUnavailable, match=r"'silent'\).*asked again in a minute or later"):
            again.files("out")
        assert len(served.requests) == 1
        served.silence.set()


ENTRY = "<Contents><Key>out/a</Key><Size>5</Size><ETag>1</ETag><LastModified>{}</LastModified></Contents>"


@each_case(
    ("listing", "problem"),
    [
        ("", "a listing without IsTruncated"),
        ("<IsTruncated>true</IsTruncated>", "a listing without NextContinuationToken"),
        ("<IsTruncated>false</IsTruncated><CommonPrefixes></CommonPrefixes>", "a listing without Prefix"),
        ("<Contents><Key>a</Key></Contents>", "a listing without ETag, IsTruncated, LastModified, Size"),
        (ENTRY.format("some day"), "Invalid timestamp"),
        (ENTRY.format("9" * 20), "Unable to calculate correct timezone offset"),
        (ENTRY.format("9" * 3000), r"9… \(\d+ bytes, sha256"),
    ],
)
def test_a_listing_that_lacks_something_is_an_error_of_its_store(served, monkeypatch, listing, problem):
    monkeypatch.setattr(served, "listing", lambda _: f"<ListBucketResult>{listing}</ListBucketResult>".encode())
    with serving(served) as url:
        theirs = Blackboard.open("s3://bucket", endpoint=url, credentials=keys, name="partner")
        for read_names in (theirs.files, theirs.children, theirs.page):
            with pytest.raises(BlackboardUnavailable, match=problem):
                read_names("out")

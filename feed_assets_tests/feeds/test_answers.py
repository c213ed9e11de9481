"""A store of others that does not answer, or without end: whoever asks goes on, and nobody asks it again at once."""

from datetime import UTC, datetime
from itertools import islice
from threading import Event

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import answers, blackboard, read, s3_others
from feed_assets.feeds.answers import AGAIN_SECONDS, LISTING_SECONDS, Answers
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.s3_others import OthersClient
from feed_assets.feeds.s3_pages import S3Pages
from feed_assets.feeds.stores import PATIENCE
from feed_assets_tests.support.each_case import each_case


def test_an_answer_that_does_not_come_is_an_error_and_nobody_asks_again_until_it_may_come(monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.01)
    now, silence, asked = [0.0], Event(), list[str]()
    store = Answers(lambda: now[0])

    def ask(name: str) -> str:
        asked.append(name)
        if name == "silent":
            now[0] += 1
            assert silence.wait(60)
        return name

    with pytest.raises(OSError, match=r"^no answer within 0\.01 s$"):
        store.within(lambda: ask("silent"))
    now[0] = 2 * AGAIN_SECONDS
    with pytest.raises(OSError, match=r"^no answer within 0\.01 s, and it will be asked again"):
        store.within(lambda: ask("while the first still waits"))
    silence.set()
    assert store._ended.wait(60)
    now[0] = AGAIN_SECONDS
    with pytest.raises(OSError, match="asked again in a minute or later"):
        store.within(lambda: ask("too early"))
    now[0] = AGAIN_SECONDS + 1
    monkeypatch.undo()
    assert store.within(lambda: ask("later")) == "later"
    assert asked == ["silent", "later"]


def test_one_store_has_one_memory_in_a_process_and_an_error_of_it_is_raised_as_it_is():
    store = answers.answers_of("s3://a", "http://b")
    assert store is answers.answers_of("s3://a", "http://b")
    assert store is not answers.answers_of("s3://a", "http://c")

    def fail() -> None:
        raise FileNotFoundError("no such key")

    with pytest.raises(FileNotFoundError, match="no such key"):
        store.within(fail)
    assert store.within(lambda: 1) == 1


class Lister:
    """A partner's S3 that answers each listing with pages of two names, by a clock on which a page takes a second."""

    def __init__(self, name: str, pages: int) -> None:
        self.name, self.pages = name, pages
        self.requests, self.now = 0, 0.0

    def list_objects_v2(self, **request: str) -> dict:
        assert self.requests < 10 * LISTING_SECONDS, "the listing goes on and on"
        self.requests, self.now = self.requests + 1, self.now + 1
        number = int(request.get("ContinuationToken", 0)) + 1
        keys = [f"{request['Prefix']}{self.name.format(2 * self.requests + each)}" for each in range(2)]
        more = {"NextContinuationToken": str(number)} if number < self.pages else {}
        if "Delimiter" in request:
            return {"IsTruncated": bool(more), "CommonPrefixes": [{"Prefix": f"{key}/"} for key in keys], **more}
        stored = {"Size": 5, "ETag": "1", "LastModified": datetime(2024, 2, 29, tzinfo=UTC)}
        return {"IsTruncated": bool(more), "Contents": [{"Key": key, **stored} for key in keys], **more}


def board_of(lister: Lister, monkeypatch) -> Blackboard:
    keys = {"access_key_id": "a", "secret_access_key": "b", "token": None, "expires_at": None}
    theirs = S3Pages("s3://bucket", None, lambda: keys, PATIENCE, Answers(lambda: lister.now))
    monkeypatch.setattr(theirs, "_connect", lambda *_: lister)
    return Blackboard("s3://bucket", OthersClient(None, theirs), pages=theirs, name="partner")


FOREVER = 1 << 60


@each_case(
    ("listed", "name"),
    [
        (lambda board: board.files("p"), "n{:09}"),
        (lambda board: board.files_from("p", "p/n"), "n{:09}"),
        (lambda board: board.children("p"), "n{:09}"),
        (lambda board: board.last_write("p"), "n{:09}"),
        (lambda board: board.page("p"), "n{:09}\x01"),
        (lambda board: read.latest(board, Partition(Feed("p"))), "n{:09}"),
        (lambda board: read.latest(board, Partition(Feed("p"))), "20240229.050000"),
        (lambda board: read.promises(board, Partition(Feed("p"))), "20240229.050000"),
    ],
)
def test_a_listing_without_end_is_given_up_in_time_and_its_store_gets_a_pause(listed, name, monkeypatch):
    lister = Lister(name, FOREVER)
    board = board_of(lister, monkeypatch)
    with pytest.raises(BlackboardUnavailable, match=r"'partner'\).*a listing did not end within 30 s"):
        listed(board)
    assert lister.requests == LISTING_SECONDS + 1
    with pytest.raises(BlackboardUnavailable, match=r"a listing did not end within 30 s.* again in a minute or later"):
        board.files("p")
    lister.now += AGAIN_SECONDS + 1
    lister.pages, lister.name = int(LISTING_SECONDS), "n{:09}"
    assert len(board.files("p")) == 2 * LISTING_SECONDS
    assert len(board.page_of_files("p", "p/n") or ()) == 2 * LISTING_SECONDS
    lister.pages, lister.requests = FOREVER, 0
    pages = board.file_pages("p/")  # Whoever reads page by page has a limit of its own.
    assert len([*islice(pages, int(2 * LISTING_SECONDS))]) == lister.requests == 2 * LISTING_SECONDS
    with monkeypatch.context() as patched:
        for module in (blackboard, s3_others):
            patched.setattr(module, "OBJECTS_PER_PAGE", 3)
        assert board.page_of_files("p", "p/n") is None
    assert lister.requests == 2 * LISTING_SECONDS + 2

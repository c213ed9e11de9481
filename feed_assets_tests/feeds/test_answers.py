"""A store of others that does not answer: whoever asks goes on, and nobody asks it again at once."""

from threading import Event

import pytest

from feed_assets.feeds import answers
from feed_assets.feeds.answers import AGAIN_SECONDS, Answers


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
    with pytest.raises(OSError, match="did not answer within"):
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


def test_an_error_of_the_store_is_raised_as_it_is_and_stops_no_other_request():
    store = Answers()

    def fail() -> None:
        raise FileNotFoundError("no such key")

    with pytest.raises(FileNotFoundError, match="no such key"):
        store.within(fail)
    assert store.within(lambda: 1) == 1


def test_one_store_has_one_memory_in_a_process():
    assert answers.answers_of("s3://a", "http://b") is answers.answers_of("s3://a", "http://b")
    assert answers.answers_of("s3://a", "http://b") is not answers.answers_of("s3://a", "http://c")

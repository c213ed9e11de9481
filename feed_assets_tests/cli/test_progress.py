"""Progress on stderr: a line that is redrawn on a terminal, a few lines elsewhere."""

import sys
from io import StringIO

import pytest

from feed_assets.cli.progress import LOADING, Progress, announced, progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Screen(StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch):
    """Return a screen that replaces stderr, which pytest sets anew after each fixture."""
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setenv("COLUMNS", "20")
    return sys.stderr


def test_a_log_gets_a_line_at_once_and_then_one_in_a_while_and_all_news(capsys):
    clock = Clock()
    doing = Progress({LOADING, "news"}, clock)
    for seconds, text in ((0, "first"), (3, "second"), (4, "news"), (13, "third"), (14, "fourth"), (15, "fifth")):
        clock.now = seconds
        doing.say(text)
    assert capsys.readouterr() == ("", "feed-assets: first\nfeed-assets: news\nfeed-assets: fourth\n")


def test_progress_names_each_item_in_turn(capsys):
    clock = Clock()
    doing = Progress(frozenset(), clock)
    for number, each in enumerate(announced(["a", "b"], doing, "looking at"), 1):
        assert capsys.readouterr().err == f"feed-assets: looking at {each} ({number} of 2)\n"
        clock.now += 10


def test_a_terminal_shows_one_fitting_line_that_is_cleared_before_results(monkeypatch):
    screen = terminal(monkeypatch)
    with progress() as doing:
        doing.say("a" * 50)
        doing.clear()
        doing.clear()
        doing.say("b")
    assert screen.getvalue() == f"\r\x1b[K{'a' * 19}\r\x1b[K\r\x1b[Kb\r\x1b[K"


def fail(doing):
    with doing.cleared():
        doing.say("b")
        raise OSError("no")


def test_the_progress_line_is_cleared_after_an_error(monkeypatch):
    screen = terminal(monkeypatch)
    with pytest.raises(OSError, match="no"):
        fail(Progress())
    assert screen.getvalue().endswith("b\r\x1b[K")

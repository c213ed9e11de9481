"""Signals to a command in a separate process: the first ends it in order, the second at once."""

import signal
import subprocess
import sys
from textwrap import dedent

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import wait_until

HEAD = """
import os, signal, sys, threading
from feed_assets.cli.stopping import stopping

def say(word):
    os.write(1, f"{word}\\n".encode())  # A handler may say something while this is said: print cannot be entered twice.

def wait():
    threading.Event().wait(600)
"""
WAITS = """
with stopping():
    try:
        say("waits")
        wait()
    finally:
        say("cleans up")
"""
SWALLOWS = """
def swallow(*_):
    say("swallowed")
with stopping() as check:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, swallow)
    say("waits")
    sys.stdin.readline()
    check()
    say("went on")
"""
MAKES_AN_ERROR = """
with stopping():
    try:
        say("waits")
        wait()
    except KeyboardInterrupt:
        raise RuntimeError("Spark is gone")
"""
USES_OTHERS = """
def rings(*_):
    say("rings")
with stopping() as check:
    for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, rings)
    say("waits")
    sys.stdin.readline()
    check()
    say("went on")
"""
CLEANS_UP_FOR_EVER = """
with stopping():
    try:
        say("waits")
        wait()
    finally:
        say("cleans up")
        signal.signal(signal.SIGINT, lambda *_: say("swallowed"))
        while True:
            wait()
"""


def started(script: str, hang_up=signal.SIG_DFL) -> "subprocess.Popen[str]":
    """Start a process, and wait until it waits; its action for SIGHUP does not depend on that of these tests."""
    command = [sys.executable, "-c", dedent(HEAD + script)]
    before = signal.signal(signal.SIGHUP, hang_up)
    process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)
    signal.signal(signal.SIGHUP, before)
    assert process.stdout.readline() == "waits\n"
    return process


def end_of(process, number) -> tuple[int, str, str]:
    process.send_signal(number)
    said, complained = process.communicate("\n", timeout=60)
    return process.returncode, said, complained


@each_case(
    ("number", "code", "name"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 129, "SIGHUP")],
)
def test_the_first_signal_ends_the_block_and_names_itself_in_one_line(number, code, name):
    what = "partitions in progress are not published, finished ones stay"
    told = f"stopped by {name}: {what}. Run the command again to continue.\n"
    assert end_of(started(WAITS), number) == (code, "cleans up\n", told)


@each_case("number", [signal.SIGINT, signal.SIGTERM])
def test_a_swallowed_signal_is_noticed_at_the_next_check(number):
    code, said, _ = end_of(started(SWALLOWS), number)
    assert (code, said) == (128 + number, "swallowed\n")


@each_case("number", [signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD])
def test_a_signal_that_the_block_has_a_use_for_is_no_stop(number):
    assert end_of(started(USES_OTHERS), number) == (0, "rings\nwent on\n", "")


def test_an_interrupt_turned_into_another_error_still_ends_with_code_130():
    code, _, complained = end_of(started(MAKES_AN_ERROR), signal.SIGINT)
    assert (code, complained.count("\n")) == (130, 1)


def test_a_second_signal_ends_the_process_at_once():
    process = started(CLEANS_UP_FOR_EVER)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cleans up\n"

    def again() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    wait_until(again, "the second signal")
    assert process.wait() == 130
    process.communicate()


def test_an_error_of_its_own_is_no_stop():
    script = "with stopping():\n    say('waits')\n    sys.stdin.readline()\n    raise ValueError('mine')"
    process = started(script)
    _, complained = process.communicate("\n", timeout=60)
    assert (process.returncode, "ValueError: mine" in complained) == (1, True)


def test_a_signal_ignored_at_the_start_stays_ignored():
    script = "with stopping():\n    say('waits')\n    sys.stdin.readline()\nsay('went on')"
    assert end_of(started(script, signal.SIG_IGN), signal.SIGHUP) == (0, "went on\n", "")


def test_handlers_are_as_before_afterwards():
    from feed_assets.cli.stopping import stopping

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with stopping():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


IGNORES = """
signal.signal(signal.SIGINT, signal.SIG_IGN)  # As a shell does for what it starts in the background.
with stopping():
    signal.signal(signal.SIGINT, lambda *_: say("handled"))  # As Spark and Dagster do while a run goes on.
    say("waits")
    sys.stdin.readline()
say("ended as it was" if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else "ended otherwise")
"""


def test_an_ignored_signal_stays_ignored_despite_later_handlers():
    command = [sys.executable, "-c", HEAD + IGNORES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate("\n")
    assert (process.returncode, out) == (0, "ended as it was\n")

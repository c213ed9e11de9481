"""Foreign texts in the output of commands: none of them controls the terminal."""

import logging
import re
import sys
from pathlib import Path

import pytest

from feed_assets.cli.progress import Progress
from feed_assets.cli.run_output import Teller
from feed_assets.cli.show import Values, show
from feed_assets.cli.traces import errors_in_a_line
from feed_assets.core.control_characters import printable
from feed_assets.core.errors import InvalidName
from feed_assets.home import say
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case

HOSTILE = "a\x1b]0;title\x07\x1b[2K\r\x9b31m\u202eb\u200b\u2028c"
COMMANDS = Path(__file__).parents[2] / "feed_assets" / "cli"


def raised() -> None:
    with pytest.raises(SystemExit), errors_in_a_line():
        raise InvalidName(HOSTILE)


def logged() -> None:
    """Log a message and an error as a process does whose log lines are for people."""
    settings()
    logger, handler = logging.getLogger("feed_assets.alerts"), logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    try:
        logger.warning("%s", HOSTILE)
        logger.warning("100 %", exc_info=InvalidName(HOSTILE))
        logger.handle(
            logging.makeLogRecord({"name": logger.name, "levelno": logging.INFO, "msg": "as Dagster passes a line on"})
        )
    finally:
        logger.removeHandler(handler)


PRINTS = {
    "an error": raised,
    "a line of run": lambda: Teller(Progress(), lambda: None).say(HOSTILE),
    "a problem of a sensor": lambda: Teller(Progress(), lambda: None).say_problems("feeds", {HOSTILE: HOSTILE}),
    "a cell": lambda: show(Values.of(name=HOSTILE), as_json=False),
    "lines below a row": lambda: show(Values.of(names=(HOSTILE, HOSTILE)), as_json=False),
    "a key of rows below": lambda: show(Values.of(names={HOSTILE: {"a": HOSTILE}}), as_json=False),
    "JSON": lambda: show(Values.of(name=HOSTILE), as_json=True),
    "lines of a logger": logged,
    "a line of a service": lambda: say(HOSTILE),
}


@each_case("name", PRINTS)
def test_commands_print_no_control_characters_of_others(name, capfd):
    PRINTS[name]()
    printed = "".join(capfd.readouterr())
    assert "title" in printed
    assert [each for each in printed if each != "\n" and not each.isprintable()] == []


def test_ordinary_text_of_any_script_is_printed_as_it_is():
    text = "Zürich\t北京 — नमस्ते \N{NO-BREAK SPACE}😀\nnext line"
    assert printable(text) == text


def test_every_line_of_a_command_is_printed_by_echo():
    found = {
        f"{path.relative_to(COMMANDS)}: {line.strip()}"
        for path in COMMANDS.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"typer\.echo|(?<![\w.])print\(", line) and path.name != "terminal.py"
    }
    with_own_signs = {"show.py", "status.py", "progress.py", "__init__.py", "completion.py"}
    assert {line.partition(":")[0] for line in found} <= with_own_signs, found

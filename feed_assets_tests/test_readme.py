"""Commands of the README and the docs, and every setting that they must name."""

import re
import shlex
import subprocess
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.settings import Settings
from feed_assets_tests.support.each_case import each_case

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_PROJECTS = (ROOT / "feed_assets/cli/template/README.md.template").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def shell_commands(text):
    """Return the lines of the fenced shell blocks, without comments."""
    blocks = re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = (line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_the_readme_begins_with_commands_that_work_before_a_release():
    assert shell_commands(README)[:3] == ["make demo", "make test", next(iter(_installing(README)))]
    assert len(_installing(README)) == README.count("pip install feed-assets") == 1
    assert _installing(README)[0].startswith("pip install ./feed_assets  #")
    assert len(_installing(OF_PROJECTS)) == OF_PROJECTS.count("feed-assets pytest") == 1
    assert _installing(OF_PROJECTS)[0].startswith("pip install ../feed_assets pytest  #")
    assert "pypi.org" not in README + OF_PROJECTS


def _installing(text):
    return [line for line in shell_commands(text) if line.startswith("pip install")]


def inline_commands(text):
    """Return commands in backticks."""
    return re.findall(r"`((?:make|feed-assets) [^`]+)`", text)


def subcommand(words):
    """Return the words of a command before its first option or argument (with a capital, a digit, a dot or a slash)."""
    names = []
    for word in words:
        if not re.fullmatch(r"[a-z]+", word):
            break
        names.append(word)
    return names


COMMANDS = [words for line in shell_commands(README) + inline_commands(README) if (words := shlex.split(line, True))]
MAKE = sorted({tuple(words[1:]) for words in COMMANDS if words[0] == "make"})
OURS = sorted({tuple(subcommand(words[1:])) for words in COMMANDS if words[0].endswith("feed-assets")})


def test_the_readme_shows_the_two_commands():
    assert {"make demo", "make test"} <= set(shell_commands(README))


def test_every_shell_command_is_one_that_is_checked_here():
    assert {Path(words[0]).name for words in COMMANDS} <= {"make", "feed-assets", "pip", "cd"}


@each_case("words", MAKE, ids=" ".join)
def test_a_make_command_of_the_readme_has_its_target(words):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_make_target_is_in_the_readme():
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"test", "check"} <= set(targets) <= {words[0] for words in MAKE}


def test_a_feed_assets_command_of_the_readme_parses():
    assert ("run",) in OURS
    for names in OURS:
        done = CliRunner().invoke(app, [*names, "--help"])
        assert done.exit_code == 0, f"feed-assets {' '.join(names)}: {done.output}"


def leaves(command, name=""):
    """Return each command with the names of its options."""
    if below := getattr(command, "commands", None):
        for word, each in below.items():
            yield from leaves(each, f"{name} {word}".strip())
    if name and not command.hidden and (below is None or command.invoke_without_command):
        yield name, {option for each in command.params for option in each.opts}


def named(sentence):
    return set(re.findall(r"`([a-z -]+)`", sentence))


def test_the_readme_says_which_commands_take_definitions_and_json():
    options = dict(leaves(get_command(app)))
    about = README.partition("`--apply` removes them |")[2].partition("\n## ")[0]
    assert named(about.partition(" work on the definitions")[0]) == {
        name for name, taken in options.items() if "--module" in taken
    }
    without = about.partition("All but ")[2].partition(" take")[0]
    assert named(without) == {name for name, taken in options.items() if "--json" not in taken}


@each_case("name", Settings.model_fields)
def test_a_setting_has_its_line_in_operations(name):
    assert f"| `FEED_ASSETS_{name.upper()}` |" in OPERATIONS

"""Commands of the README and of the page for contributors, the generated reference, and the wheel's description."""

import re
import shlex
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets_tests.support.each_case import each_case

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_PROJECTS = (ROOT / "feed_assets/cli/template/README.md.template").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def shell_commands(text):
    """Return the lines of the fenced shell blocks, without comments."""
    blocks = re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = (line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_the_readme_is_short_and_begins_with_commands_that_work_before_a_release():
    assert len(README.splitlines()) <= 120
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


COMMANDS = [
    words
    for text in (README, CONTRIBUTING)
    for line in shell_commands(text) + inline_commands(text)
    if (words := shlex.split(line, True))
]
MAKE = sorted({tuple(words[1:]) for words in COMMANDS if words[0] == "make"})
OURS = sorted({tuple(subcommand(words[1:])) for words in COMMANDS if words[0].endswith("feed-assets")})


def test_every_shell_command_is_one_that_is_checked_here():
    assert {Path(words[0]).name for words in COMMANDS} <= {"make", "feed-assets", "pip", "cd"}


@each_case("words", MAKE, ids=" ".join)
def test_a_make_command_of_the_readme_has_its_target(words):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_make_target_is_in_the_page_for_contributors():
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"test", "check"} <= set(targets) <= {words[0] for words in MAKE}


def test_a_feed_assets_command_of_the_readme_parses():
    assert ("run",) in OURS
    for names in OURS:
        done = CliRunner().invoke(app, [*names, "--help"])
        assert done.exit_code == 0, f"feed-assets {' '.join(names)}: {done.output}"


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a module of scripts/ by its name."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return import_module


def test_the_generated_parts_of_the_reference_are_those_of_the_code(script):
    reference = script("reference")
    assert [path.name for path in reference.stale()] == [], "run `make reference`"
    assert reference.unused() == set()
    claims = script("claims")
    promises = claims.read()
    assert claims.broken(promises) == [], "correct scripts/claims.toml"
    assert claims.page(promises) == claims.PAGE.read_text(encoding="utf-8"), "run `.venv/bin/python scripts/claims.py`"
    page = reference.current("before\n<!-- generated: settings -->\nFORMER\n<!-- end -->\nafter")
    assert page.startswith("before\n<!-- generated: settings -->\n\n## `FEED_ASSETS_")
    assert page.endswith("\n\n<!-- end -->\nafter")
    assert "FORMER" not in page


def test_the_package_index_gets_urls_and_a_description_whose_links_lead_to_the_repository(script):
    absolute = script("repository_links").absolute
    for markdown, expected in {
        "[a](docs/x.md#y)": "[a](https://host/r/blob/main/docs/x.md#y)",
        "![a](docs/ui.png)": "![a](https://host/r/raw/main/docs/ui.png)",
        "[a](docs/decisions/)": "[a](https://host/r/tree/main/docs/decisions)",
        "[a](https://dagster.io) [b](#start)": "[a](https://dagster.io) [b](#start)",
        "`[a](x)`\n```\n[a](x)\n```": "`[a](x)`\n```\n[a](x)\n```",
    }.items():
        assert absolute(markdown, "https://host/r") == expected
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(project["urls"])
    assert all(url.startswith(project["urls"]["Repository"]) for url in project["urls"].values())
    pythons = {each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert pythons == {"3.11", "3.12", "3.13"}
    assert project["requires-python"] == ">=3.11,<3.14"
    text = absolute(README, project["urls"]["Repository"])
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []

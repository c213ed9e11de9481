"""Promises of the pages: rows without their sentence or test are found, and a mutation is judged by a real run."""

from runpy import run_path
from types import SimpleNamespace

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import ROOT

SCRIPT = SimpleNamespace(**run_path(str(ROOT / "scripts" / "claims.py")))
HERE = "test_claims.py::test_sentences_that_sound_like_promises_are_found"
TRUE = SCRIPT.Promise("README.md", "It is published if the checks pass.", HERE)
MUTATED = {
    "mutation": "never is no promise",
    "file": "scripts/claims.py",
    "old": r"\b(never|",
    "new": r"\b(",
    "red": "2026-11-30",
}


@each_case(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"test": ""}, ""),
        (MUTATED, ""),
        ({"text": "It is published if the checks fail."}, "README.md has no more: It is published if the checks fail."),
        ({"page": "docs/kafka.md"}, "docs/kafka.md has no more: It is published if the checks pass."),
        ({"test": "test_gone.py::test_any"}, "there is no test test_gone.py::test_any"),
        ({"test": HERE.removesuffix("d")}, "there is no test test_claims.py::"),
        ({"test": "test_claims.py"}, "there is no test test_claims.py"),
        ({"mutation": "nothing is checked"}, "a mutation needs a test, a file and a change"),
        ({**MUTATED, "test": ""}, "a mutation needs a test, a file and a change"),
        ({**MUTATED, "new": MUTATED["old"]}, "a mutation needs a test, a file and a change"),
    ],
)
def test_a_promise_without_its_sentence_its_test_or_its_mutation_is_found(changes, problem):
    problems = SCRIPT.broken([TRUE, TRUE._replace(**changes)])
    assert len(problems) == bool(problem)
    assert all(line.startswith(problem) for line in problems)


def test_sentences_that_sound_like_promises_are_found():
    text = "A chunk never changes. It has\nnames. Each is read once.\n\n"
    text += "```sh\nnever\n```\n- At most 5 of them\n| never | b |\n"
    assert [*SCRIPT.sentences(text)] == [
        "A chunk never changes.",
        "Each is read once.",
        "At most 5 of them",
        "| never | b |",
    ]


def test_the_page_has_a_row_for_each_promise_and_counts_them():
    untested = TRUE._replace(text="about **11 minutes** on `two` [cores](x.md) & more", test="")
    page = SCRIPT.page([TRUE._replace(**{**MUTATED, "red": ""}), untested, TRUE._replace(**MUTATED)])
    assert "3 promises: 1 with a mutation, 1 with a test that no mutation has tried, 1 without a test." in page
    assert page.count("<tr>\n") == 3
    assert "<td>about 11 minutes on <code>two</code> cores &amp; more</td>\n<td>no test</td>\n<td></td>" in page
    assert page.count("<td>not mutated</td>") == page.count("<td>never is no promise</td>") == 1


def test_a_mutation_counts_if_its_test_passes_without_it_and_fails_with_it(capsys):
    changes = {
        "red": {},
        "NOT FOUND": {"new": r"\b(never|ever|"},
        "STALE": {"old": "a text that the file has not"},
        "UNFIT": {"test": "test_claims.py::test_that_does_not_exist"},
    }
    promises = [TRUE._replace(text=verdict, **{**MUTATED, **change}) for verdict, change in changes.items()]
    assert SCRIPT.mutate([TRUE, *promises]) == ["NOT FOUND", "STALE", "UNFIT"]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:10].strip() for line in lines] == [*changes]

"""Write docs/claims.md: promises of the pages, the test that fails if it is false, and the mutation that showed so.

Usage: .venv/bin/python scripts/claims.py [--sentences PAGE… | --mutate [WORD…]]

Without options it writes the page from scripts/claims.toml. `--sentences` prints the sentences of pages that sound like
promises. `--mutate` breaks a copy of the code by each mutation (of the tests whose names contain all words), and runs
the test, which must fail with it and pass without.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
STORED = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs" / "claims.md"
TESTS = "feed_assets_tests"
PROMISING = re.compile(
    r"\b(never|exactly|at most|at least|always|only once|once|cannot|nobody|nothing|none|no other|alone|every)\b"
    r"|\d[\d,.]* (?:MB|s|seconds|minutes|%)",
    re.IGNORECASE,
)
_HEAD = """# Promises and their tests

Promises of the pages, each with the test that fails if it is false. The mutation says how the code was broken to see
that test fail. `scripts/claims.toml` has the rows, and each mutation as a replacement of text. A test holds that each
sentence is still on its page, and that each test exists.

```sh
.venv/bin/python scripts/claims.py                      # write this page
.venv/bin/python scripts/claims.py --mutate kafka       # break a copy of the code by each mutation, and run the tests
.venv/bin/python scripts/claims.py --sentences docs/kafka.md
```

{summary}

{left}
"""


class Promise(NamedTuple):
    """One sentence of a page, or a part of it, with its test and the mutation that the test found."""

    page: str
    text: str
    test: str = ""
    """File and function below `feed_assets_tests`; empty if no test holds the sentence."""
    mutation: str = ""
    file: str = ""
    old: str = ""
    new: str = ""
    red: str = ""
    """Day on which the test failed with the mutation and passed without; empty if nobody has tried."""


def read(path: Path = STORED) -> list[Promise]:
    """Return the rows, page by page in the order of the file."""
    return [Promise(**row) for row in tomllib.loads(path.read_text("utf-8"))["promise"]]


@cache
def _words_of(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").split())


def broken(promises: Iterable[Promise]) -> list[str]:
    """Return what is wrong: sentences that left their pages, and tests that do not exist."""
    return [problem for promise in promises for problem in _broken(promise)]


def _broken(promise: Promise) -> Iterator[str]:
    if promise.text not in _words_of(promise.page):
        yield f"{promise.page} has no more: {promise.text}"
    file, _, function = promise.test.partition("::")
    path = ROOT / TESTS / file
    if promise.test and not (path.is_file() and f"\ndef {function}(" in path.read_text("utf-8")):
        yield f"there is no test {promise.test}: {promise.text}"
    if (promise.mutation or promise.red) and not (
        promise.mutation and promise.test and promise.file and promise.old != promise.new
    ):
        yield f"a mutation needs a test, a file and a change: {promise.text}"


def page(promises: Iterable[Promise]) -> str:
    """Return the page: a table for each page with promises."""
    promises = [*promises]
    tested = [promise for promise in promises if promise.test]
    mutated = sum(bool(promise.red) for promise in tested)
    summary = f"{len(promises)} promises: {mutated} with a mutation, {len(tested) - mutated} with a test that no "
    summary += f"mutation has tried, {len(promises) - len(tested)} without a test."
    left = f"Not every promise is here. Pages with promises and without rows: {', '.join(_pages_without(promises))}."
    parts = [_HEAD.format(summary=summary, left="\n".join(wrap(left, 120, break_on_hyphens=False)))]
    for name, group in groupby(promises, lambda promise: promise.page):
        title = (ROOT / name).read_text("utf-8").partition("\n")[0].removeprefix("# ")
        link = name.removeprefix("docs/") if name.startswith("docs/") else f"../{name}"
        rows = "".join(map(_row, group))
        head = "<tr><th>promise</th><th>test</th><th>mutation</th></tr>"
        parts.append(f"\n## {title}\n\nOf [{name}]({link}):\n\n<table>\n{head}\n{rows}</table>\n")
    return "".join(parts)


def _pages_without(promises: Iterable[Promise]) -> list[str]:
    """Return the names of pages that have promises, of which none has a row."""
    names = {promise.page for promise in promises} | {f"docs/{PAGE.name}"}
    pages = [path for path in sorted((ROOT / "docs").glob("*.md")) if f"docs/{path.name}" not in names]
    return [path.stem for path in pages if any(sentences(path.read_text("utf-8")))]


def _row(promise: Promise) -> str:
    file, _, function = promise.test.partition("::")
    test = f"<code>{file}</code><br>\n<code>{function}</code>" if promise.test else "no test"
    mutation = promise.mutation if promise.red else "not mutated" if promise.test else ""
    return f"<tr>\n<td>{_cell(promise.text)}</td>\n<td>{test}</td>\n<td>{_cell(mutation)}</td>\n</tr>\n"


def _cell(text: str) -> str:
    """Return plain text and code of Markdown as HTML, in short lines."""
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("**", "")
    return "\n".join(
        wrap(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(plain, quote=False)), 120, break_on_hyphens=False)
    )


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page that sound like promises."""
    text = re.sub(r"^```.*?^```", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\s*(-|\d+\.) |\n(?=[|#])", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        found = re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split()))
        yield from (sentence for sentence in found if PROMISING.search(sentence))


def mutate(promises: Iterable[Promise]) -> list[str]:
    """Break a copy of the code by each mutation, and print its verdict. Return those that no test has found."""
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        ignored = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".feed_assets")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
        (copy / ".cache").symlink_to(ROOT / ".cache")
        return [promise.text for promise in promises if promise.mutation and not _is_found(promise, copy)]


def _is_found(promise: Promise, copy: Path) -> bool:
    verdict = _verdict(promise, copy)
    print(f"{verdict:<10}{promise.test}: {promise.mutation}", flush=True)
    return verdict == "red"


def _verdict(promise: Promise, copy: Path) -> str:
    path = copy / promise.file
    code = path.read_text("utf-8")
    if code.count(promise.old) != 1:
        return "STALE"  # The code has changed: write the mutation anew.
    if not _passes(promise.test, copy):
        return "UNFIT"
    path.write_text(code.replace(promise.old, promise.new), "utf-8")
    try:
        return "red" if _exit_code(promise.test, copy) == 1 else "NOT FOUND"
    finally:
        path.write_text(code, "utf-8")


@cache
def _passes(test: str, copy: Path) -> bool:
    """Return True if a test passes with unbroken code. Call this before the code is broken."""
    return _exit_code(test, copy) == 0


def _exit_code(test: str, copy: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"{TESTS}/{test}"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}  # Also for processes that leave out their own folder.
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode  # noqa: S603


def main() -> int:
    """Write the page, or do what the option says."""
    match sys.argv[1:]:
        case ["--sentences", *pages]:
            print("\n".join(f"{name}: {line}" for name in pages for line in sentences(Path(name).read_text("utf-8"))))
        case ["--mutate", *words]:
            wanted = [promise for promise in read() if all(word in promise.test for word in words)]
            return 1 if mutate(wanted) else 0
        case []:
            PAGE.write_text(page(read()), "utf-8")
        case _:
            raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())

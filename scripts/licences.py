"""Write docs/licences.md: the licence of each package in uv.lock.

Usage: .venv/bin/python scripts/licences.py [--check]

Installed packages name their licence. A package of another system, another Python or the benchmarks keeps its row;
a new one of these has to be installed once (`uv sync --group bench`), or added by hand.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licences.md"
PRODUCT = "feed-assets"
DEVELOPMENT = "development"
COPYLEFT = re.compile(r"(?<!L)\bA?GPL|(?<!Lesser )General Public|Affero")
"""Licences that extend to products which include them. The LGPL, for libraries, does not."""

_LONGEST = 45
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<licence>.+?) \| (?P<use>.+?) \|$", re.MULTILINE)
_HEAD = """# Licences

Each package of `uv.lock` with its licence, in its own words. `make licences` writes this page; a test compares it with
the lock. feed_assets itself is Apache-2.0. Nothing that is installed with it is under the GPL or AGPL. Under the LGPL
are {weak}, which are imported as they are. `development` is what tests, checks and benchmarks
need: users do not get it.

| package | licence | comes with |
|---|---|---|
"""


def rows(lock: Mapping[str, Any], installed: Mapping[str, str], old: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return licence and use of each package of a lock file. Raise SystemExit if a licence is unknown."""
    packages = {each["name"]: each for each in lock["package"] if each["name"] != PRODUCT}
    product = next(each for each in lock["package"] if each["name"] == PRODUCT)
    uses = dict.fromkeys(packages, DEVELOPMENT)
    for extra, needs in sorted(product.get("optional-dependencies", {}).items(), reverse=True):
        uses |= dict.fromkeys(_closure(needs, lock), f"extra `{extra}`")
    uses |= dict.fromkeys(_closure(product["dependencies"], lock), "feed_assets")
    known = {**old, **installed}
    if unknown := sorted(packages.keys() - known.keys()):
        raise SystemExit(
            f"uv.lock has packages whose licence is not known here: {', '.join(unknown)}. Expected each installed, or "
            f"with a row in {PAGE.relative_to(ROOT)}. Install them (`uv sync --group bench`), or write their rows."
        )
    return {name: (known[name], uses[name]) for name in sorted(packages)}


def _closure(needs: Iterable[Mapping[str, Any]], lock: Mapping[str, Any]) -> set[str]:
    """Return the names of all packages that some requirements lead to, ignoring markers."""
    names, left, seen = set[str](), [*needs], set[tuple[str, str]]()
    while left:
        need = left.pop()
        names.add(need["name"])
        for extra in ("", *need.get("extra", ())):
            if (need["name"], extra) in seen:
                continue
            seen.add((need["name"], extra))
            entries = [each for each in lock["package"] if each["name"] == need["name"]]
            for each in entries:
                left += each.get("optional-dependencies", {}).get(extra, ()) if extra else each.get("dependencies", ())
    return names


def installed_licences() -> dict[str, str]:
    """Return the licence of each installed package, as its metadata gives it."""
    return {_canonical(each.metadata["Name"]): _licence(each.metadata) for each in distributions()}


def _licence(metadata: Any) -> str:
    """Return the licence expression, else a short text, else the classifiers."""
    if expression := metadata.get("License-Expression"):
        return expression
    text = (metadata.get("License") or "").strip()
    classes = metadata.get_all("Classifier") or ()
    named = [each.split(" :: ")[-1] for each in classes if each.startswith("License :: ")]
    is_short = 0 < len(text) <= _LONGEST and "\n" not in text and text != "Dual License"
    return (text if is_short else ", ".join(named)).replace("|", "or") or "UNKNOWN"


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def page(found: Mapping[str, tuple[str, str]]) -> str:
    """Return the text of docs/licences.md."""
    weak = " and ".join(
        f"`{name}`" for name, (licence, use) in found.items() if "LGPL" in licence and use != DEVELOPMENT
    )
    lines = [f"| `{name}` | {licence} | {use} |\n" for name, (licence, use) in found.items()]
    return _HEAD.format(weak=weak) + "".join(lines)


def main(*arguments: str) -> int:
    """Write the page. With `--check` return 1 if it does not match the lock file."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    before = PAGE.read_text("utf-8") if PAGE.is_file() else ""
    old = {each["name"]: each["licence"] for each in _ROW.finditer(before)}
    found = rows(lock, installed_licences(), old)
    if copyleft := [name for name, (licence, use) in found.items() if use != DEVELOPMENT and COPYLEFT.search(licence)]:
        sys.stderr.write(f"licences: under the GPL or AGPL, and installed with feed_assets: {', '.join(copyleft)}\n")
        return 1
    if "--check" not in arguments:
        PAGE.write_text(page(found), "utf-8")
    elif page(found) != before:
        sys.stderr.write("licences: docs/licences.md is not that of uv.lock. Run `make licences`.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Write the generated parts of docs/reference from the code.

Usage: .venv/bin/python scripts/reference.py [--check]

A page has its own text, and between two comments the parts that are generated:

    <!-- generated: settings -->
    …
    <!-- end -->
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import reference_commands
import reference_components
import reference_python
import reference_settings
import reference_tables

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
PARTS: dict[str, Callable[[], str]] = {
    "commands": reference_commands.index,
    "options of commands": reference_commands.details,
    "settings": reference_settings.settings,
    "public names": reference_python.public,
    "checks": reference_python.factories,
    "names for tests": reference_python.for_tests,
    "components": reference_components.components,
    "states of windows": reference_tables.window_states,
    "transitions of windows": reference_tables.transitions,
    "columns of the ledger": reference_tables.columns,
    "schema of write events": reference_tables.event_part,
    "schema of signals": reference_tables.signal_part,
    "tags": reference_tables.tags,
}
"""Generated parts of pages by name."""
_PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def current(page: str) -> str:
    """Return the text of a page with its generated parts as the code has them now."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]().strip()}\n\n", page)


def stale() -> dict[Path, str]:
    """Return the pages whose generated parts are not those of the code, with their current texts."""
    texts = {path: path.read_text("utf-8") for path in sorted(PAGES.glob("*.md"))}
    return {path: now for path, text in texts.items() if (now := current(text)) != text}


def unused() -> set[str]:
    """Return the names of generated parts that no page has."""
    texts = [path.read_text("utf-8") for path in PAGES.glob("*.md")]
    return PARTS.keys() - {part[2] for text in texts for part in _PART.finditer(text)}


def main(*arguments: str) -> int:
    """Write the pages. With `--check` return 1 if one is out of date."""
    pages = stale()
    if "--check" not in arguments:
        for path, text in pages.items():
            path.write_text(text, "utf-8")
    elif pages:
        names = ", ".join(path.relative_to(ROOT).as_posix() for path in pages)
        sys.stderr.write(f"reference: out of date: {names}. Run `make reference`.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

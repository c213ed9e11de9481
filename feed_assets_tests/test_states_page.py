"""docs/state.md and docs/status.md list the states of windows and of the grid like the code."""

from pathlib import Path

from feed_assets.core.grid import LEGEND
from feed_assets.core.transitions import TRANSITIONS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "state.md").read_text()


def test_the_table_of_transitions_is_that_of_the_code():
    rows = [
        f"| `{before.value}` | `{after.value}` | {why} |"
        for before, to in TRANSITIONS.items()
        for after, why in to.items()
    ]
    section = PAGE.partition("\n## States\n")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == rows


def test_the_signs_of_the_status_page_are_those_of_the_legend():
    rows = [line.split(" | ") for line in (DOCS / "status.md").read_text().splitlines() if line.startswith("| `")]
    signs = {sign.strip("| `"): state for sign, state, *_ in rows if len(sign) == len("| `=`")}
    assert signs == {sign: words.partition(":")[0] for sign, words in LEGEND.values()}

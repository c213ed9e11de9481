"""docs/state.md draws the states of windows as the code has them."""

from pathlib import Path

from feed_assets.core.transitions import TRANSITIONS

PAGE = (Path(__file__).parents[1] / "docs" / "state.md").read_text()


def test_the_table_of_transitions_is_that_of_the_code():
    rows = [
        f"| `{before.value}` | `{after.value}` | {why} |"
        for before, to in TRANSITIONS.items()
        for after, why in to.items()
    ]
    section = PAGE.partition("\n## States\n")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == rows

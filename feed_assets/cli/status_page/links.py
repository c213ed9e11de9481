"""Links in the names and cells of the status page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from feed_assets.core.addresses import STATUS
from feed_assets.core.feeds import Partition
from feed_assets.core.grid import LEGEND, Cell, CellState

if TYPE_CHECKING:
    from feed_assets.cli.status_views import ReasonView
    from feed_assets.orchestration.decide.nodes import Node
    from feed_assets.orchestration.decide.status_grid import GridRow, Status


@dataclass(frozen=True)
class Links:
    """The links of one page. `anchors` has, by partition, the anchor of the page's line about the partition.

    Only a live page also links to other pages.
    """

    status: "Status"
    is_live: bool = False
    anchors: Mapping[Partition, str] = field(default_factory=dict[Partition, str])

    def to_lines(self, reasons: Sequence["ReasonView"]) -> "Links":
        """Return links from each cell of the grid to the line of the page that explains the cell's state."""
        return replace(self, anchors={at: f"r{number}" for number, each in enumerate(reasons) for at in each.all})

    def to_partitions(self, printed: Iterable[Partition]) -> "Links":
        """Return links from the grid's cells to the lines of the partitions in `printed`."""
        return replace(self, anchors={at: f"p{number}" for number, at in enumerate(printed)})

    def dataset(self, feed: str) -> str:
        """Return a dataset's name, linked to its page."""
        query = escape(urlencode({"dataset": feed}))
        return f'<a href="{STATUS}?{query}">{escape(feed)}</a>' if self.is_live else escape(feed)

    def dagster(self, node: "Node", key: str | None = None) -> str:
        """Return the address in Dagster of an asset's partitions, or of one partition by its Dagster key."""
        query = urlencode({"view": "partitions", **({"partition": key} if key else {})})
        return escape(f"/assets/{quote('/'.join(node.key.path))}?{query}")

    def partition(self, row: "GridRow", at: Partition) -> str:
        """Return a partition's key, linked to the partition in Dagster."""
        name = escape(at.key or str(at.feed))
        return f'<a href="{self.dagster(row.node, row.node.key_of(at))}">{name}</a>' if self.is_live else name

    def cell(self, cell: Cell, text: str) -> tuple[str, str]:
        """Return a cell's `title` attribute, and its text with the link."""
        worst = (each.partition for each in cell.partitions if each.state is cell.state)
        anchor = next((self.anchors[at] for at in worst if at in self.anchors), None)
        inner = f"<a href=#{anchor}>{text}</a>" if anchor else text
        return f'title="{escape(_title(cell), quote=True)}"', inner


def name_of(row: "GridRow", links: Links) -> str:
    """Return a row's name: its dataset, and the key of its other dimensions."""
    of = f" <small>{escape(row.of)}</small>" if row.of else ""
    return f"{links.dataset(str(row.node.feed))}{of}"


def sign(state: CellState) -> str:
    """Return the sign of a state in its colours."""
    return f'<span class="sign {state.name.lower()}">{LEGEND[state][0]}</span>'


def named(state: CellState) -> str:
    """Return the sign of a state, and its name."""
    return f"{sign(state)}{escape(state.value)}"


def filtered(row: "GridRow") -> str:
    """Return the attributes by which the page's script filters rows."""
    states = " ".join(sorted({each.state.name.lower() for each in row.shown}))
    return f'data-name="{escape(f"{row.node.feed} {row.of}".lower(), quote=True)}" data-states="{states}"'


def _title(cell: Cell) -> str:
    """Return the tooltip of a cell. If the cell has several partitions, say how many of them have the shown state."""
    those = [each for each in cell.partitions if each.state is cell.state]
    first = those[0]
    name = first.partition.key or str(first.partition.feed)
    many = f"{len(those)} of {len(cell.partitions)} " if len(cell.partitions) > 1 else ""
    return f"{name}: {many}{cell.state.value}{f': {first.why}' if first.why else ''}"

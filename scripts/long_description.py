"""Build hook: the package index gets the README with links that lead to the repository."""

import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from repository_links import absolute


class LongDescription(MetadataHookInterface):
    """The field `readme` of the wheel's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field from README.md."""
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Repository"]),
        }

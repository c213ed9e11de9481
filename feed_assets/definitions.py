"""What Dagster loads: every dataset under `defs/`, with its automation."""

from pathlib import Path

import dagster as dg

from feed_assets.orchestration.location import with_automation


@dg.definitions
def defs() -> dg.Definitions:
    """The sample domains as one code location."""
    return with_automation(dg.load_from_defs_folder(path_within_project=Path(__file__).parent))

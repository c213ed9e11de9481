"""What Dagster loads: every dataset under `defs/`, with its automation."""

from pathlib import Path

import dagster as dg

from feed_assets.orchestration.location import with_automation


@dg.definitions
def defs() -> dg.Definitions:
    """The sample domains as one code location."""
    # `dg.load_from_defs_folder` imports besides every installed package of components, boto3 with dagster-aws: as long
    # as all the rest takes, in every run.
    tree = dg.ComponentTree.for_project(Path(__file__).parent)
    return with_automation(tree.build_defs(tree.defs_module_path))

"""The code location that Dagster loads: every dataset under `defs/`, with its automation."""

from importlib import import_module
from pathlib import Path

import dagster as dg

from feed_assets import with_automation
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes


@dg.definitions
def defs() -> dg.Definitions:
    """Return the sample domains as one code location."""
    # `dg.load_from_defs_folder` also imports every installed package of components, such as boto3 for dagster-aws. This
    # would double the time of loading, in every run. It also needs a pyproject.toml, which an installed package lacks.
    tree = dg.ComponentTree(defs_module=import_module("feed_assets.defs"), project_root=Path(__file__).parents[1])
    with without_dagsters_notes():
        definitions = tree.build_defs(tree.defs_module_path)
    return with_automation(definitions)

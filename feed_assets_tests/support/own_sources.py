"""Sources that a test makes and its definitions declare; a Harness would otherwise refuse them."""

import dagster as dg

from feed_assets.orchestration.declare.by_events import LineageFile, LineageTable
from feed_assets.orchestration.declare.declarations import Dataset, EventTable, declarations_of
from feed_assets.sources.declared import EventSource


def as_declared(definitions: dg.Definitions) -> dict[str, EventSource | LineageTable | LineageFile]:
    """Return every declared event source and table of pipelines, to be passed to a Harness."""
    given: dict[str, EventSource | LineageTable | LineageFile] = {}
    for each in declarations_of(definitions):
        if isinstance(each, EventTable):
            given[each.source.name] = each.source
        pipelines = each.by_events.pipelines if isinstance(each, Dataset) and each.by_events else None
        if isinstance(pipelines, LineageTable | LineageFile):
            given[str(each.feed)] = pipelines
    return given

"""OpenLineage events for runs and copies: the updates that each read and wrote, and the results of a run's checks.

An OpenLineage dataset is a feed, named by its place on the blackboard. A partition is a subset of the dataset, and an
update is a version. Column lineage is left out, because nothing shows what a function does with columns, and readers
would take a guess for a fact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    base_subset_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    tags_dataset,
    test_run,
)

from feed_assets.core.data_centers import source_of_copies
from feed_assets.core.errors import InvalidName
from feed_assets.core.events import DATA_CENTER, REPLICA_OF, UPDATE_ID, Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.schemas import column_types
from feed_assets.ledger import quality, runs, updates
from feed_assets.ledger.run_changes import Finding, RunChange
from feed_assets.ledger.updates import COMPACTED, INVALIDATED, PRUNED, PUBLISHED, UpdateRow
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import Foreign
from feed_assets.orchestration.declare.partitions import Extent, by_dimension, extent_of

set_producer("urn:feed-assets")

TABLES = "feed_assets"
"""The namespace of tables that are not on a blackboard and are known only by events or reports."""

_STATES = {
    runs.RUNNING: RunState.START,
    updates.PUBLISHED: RunState.COMPLETE,
    runs.UNCHANGED: RunState.COMPLETE,
    updates.REFUSED: RunState.FAIL,
    runs.FAILED: RunState.FAIL,
    updates.ABANDONED: RunState.ABORT,
}
_Update = tuple[Partition, str]
_WAS_VALID = {PUBLISHED, INVALIDATED, PRUNED}


@dataclass(frozen=True)
class RunEvents:
    """OpenLineage events for runs.

    `board` is the URL of the default blackboard. `jobs` has the name of Dagster's job for each Dagster run.
    """

    graph: Graph
    board: str
    jobs: Mapping[str, str]
    other_boards: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    """URLs of the blackboards of feeds that are not on the default one, by feed."""

    def event(self, each: RunChange) -> RunEvent:
        """Return the event for the start or end of a run."""
        return RunEvent(
            eventType=_STATES[each.state],
            eventTime=each.at.isoformat(),
            run=Run(str(UUID(each.run.id)), self._run_facets(each)),
            job=Job(self.board, str(each.run.output.feed), {"jobType": _JOB_TYPE}),
            inputs=self._inputs(each),
            outputs=self._outputs(each),
        )

    def copy(self, each: Recorded) -> RunEvent:
        """Return the event for a copy that was published in a data center, from its write event."""
        context = each.context
        feed = source_of_copies(each.partition.feed, context[DATA_CENTER])
        key = context["path"].removeprefix(f"{feed}/").rpartition("/")[0]  # The event of a batch has its partition.
        at = (Partition(feed, key), context[UPDATE_ID])
        source = _name_on(context[REPLICA_OF], feed)
        size = {"size": context.get("bytes"), "fileCount": context.get("files")}
        return RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=each.at.isoformat(),
            run=Run(str(uuid5(NAMESPACE_URL, f"feed-assets:{context['url']}/{context['path']}#{each.sequence}"))),
            job=Job(self.board, f"replicate/{each.partition.feed}", {"jobType": _COPY_TYPE}),
            inputs=[self._original(source, at, size)],
            outputs=[self._copied(_name_on(context["url"], feed), source, at, context, size)],
        )

    def _original(self, name: tuple[str, str], at: _Update, size: dict[str, Any]) -> InputDataset:
        facets: dict[str, Any] = {
            "subset": base_subset_dataset.InputSubsetInputDatasetFacet(self._subset([at])),
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(**size),
        }
        return InputDataset(*name, facets, facets={"version": _version(*at)})

    def _copied(
        self,
        name: tuple[str, str],
        source: tuple[str, str],
        at: _Update,
        context: Mapping[str, Any],
        size: dict[str, Any],
    ) -> OutputDataset:
        tags = {DATA_CENTER: context[DATA_CENTER], REPLICA_OF: "/".join(source)}
        fields = [tags_dataset.TagsDatasetFacetFields(key, value, "FEED_ASSETS") for key, value in tags.items()]
        about: dict[str, Any] = {"version": _version(*at), "tags": tags_dataset.TagsDatasetFacet(tags=fields)}
        facets: dict[str, Any] = {
            "subset": base_subset_dataset.OutputSubsetOutputDatasetFacet(self._subset([at])),
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=context.get("records"), **size
            ),
        }
        return OutputDataset(*name, facets, facets=about)

    def _run_facets(self, each: RunChange) -> dict[str, Any]:
        extent, parent = self._extent(each.run.output), each.run.dagster_run or ""
        own = [_test(finding) for finding in each.output_findings]
        facets = {
            "nominalTime": extent
            and extent.start
            and extent.end
            and nominal_time_run.NominalTimeRunFacet(extent.start.isoformat(), extent.end.isoformat()),
            "parent": parent in self.jobs
            and parent_run.ParentRunFacet(parent_run.Run(parent), parent_run.Job("dagster", self.jobs[parent])),
            "errorMessage": each.why and error_message_run.ErrorMessageRunFacet(each.why, "PYTHON"),
            "test": own and test_run.TestRunFacet(own),
        }
        return {name: facet for name, facet in facets.items() if facet}

    def _inputs(self, each: RunChange) -> list[InputDataset]:
        """Return one dataset per feed, with the partitions that were read as a subset."""
        by_feed: dict[Feed, list[Pin]] = {}
        for pin in each.read:
            by_feed.setdefault(pin.partition.feed, []).append(pin)
        return [self._input(feed, pins, each) for feed, pins in by_feed.items()]

    def _input(self, feed: Feed, pins: list[Pin], each: RunChange) -> InputDataset:
        checks = [_assertion(one) for one in each.input_findings if one.partition in {pin.partition for pin in pins}]
        files, size = sum(pin.files for pin in pins), sum(pin.size for pin in pins)
        facets: dict[str, Any] = {
            "subset": base_subset_dataset.InputSubsetInputDatasetFacet(
                self._subset((p.partition, p.update_id) for p in pins)
            )
        }
        if files:
            facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                size=size, fileCount=files
            )
        if checks:
            facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(checks)
        about = self._facets(feed, [(pin.partition, pin.update_id) for pin in pins], each)
        return InputDataset(*self._name(feed, on_board=bool(files)), facets, facets=about)

    def _outputs(self, each: RunChange) -> list[OutputDataset]:
        """Return the datasets that a run has written.

        If the run did not publish its own dataset, include that dataset without a version.
        """
        valid = [row for row in each.written if row.state in _WAS_VALID]
        if any(row.partition == each.run.output for row in valid):
            return [self._output(row.partition, row, each) for row in valid]
        return [*(self._output(row.partition, row, each) for row in valid), self._output(each.run.output, None, each)]

    def _output(self, partition: Partition, row: UpdateRow | None, each: RunChange) -> OutputDataset:
        at = [(partition, row.id if row else None)]
        facets: dict[str, Any] = {"subset": base_subset_dataset.OutputSubsetOutputDatasetFacet(self._subset(at))}
        if row:
            # The ledger keeps the size and files of a compacted update as they were, to weigh late data by them.
            size, files = (None, None) if row.origin == COMPACTED else (row.size, row.files)
            facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=row.records, size=size, fileCount=files
            )
        about = self._facets(partition.feed, [(partition, row.id)] if row else [], each)
        return OutputDataset(*self._name(partition.feed, on_board=True), facets, facets=about)

    def _facets(self, feed: Feed, updates: list[tuple[Partition, str]], each: RunChange) -> dict[str, Any]:
        """Return facets about a dataset: the version, if there is exactly one, and the written or declared columns."""
        facets: dict[str, Any] = {}
        if len(updates) == 1:
            facets["version"] = _version(*updates[0])
        if columns := self._columns(feed, updates, each):
            fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns]
            facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
        return facets

    def _columns(self, feed: Feed, updates: list[tuple[Partition, str]], each: RunChange) -> Sequence[tuple[str, str]]:
        node = self.graph.by_feed.get(feed)
        if node and isinstance(node.declaration, Foreign):
            return column_types(node.declaration.schema)
        return next((each.columns[update] for update in reversed(updates) if update in each.columns), ())

    def _subset(self, places: Iterable[tuple[Partition, str | None]]) -> base_subset_dataset.PartitionSubsetCondition:
        named = [base_subset_dataset.Partition(self._dimensions(at), update_id) for at, update_id in places]
        return base_subset_dataset.PartitionSubsetCondition(named)

    def _dimensions(self, partition: Partition) -> dict[str, str]:
        """Return a partition's keys by dimension.

        Return the whole path if the dimensions do not match, such as for a batch.
        """
        node = self.graph.by_feed.get(partition.feed)
        names, keys = [*by_dimension(node.partitions_def)] if node else [], partition.key.split("/")
        return dict(zip(names, keys, strict=True)) if len(names) == len(keys) else {"partition": partition.key}

    def _extent(self, partition: Partition) -> Extent | None:
        node = self.graph.by_feed.get(partition.feed)
        try:
            return extent_of(node.partitions_def, partition.key) if node else None
        except InvalidName:  # the feed's partitions have changed since
            return None

    def _name(self, feed: Feed, *, on_board: bool) -> tuple[str, str]:
        """Return namespace and name of a dataset, by OpenLineage's naming rules."""
        if not on_board:
            return TABLES, str(feed)
        return _name_on(self.other_boards.get(feed, self.board), feed)


def _name_on(board: str, feed: Feed) -> tuple[str, str]:
    namespace, prefix = namespace_and_prefix(board)
    return namespace, "/".join(part for part in (prefix, str(feed)) if part)


def _version(partition: Partition, update_id: str) -> dataset_version_dataset.DatasetVersionDatasetFacet:
    return dataset_version_dataset.DatasetVersionDatasetFacet(f"{partition.key}/{update_id}".lstrip("/"))


@cache
def namespace_and_prefix(url: str) -> tuple[str, str]:
    """Return namespace and prefix for a blackboard's datasets."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "file", unquote(parts.path).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path).strip("/")


_JOB_TYPE = job_type_job.JobTypeJobFacet("BATCH", "FEED_ASSETS", "DATASET")
_COPY_TYPE = job_type_job.JobTypeJobFacet("BATCH", "FEED_ASSETS", "COPY")


def _test(finding: Finding) -> test_run.TestExecution:
    """Return the test result of a check on the run's output."""
    is_good = finding.state == quality.PASSED
    return test_run.TestExecution(
        finding.check, "pass" if is_good else "fail", _severity(finding), description=finding.reason
    )


def _assertion(finding: Finding) -> data_quality_assertions_dataset.Assertion:
    """Return the assertion for a check on the run's input."""
    is_good = finding.state == quality.PASSED
    return data_quality_assertions_dataset.Assertion(
        finding.check, is_good, severity=_severity(finding), name=finding.check, description=finding.reason
    )


def _severity(finding: Finding) -> str:
    return "warn" if finding.state == quality.WARNED else "error"

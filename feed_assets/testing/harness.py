"""Drive definitions tick by tick, in this process, on one Dagster instance.

A Harness uses the real blackboard, ledger and Spark of the settings. `fresh_home` gives it a new blackboard and ledger.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_as_owner, open_board
from feed_assets.home import home
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.run_blocks import PARTITION, named_by
from feed_assets.orchestration.declare.declarations import declarations_of, value_of
from feed_assets.orchestration.execute.build_events import DATA_VERSION_TAG
from feed_assets.orchestration.execute.makers import make_with, read_slices_with
from feed_assets.orchestration.run_outcomes import Ended, ends_of
from feed_assets.orchestration.runner import Runner
from feed_assets.runs.maker import Maker
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import Settings, settings
from feed_assets.testing.environment import refuse_another_home, refuse_settings_of_the_shell
from feed_assets.testing.given_slices import rows_of_the_test
from feed_assets.testing.published_rows import published_rows
from feed_assets.testing.results import Ran, Reported, RequestedTick
from feed_assets.testing.selection import selected
from feed_assets.testing.sources import (
    Rows,
    Source,
    columns_of,
    dynamic_partitions,
    given_boards,
    given_rows,
    put_rows,
    refuse_what_is_not_given,
    source_named,
    with_sources,
)


def _ephemeral() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()  # pyright: ignore[reportUnknownMemberType]


@dataclass
class Harness:
    """Definitions on a Dagster instance, for a test. The end of a `with` block disposes of the instance.

    Args:
        definitions: The definitions to drive, as `with_automation` returns them.
        instance: The instance; by default an ephemeral one.
        now: The clock of ticks (timezone-aware).
        runs: The results of the runs of every tick so far.
        maker: The maker of rows in place of Spark, such as a `PlainMaker`. Every run on the instance in this process
            uses it, including `dg.materialize(…, instance=harness.instance)`.
        sources: The data to read in place of each external source: rows, the path of a file or folder, a URL, or
            another declaration. The key is the name of the event source, of a blackboard that is not the default one,
            or of the dataset that has the `LineageTable`.
        selection: The assets to drive with everything upstream of them, in Dagster's selection syntax; None for all.
            With a selection or a replaced source, your own sensors, schedules and jobs are left out.

    Raises:
        SourceNotGiven: An external source is not given, or a setting of the developer's shell would be used.
        InvalidDefinition: The selection has no dataset.
    """

    definitions: dg.Definitions
    instance: dg.DagsterInstance = field(default_factory=_ephemeral)
    now: Callable[[], datetime] = utc_now
    runs: list[Ran] = field(default_factory=list[Ran])
    maker: Maker | None = None
    sources: Mapping[str, Source] = field(default_factory=dict[str, Source])
    selection: str | dg.AssetSelection | None = None
    _at_exit: ExitStack = field(default_factory=ExitStack, init=False, repr=False)
    _home: Path = field(default_factory=home, init=False, repr=False)

    def __post_init__(self) -> None:
        __tracebackhide__ = True
        settings.cache_clear()  # the cached settings may be another test's
        refuse_settings_of_the_shell()
        if self.selection:
            self.definitions = selected(self.definitions, self.selection)
        self._take_sources()
        read_slices_with(self.instance, rows_of_the_test)
        if self.maker:
            make_with(self.instance, self.maker)

    def _take_sources(self) -> None:
        """Make the definitions read the given sources. Raise SourceNotGiven for other external sources."""
        __tracebackhide__ = True
        declared = declarations_of(self.definitions)
        refuse_what_is_not_given(self.sources, declared)
        with ExitStack() as undone_if_refused:
            undone_if_refused.enter_context(given_boards(self.sources, declared))
            if self.sources:
                self.definitions = with_sources(self.definitions, self.sources, self.board)
            for name, rows in given_rows(self.sources, declared).items():
                self._add_partitions(name, rows)
            self._at_exit = undone_if_refused.pop_all()

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: object) -> None:
        self._at_exit.close()
        self.instance.dispose()

    @property
    def _settings(self) -> Settings:
        """Return the settings of the test. Raise SourceNotGiven if they are now another test's or the shell's."""
        __tracebackhide__ = True
        refuse_another_home(self._home)
        return settings()

    @property
    def board(self) -> Blackboard:
        """Return the blackboard of the settings."""
        __tracebackhide__ = True
        return open_board(self._settings)

    def _board_of(self, feed: str) -> Blackboard:
        """Return the blackboard on which a feed is declared.

        If another team owns the blackboard, open it as that team. A board of another team is read-only for us, but the
        test must write to it.
        """
        __tracebackhide__ = True
        name = self._elsewhere.get(Feed.parse(feed))
        return open_as_owner(self._settings, name) if name else self.board

    @property
    def _elsewhere(self) -> Mapping[Feed, str]:
        return Graph(self.definitions.resolve_asset_graph()).elsewhere

    @property
    def runner(self) -> Runner:
        """Return the runner that `feed-assets run` uses. It reports its runs to this harness."""
        refuse_another_home(self._home)
        return Runner(self.definitions, self.instance, self._on_run, self.now)

    def _on_run(self, result: dg.ExecuteInProcessResult) -> None:
        self.runs += [_ran(result, each) for each in ends_of(result)]

    def drop(self, feed: str, partition: str, data: str | bytes | Mapping[str, str | bytes]) -> str:
        """Publish an update of a foreign feed as its producer would.

        Args:
            feed: The feed's name and version.
            partition: The partition's path, such as `2019-11-24/men`; '' for a feed without partitions.
            data: The content of the update's only file, or of several files by name. Text is written as UTF-8.

        Returns:
            The update's id.
        """
        parts = data if isinstance(data, Mapping) else {"part-1": data}
        files = {name: part.encode() if isinstance(part, str) else part for name, part in parts.items()}
        return write.publish(self._board_of(feed), _partition(feed, partition), files, utc_now()).id

    def send(self, source: str, rows: Rows) -> None:
        """Add rows to an event source for which the test gave the Harness rows.

        Args:
            source: The source's name.
            rows: Rows to add. Each row has values by column name.

        Raises:
            SourceNotGiven: There is no such source, or a row lacks a column.
        """
        put_rows(self.board, source, rows, columns_of(source_named(self.definitions, source)))
        self._add_partitions(source, rows)

    def _add_partitions(self, source: str, rows: Rows) -> None:
        """Add the partitions named in rows to Dagster, as a tick does with the partitions of a Kafka topic."""
        for name, keys in dynamic_partitions(self.definitions, source, rows).items():
            self.instance.add_dynamic_partitions(name, keys)

    def invalidate(self, feed: str, partition: str, update_id: str) -> None:
        """Make an update invalid, by removing its manifest.

        Args:
            feed: The feed's name and version.
            partition: The partition's path.
            update_id: The update's id.
        """
        write.invalidate(self._board_of(feed), _partition(feed, partition), update_id)

    def revalidate(self, feed: str, partition: str, update_id: str) -> None:
        """Make an invalidated update valid again, as `feed-assets feed revalidate` does.

        Args:
            feed: The feed's name and version.
            partition: The partition's path.
            update_id: The update's id.

        Raises:
            NotRevalidated: Its files differ from the published files, or it cannot be valid again for another reason.
        """
        services = Services.of(self._settings, elsewhere=self._elsewhere)
        revalidate(services, _partition(feed, partition), update_id)

    def newest(self, feed: str, partition: str = "") -> str | None:
        """Find the newest valid update on the blackboard.

        Args:
            feed: The feed's name and version.
            partition: The partition's path.

        Returns:
            The id of the partition's newest valid update; None if it has none.
        """
        update = read.latest(self._board_of(feed), _partition(feed, partition)).update
        return update.id if update else None

    def rows(self, feed: str, partition: str = "") -> list[dict[str, Any]]:
        """Read the rows that a run has published, with Spark or with a `PlainMaker`.

        Args:
            feed: The feed's name and version.
            partition: The partition's path.

        Returns:
            The rows of the partition's newest valid update, in any order.

        Raises:
            NoValidUpdate: The partition has no valid update.
        """
        board = self._board_of(feed)
        return published_rows(board, read.require(read.latest(board, _partition(feed, partition))))

    def ask(self, cursor: str | None = None, name: str = "feeds") -> RequestedTick:
        """Evaluate a sensor without starting its runs.

        Args:
            cursor: The sensor's cursor before the tick.
            name: The sensor's name.

        Returns:
            The sensor's requests and reports.
        """
        refuse_another_home(self._home)
        sensor = self.definitions.resolve_sensor_def(name)
        context = dg.build_sensor_context(self.instance, cursor, definitions=self.definitions, sensor_name=sensor.name)
        with context, dg.partition_loading_context(self.now(), self.instance):
            result: Any = sensor(context)
            requests = tuple(result.run_requests or ())
            targets = [target for each in requests for target in self._targets(each)]
        return RequestedTick(requests, tuple(result.asset_events or ()), result.cursor, targets)

    def _targets(self, request: dg.RunRequest) -> Iterator[tuple[tuple[str, ...], str | None]]:
        assets = request.asset_selection or ()
        parts = self.definitions.resolve_asset_graph().get(next(iter(assets))).partitions_def if assets else None
        single = {PARTITION: request.partition_key} if request.partition_key else {}
        for key in named_by(parts, {**request.tags, **single}):
            yield _names(assets), key

    def tick(self) -> list[Ran]:
        """Evaluate sensors and conditions once and run what they request.

        Returns:
            The runs, after their end.
        """
        return self._runs_of(self.runner.tick)

    def run_until_idle(self, max_ticks: int = 30) -> list[Ran]:
        """Tick until no tick has an effect any more.

        Args:
            max_ticks: The greatest number of ticks. After this number, NotIdle is raised.

        Returns:
            All the runs, after their end.
        """
        return self._runs_of(lambda: self.runner.run_until_idle(max_ticks))

    def _runs_of(self, drive: Callable[[], int]) -> list[Ran]:
        before = len(self.runs)
        drive()
        return self.runs[before:]

    def reported(self, asset: str, partition: str | None = None) -> list[Reported]:
        """Fetch the materializations of an asset from Dagster.

        Args:
            asset: The asset's name, such as `ads/shown`.
            partition: Dagster's key of one of its partitions; None for all.

        Returns:
            Up to 1,000 of its materializations, newest first.
        """
        record_filter = dg.AssetRecordsFilter(_key(asset), asset_partitions=[partition] if partition else None)
        records = self.instance.fetch_materializations(record_filter, limit=1000).records
        return [_reported(record) for record in records]

    def checks(self, asset: str, partition: str | None = None) -> dict[str, bool]:
        """Fetch the newest result of each check of an asset from Dagster.

        Args:
            asset: The asset's name, such as `ads/shown`.
            partition: Dagster's key of one of its partitions; None for an asset without partitions.

        Returns:
            Whether each check passed, by the name of the check.
        """
        specs = self.definitions.resolve_asset_graph().asset_check_keys
        keys = [key for key in specs if key.asset_key == _key(asset)]
        passed_by_check = {key.name: self._check(key, partition) for key in keys}
        return {name: passed for name, passed in passed_by_check.items() if passed is not None}

    def _check(self, key: dg.AssetCheckKey, partition: str | None) -> bool | None:
        of_it = PartitionKeyFilter(key=partition)
        history = self.instance.event_log_storage.get_asset_check_execution_history(key, 1000, partition_filter=of_it)
        results = {"SUCCEEDED": True, "FAILED": False}  # a check that was only planned has another status
        ended = [results[each.status.value] for each in history if each.status.value in results]
        return ended[0] if ended else None


def _partition(feed: str, key: str) -> Partition:
    return Partition(Feed.parse(feed), key)


def _key(asset: str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(asset)


def _names(keys: Any) -> tuple[str, ...]:
    return tuple(sorted(key.to_user_string() for key in keys))


def _ran(result: dg.ExecuteInProcessResult, each: Ended) -> Ran:
    return Ran(
        each.assets, each.partition, each.succeeded, error=each.error, tags=result.dagster_run.tags, id=result.run_id
    )


def _reported(record: dg.EventLogRecord) -> Reported:
    materialization = record.asset_materialization
    if materialization is None:  # cannot happen: `fetch_materializations` returns nothing else
        raise ValueError(f"{record} is not a materialization.")
    metadata = {name: value_of(value) for name, value in materialization.metadata.items()}
    tags = materialization.tags or {}
    return Reported(materialization.partition, tags.get(DATA_VERSION_TAG), metadata, record.run_id, record.storage_id)

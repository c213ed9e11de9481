"""The maker of a run's rows: Spark with the run's profile, or the maker that is set for the Dagster instance."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.core.secrets import masked
from feed_assets.core.slices import SliceReader
from feed_assets.runs.maker import Maker
from feed_assets.runs.services import spark_maker
from feed_assets.settings import Settings

if TYPE_CHECKING:
    from feed_assets.runs.target_watch import TargetWatch

SPARK_PROFILE = "feed_assets/spark_profile"
"""The tag that names a run's Spark profile, for more or fewer resources. A plan may set this tag."""

DRIVER = "feed_assets/driver"
"""The tag with the process of `feed-assets run` that drives a run."""

_MAKERS: WeakKeyDictionary[dg.DagsterInstance, Maker] = WeakKeyDictionary()
_READERS: WeakKeyDictionary[dg.DagsterInstance, SliceReader] = WeakKeyDictionary()


def make_with(instance: dg.DagsterInstance, maker: Maker) -> None:
    """Use this maker for all runs of an instance in this process."""
    _MAKERS[instance] = maker


def read_slices_with(instance: dg.DagsterInstance, reader: SliceReader) -> None:
    """Use this reader for `Slice.read` in all runs of an instance in this process."""
    _READERS[instance] = reader


def refuse_what_is_missing(instance: dg.DagsterInstance, settings: Settings) -> None:
    """Raise SparkUnavailable if the runs of an instance could not start Spark. This check does not start Spark."""
    if uses_spark(instance):
        from feed_assets.spark.session import refuse_what_cannot_start  # PySpark takes a second to load

        refuse_what_cannot_start(settings)


def uses_spark(instance: dg.DagsterInstance) -> bool:
    """Return whether the runs of an instance in this process make their rows with Spark."""
    return instance not in _MAKERS


def will_start_spark(instance: dg.DagsterInstance) -> bool:
    """Return whether the next run of an instance in this process has to start Spark."""
    from pyspark.sql import SparkSession

    return uses_spark(instance) and SparkSession.getActiveSession() is None


def cluster_of(run: dg.DagsterRun, instance: dg.DagsterInstance, settings: Settings) -> str | None:
    """Return the Spark cluster of a run: the URL of its master, or of its Connect server.

    Leave out the options of a Connect server's URL, because one of them may be a token.
    """
    if not uses_spark(instance):
        return None
    if settings.spark_remote:
        return settings.spark_remote.get_secret_value().partition("/;")[0].rstrip("/")
    conf = settings.spark_conf.get_secret_value() | settings.profile(run.tags.get(SPARK_PROFILE))
    return masked(conf.get("spark.master", settings.spark_master))


def maker_of(
    run: dg.DagsterRun, instance: dg.DagsterInstance, settings: Settings, watch: "TargetWatch | None" = None
) -> Callable[[], Maker]:
    """Return a function that creates the maker of a run's rows. Raise InvalidSetting for an unknown profile.

    If the run has a compute target, `settings` are the settings of this target, and `watch` watches it.

    The runs of one `feed-assets run` share its process, and so its Spark. None of them may start Spark with its own
    profile.
    """
    profile, maker = settings.profile(run.tags.get(SPARK_PROFILE)), _MAKERS.get(instance)
    if maker is not None:
        return lambda: maker

    def new_maker() -> Maker:
        from feed_assets.sources.slice_rows import rows_of  # PySpark takes a second to load

        reader = _READERS.get(instance, rows_of)
        may_start = DRIVER not in run.tags
        return spark_maker(settings, profile, may_start=may_start, reader=reader, watch=watch)

    return new_maker

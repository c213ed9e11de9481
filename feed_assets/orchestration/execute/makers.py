"""The maker of a run's rows: Spark, with the run's profile, or the one that its instance was given."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.core.secrets import masked
from feed_assets.core.slices import SliceReader
from feed_assets.runs.maker import Maker
from feed_assets.runs.services import spark_maker
from feed_assets.settings import Settings

SPARK_PROFILE = "feed_assets/spark_profile"
"""The tag of a run with another Spark profile, for more (or less) of Spark; a plan may set it."""

DRIVER = "feed_assets/driver"
"""The tag of a run that `feed-assets run` drives: that process."""

_MAKERS: WeakKeyDictionary[dg.DagsterInstance, Maker] = WeakKeyDictionary()
_READERS: WeakKeyDictionary[dg.DagsterInstance, SliceReader] = WeakKeyDictionary()


def make_with(instance: dg.DagsterInstance, maker: Maker) -> None:
    """Make the rows of all runs of an instance in this process with this maker."""
    _MAKERS[instance] = maker


def read_slices_with(instance: dg.DagsterInstance, reader: SliceReader) -> None:
    """Use this reader for `Slice.read` in all runs of an instance in this process."""
    _READERS[instance] = reader


def refuse_what_is_missing(instance: dg.DagsterInstance, settings: Settings) -> None:
    """Raise SparkUnavailable if the runs of an instance would find no Spark; quick, and before the first run."""
    if instance not in _MAKERS:
        from feed_assets.spark.session import refuse_what_cannot_start  # PySpark costs a second.

        refuse_what_cannot_start(settings)


def will_start_spark(instance: dg.DagsterInstance) -> bool:
    """Return whether the next run of an instance in this process is the one that Spark starts for."""
    from pyspark.sql import SparkSession

    return instance not in _MAKERS and SparkSession.getActiveSession() is None


def cluster_of(run: dg.DagsterRun, instance: dg.DagsterInstance, settings: Settings) -> str | None:
    """Return the Spark that makes a run's rows: its master, or its Connect server without options such as a token."""
    if instance in _MAKERS:
        return None
    if settings.spark_remote:
        return settings.spark_remote.get_secret_value().partition("/;")[0].rstrip("/")
    conf = settings.spark_conf.get_secret_value() | settings.profile(run.tags.get(SPARK_PROFILE))
    return masked(conf.get("spark.master", settings.spark_master))


def maker_of(run: dg.DagsterRun, instance: dg.DagsterInstance, settings: Settings) -> Callable[[], Maker]:
    """Return the maker of a run's rows. Raise InvalidSetting for a profile that does not exist.

    Runs that `feed-assets run` drives share a process and its Spark: none of them may start it in its own way.
    """
    profile, maker = settings.profile(run.tags.get(SPARK_PROFILE)), _MAKERS.get(instance)
    if maker is not None:
        return lambda: maker

    def new_maker() -> Maker:
        from feed_assets.sources.slice_rows import rows_of  # PySpark costs a second.

        reader = _READERS.get(instance, rows_of)
        return spark_maker(settings, profile, may_start=DRIVER not in run.tags, reader=reader)

    return new_maker

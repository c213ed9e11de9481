"""Additional Spark configuration for one run. A configuration that would also affect other runs is refused."""

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from threading import RLock

from pyspark.sql import SparkSession

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import InvalidSetting
from feed_assets.core.message_words import excerpt
from feed_assets.settings import Settings
from feed_assets.spark.guarded import guarded, refuse_an_ended_one
from feed_assets.spark.session import conf, session
from feed_assets.spark.sizing import SMALL, conf_for
from feed_assets.spark.spark_errors import SPARK_ERRORS

_SIZES: list[int] = []
"""For each current run on this process's session, the bytes that it reads. The session is sized for the largest run."""
_UNSIZED: dict[str, str] = {}
"""The session's values of the keys in SMALL before any run used the session."""
_SIZING = RLock()


@contextmanager
def profiled(
    settings: Settings, profile: Mapping[str, str], *, may_start: bool, size: int = 0
) -> Generator[SparkSession]:
    """Yield the process's session, sized for a run over `size` bytes, with a profile's configuration.

    Size and profile are undone at the end, also if the run fails. `may_start` allows this call to start the session, in
    a process with a single run. Some keys have an effect only at the start. Raise InvalidSetting if the profile has
    such a key and a session with another value of it is already running.
    """
    refuse_an_ended_one()
    starts = may_start and not settings.spark_remote and SparkSession.getActiveSession() is None
    own = {*settings.spark_conf.get_secret_value(), *profile}
    with _SIZING:
        # A running session gets no profile here: it would apply a part of the profile, and keep it for later runs.
        spark = session(settings, profile if starts else None, is_in_use=bool(_SIZES))
    before: Mapping[str, str] = conf(settings) if starts else spark.conf.getAll if profile else {}
    _refuse_what_came_too_late(spark, profile)
    runtime = [key for key in profile if spark.conf.isModifiable(key)]
    with guarded(spark, size), _sized(spark, size, own):
        try:
            for key in runtime:
                _set(spark, key, profile[key])
            yield spark
        except OF_ITS_OWN:
            _restore(spark, runtime, before)
            raise
        _restore(spark, runtime, before)


@contextmanager
def _sized(spark: SparkSession, size: int, own: Collection[str]) -> Generator[None]:
    """Size the session for a run until the block ends. Change nothing after an interrupt, which ends Spark."""
    with _SIZING:
        if not _SIZES:
            _UNSIZED.update({key: spark.conf.get(key) or "" for key in SMALL})
        _SIZES.append(size)
    try:
        _follow_the_largest(spark, own)
        yield
    except OF_ITS_OWN:
        _SIZES.remove(size)
        _follow_the_largest(spark, own)
        raise
    except BaseException:
        _SIZES.remove(size)
        raise
    _SIZES.remove(size)
    _follow_the_largest(spark, own)


def _follow_the_largest(spark: SparkSession, own: Collection[str]) -> None:
    """Size the session for the largest run that uses it. If no run uses the session, restore its own values."""
    with _SIZING:
        sized = {**_UNSIZED, **(conf_for(max(_SIZES), _UNSIZED, own) if _SIZES else {})}
        for key, value in sized.items():
            if key not in own and spark.conf.get(key) != value:
                spark.conf.set(key, value)


def _refuse_what_came_too_late(spark: SparkSession, profile: Mapping[str, str]) -> None:
    for key, value in profile.items():
        if not spark.conf.isModifiable(key) and spark.conf.getAll.get(key) != value:
            raise InvalidSetting(
                f"a Spark profile sets {key}, which Spark reads only when it starts, but this run's session is "
                "running: expected a key that can be changed at any time, such as spark.sql.shuffle.partitions. Set it "
                "for every run, by FEED_ASSETS_SPARK_CONF or on the Connect server; or have Dagster's daemon launch it "
                "without FEED_ASSETS_SPARK_REMOTE, in a process with its own Spark."
            )


def _set(spark: SparkSession, key: str, value: str) -> None:
    try:
        spark.conf.set(key, value)
    except SPARK_ERRORS as error:
        why = excerpt(str(error))
        raise InvalidSetting(f"a Spark profile sets {key} to a value that Spark refuses: {why}. Correct it.") from error


def _restore(spark: SparkSession, keys: Iterable[str], before: Mapping[str, str]) -> None:
    """Set Spark's settings back to the values that they had before a profile was applied.

    This is not called after an interrupt, because an interrupt ends this process's Spark.
    """
    for key in keys:
        value = before.get(key)
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)

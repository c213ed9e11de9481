"""Who makes the rows of an instance's runs, where it is not Spark."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.runs.maker import Maker

_MAKERS: WeakKeyDictionary[dg.DagsterInstance, Maker] = WeakKeyDictionary()


def make_with(instance: dg.DagsterInstance, maker: Maker) -> None:
    """Have this maker make the rows of all runs of an instance in this process."""
    _MAKERS[instance] = maker


def maker_of(instance: dg.DagsterInstance) -> Callable[[], Maker] | None:
    """The maker that an instance was given, None where Spark is to be used."""
    maker = _MAKERS.get(instance)
    return None if maker is None else lambda: maker

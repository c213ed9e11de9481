"""Probes of data centers: whether their blackboards answer. The ledger has the results, and decides who is down."""

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic

from feed_assets.core.errors import in_short
from feed_assets.core.time_limits import in_time
from feed_assets.feeds.opened import open_center
from feed_assets.ledger import places_down
from feed_assets.runs.services import Services
from feed_assets.settings import Settings

_PROBED = "_feed_assets/probe"
"""An object that no place has. A store that answers says so."""

SECONDS = 10.0
"""Seconds for all probes of a tick together. A silent store would take 30 s each, and Dagster ends a tick after 60."""

AT_ONCE = 16
"""Greatest number of places that are probed at the same time."""

_log = logging.getLogger(__name__)


def look(services: Services, settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Probe data centers with targets, unless a process has done so lately. Return why those are down that are."""
    now = services.now()
    probed = [name for name in names if settings.data_center(name).targets]
    due = [name for name in probed if places_down.begin_look(services.ledger, name, now)]
    if due:
        with ThreadPoolExecutor(min(len(due), AT_ONCE)) as pool:
            errors = pool.map(partial(_error, settings, monotonic() + SECONDS), due)
            error_by_name = dict(zip(due, errors, strict=True))
        for name, error in error_by_name.items():
            before, after = places_down.note_look(services.ledger, name, error, now)
            if (before.down is None) != (after.down is None):
                _log.warning("The data center %s is %s.", name, "down" if after.down else "up again")
    with services.ledger.read() as connection:
        states = places_down.health(connection)
    return {name: why for name in probed if name in states and (why := states[name].why)}


def _error(settings: Settings, ends: float, name: str) -> str | None:
    """Return the error of a probe. Return None if the place answers before `ends`, a time of the monotonic clock."""
    try:
        in_time(lambda: open_center(settings, name).get(_PROBED, 1), lambda: monotonic() > ends)
    except TimeoutError:
        return f"no answer in {SECONDS:g} s"
    except Exception as error:  # noqa: BLE001  Whatever a store raises, a run there would meet it, too.
        return in_short(error)
    return None

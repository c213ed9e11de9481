"""Probes of data centers: whether their blackboards answer. The ledger has the results, and decides who is down."""

import logging

from feed_assets.core.errors import in_short
from feed_assets.feeds.opened import open_center
from feed_assets.ledger import places_down
from feed_assets.runs.services import Services
from feed_assets.settings import Settings

_PROBED = "_feed_assets/probe"
"""An object that no place has. A store that answers says so."""

_log = logging.getLogger(__name__)


def look(services: Services, settings: Settings, name: str) -> str | None:
    """Probe a data center with targets, unless a process has done so lately. Return why it is down, if it is."""
    now = services.now()
    if not settings.data_center(name).targets:
        return None
    if places_down.begin_look(services.ledger, name, now):
        before, after = places_down.note_look(services.ledger, name, _error(settings, name), now)
        if (before.down is None) != (after.down is None):
            _log.warning("The data center %s is %s.", name, "down" if after.down else "up again")
    with services.ledger.read() as connection:
        state = places_down.health(connection).get(name)
    return state.why if state else None


def _error(settings: Settings, name: str) -> str | None:
    """Return the error of a probe. Return None if the place answers."""
    try:
        open_center(settings, name).get(_PROBED, 1)
    except Exception as error:  # noqa: BLE001  Whatever a store raises, a run there would meet it, too.
        return in_short(error)
    return None

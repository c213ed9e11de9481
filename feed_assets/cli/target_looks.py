"""Checks of `feed-assets doctor` for compute targets: the free resources of each, or since when it gives no answer."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from feed_assets.core.errors import InvalidSetting, LedgerUnavailable, TargetLost
from feed_assets.core.targets import Yarn

if TYPE_CHECKING:
    from feed_assets.core.target_room import Room
    from feed_assets.settings import Settings

_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables of which Spark needs one to use YARN."""


@dataclass(frozen=True)
class TargetLooks:
    """The checks for compute targets. Each check returns what it found as text, or raises an error."""

    settings: "Settings"

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Return one check for each compute target of the settings."""
        return tuple((f"target {name}", partial(self._look, name)) for name in self.settings.targets.get_secret_value())

    def _look(self, name: str) -> str:
        target, room = self.settings.target(name), self._room(name)
        kind = target.kind
        if room.closed:
            raise TargetLost(
                f"{kind}, {room.closed}: expected an answer. Check in FEED_ASSETS_TARGETS where it is, its rights, and "
                "whether it runs. Until it answers, its runs go to other targets or wait."
            )
        if isinstance(target, Yarn) and not any(each in os.environ for each in _HADOOP):
            raise InvalidSetting(
                "Spark finds no ResourceManager: expected HADOOP_CONF_DIR or YARN_CONF_DIR, a folder with Hadoop's "
                "core-site.xml and yarn-site.xml. Set it for each process that runs or launches runs."
            )
        return f"{kind}, {room.in_words}, {room.queued} applications wait there"

    def _room(self, name: str) -> "Room":
        """Return the target's free resources as runs see them, or since when the target gives no answer.

        Without a ledger, no resources of runs are known, so only the target's own answer counts.
        """
        from feed_assets.ledger import allocations
        from feed_assets.ledger.database import found_ledger
        from feed_assets.runs.services import utc_now
        from feed_assets.targets import looks, probes

        targets, now = {name: self.settings.target(name)}, utc_now()
        try:
            ledger = found_ledger(self.settings.ledger)
        except LedgerUnavailable:
            return probes.rooms(targets, {name: looks.look(now, targets[name])}, {}, {})[name]
        answers = {name: probes.ask_again(ledger, name, targets[name], now)}
        with ledger.read() as connection:
            return probes.rooms(targets, answers, allocations.grants(connection), {})[name]

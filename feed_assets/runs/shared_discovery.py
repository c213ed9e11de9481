"""Discovery that code locations on one ledger share, so that a foreign feed is listed once for all of them."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from feed_assets.core.feeds import Feed
from feed_assets.ledger import discoveries
from feed_assets.runs.services import Services


@dataclass(frozen=True)
class SharedDiscovery:
    """One discovery of a code location, and the feeds that others have discovered lately.

    Another endpoint, another host's disk, and batches in place of partitions have other addresses: such feeds are not
    shared. If another code location cannot read a store, it records no discovery.
    """

    services: Services
    location: str
    appendable: Set[Feed]
    began: datetime
    by_others: Set[str]
    failed_before: Set[str] = frozenset()
    """The addresses of the feeds that this code location could not read last. It tries them, so their alerts stay."""
    discovered: list[str] = field(default_factory=list[str])
    """The addresses of the feeds that this discovery has visited completely."""

    @classmethod
    def begin(cls, services: Services, location: str, appendable: Set[Feed]) -> Self:
        """Return a discovery that begins now. Without a name of the code location it shares nothing."""
        began, by_others, failed = services.now(), set[str](), set[str]()
        if location:
            with services.ledger.read() as connection:
                by_others = discoveries.fresh_by_others(connection, location, began)
                failed = discoveries.failed_before(connection, location)
        return cls(services, location, appendable, began, by_others=by_others - failed, failed_before=failed)

    def is_fresh(self, feed: Feed) -> bool:
        """Return whether the ledger has what another code location has just found of a feed."""
        return bool(self.by_others) and self._address(feed) in self.by_others

    def add(self, feed: Feed) -> None:
        """Note that this discovery has visited a feed completely."""
        if self.location and (address := self._address(feed)):
            self.discovered.append(address)

    def record(self, failed: Iterable[Feed]) -> None:
        """Let other code locations use this discovery. `failed` are the feeds that could not be read."""
        addresses = {address for each in failed if self.location and (address := self._address(each))}
        if self.discovered or addresses or self.failed_before:
            discoveries.put(self.services.ledger, self.location, self.discovered, self.began, addresses)

    def _address(self, feed: Feed) -> str:
        store = self.services.board_of(feed).address
        kind = "batches" if feed in self.appendable else "partitions"
        return f"{kind} of {feed} at {store}" if store else ""

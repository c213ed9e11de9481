"""What a dataset says of being built by events: which pipelines, what it waits for, how a run processes its slices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import TypeAdapter

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.plans import Rule
from feed_assets.core.propagation import Consumer
from feed_assets.orchestration.metadata import BY_EVENTS, value_of

Pipelines = Mapping[str, frozenset[Feed]]


@dataclass(frozen=True)
class LineageTable:
    """A table that says which tables each pipeline writes; `url` as SQLAlchemy has it, or `env:NAME` of a variable."""

    url: str
    table: str
    pipeline: str = "pipeline"
    table_name: str = "table_name"


@dataclass(frozen=True)
class ByEvents:
    """A dataset that is built when an update has reached every table that it reads, as its events say.

    `pipelines` are the tables that each pipeline writes; by default they follow from the asset graph: inputs that are
    made of the same inputs. It waits for `any` or `all` of them. An incomplete propagation is skipped until it is
    complete, or blocks what comes after. `plans`: the first rule that holds says how a run processes its slices. A
    propagation that is incomplete for longer than `stuck_after` raises an alert.
    """

    wait_for: Literal["any", "all"] = "any"
    on_incomplete: Literal["skip", "block"] = "skip"
    merge: bool = True
    pipelines: Mapping[str, Sequence[str]] | LineageTable | None = None
    plans: Sequence[Rule] = ()
    stuck_after: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.stuck_after <= timedelta():
            raise InvalidDefinition(f"stuck_after is {self.stuck_after}: expected more than nothing.")
        if isinstance(self.pipelines, Mapping):
            for tables in self.pipelines.values():
                _ = [Feed.parse(table) for table in tables]

    def consumer(self, feed: Feed, tables: frozenset[Feed], pipelines: Pipelines) -> Consumer:
        """The consumer that this makes of a dataset with these inputs; `pipelines` as the graph or a table has them."""
        if isinstance(self.pipelines, Mapping):
            pipelines = {name: frozenset(map(Feed.parse, some)) for name, some in self.pipelines.items()}
        return Consumer(feed, tables, pipelines, self.wait_for, self.on_incomplete, self.merge)


_ADAPTER = TypeAdapter(ByEvents)


def by_events_metadata(by_events: ByEvents | None) -> dict[str, Any]:
    """As metadata of an asset."""
    return {BY_EVENTS: _ADAPTER.dump_python(by_events, mode="json")} if by_events else {}


def by_events_of(metadata: Mapping[str, Any]) -> ByEvents | None:
    """What metadata hold; None of a dataset that is not built by events."""
    found = value_of(metadata.get(BY_EVENTS))
    return _ADAPTER.validate_python(found) if found is not None else None

"""Targets of `on_change`: a webhook, or a materialized view or statement in a warehouse.

Source: "Data Dependency Driven Orchestration": a data trigger "can then invoke the cache refresh/invalidation, or kick
off the materialized view refresh, or recalculate the pre-aggregated metrics".
"""

import re
from dataclasses import dataclass
from typing import Annotated

from feed_assets.core.argument_types import Name, rule
from feed_assets.core.completeness import WindowState
from feed_assets.core.feeds import Feed
from feed_assets.core.typed import typed

PUBLISHED, INVALIDATED = "published", "invalidated"
"""Transitions of updates. The other transitions are those of windows, named by their new state."""

TRANSITIONS = (PUBLISHED, INVALIDATED, *WindowState)
"""All transitions that a subscription can be notified of."""

DEFAULT_TRANSITIONS = (
    PUBLISHED,
    INVALIDATED,
    WindowState.COMPLETE.value,
    WindowState.COMPLETE_WITH_ISSUE.value,
    WindowState.INVALID.value,
    WindowState.BACKFILLED.value,
)
"""The transitions of a subscription that names none."""

Transition = Annotated[str, rule(TRANSITIONS.__contains__, f"one of {', '.join(TRANSITIONS)}")]

_Variable = Annotated[str, rule(re.compile(r"env:\w+").fullmatch, "env:NAME, and the value in the variable NAME")]
_View = Annotated[
    str,
    rule(
        re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*").fullmatch, "schema.view, such as reports.by_day"
    ),
]
_Sql = Annotated[str, rule(str.strip, "a statement in SQL")]
_Seconds = Annotated[float, rule(lambda seconds: 1 <= seconds <= 86_400, "1 to 86,400 seconds")]
WarehouseName = Annotated[str, rule(re.compile("[A-Za-z0-9_-]+").fullmatch, "letters, digits, '_' and '-'")]
"""The name of a warehouse in `FEED_ASSETS_WAREHOUSES`."""


@typed
@dataclass(frozen=True)
class Webhook:
    """A URL to which each change is posted as a CloudEvent in JSON, signed like an alert.

    Args:
        url: The variable with the URL: `env:NAME`. The URL begins with `https://` or `http://`.
        secret: The variable with the key that signs each request: `env:NAME`.

    Raises:
        InvalidDefinition: A value has a wrong type, or names no variable.
    """

    url: _Variable
    secret: _Variable

    kind = "webhook"
    one_lane = False
    seconds = 5  # for a request, from the look-up of the host's name to the end of the answer


@typed
@dataclass(frozen=True)
class RefreshView:
    """A materialized view in PostgreSQL or Redshift. One refresh serves all changes that were waiting.

    PostgreSQL refreshes it concurrently, so that readers are not blocked, if the view has a unique index over plain
    columns.

    Args:
        view: The view's name with its schema, such as `reports.by_day`.
        warehouse: The warehouse's name in `FEED_ASSETS_WAREHOUSES`.
        seconds: The longest time of a refresh.

    Raises:
        InvalidDefinition: A value has a wrong type or is out of bounds.
    """

    view: _View
    warehouse: WarehouseName
    seconds: _Seconds = 900

    kind = "view"
    one_lane = True


@typed
@dataclass(frozen=True)
class Statement:
    """A statement in PostgreSQL or Redshift, run once for each change, with bound parameters.

    The parameters are `:dataset`, `:transition`, `:partition`, the `:start` and `:end` of its window (UTC, or NULL),
    the window's `:grain` (NULL for an update), and one for each dimension and level of sub-partitions, such as
    `:region`. For a window that covers all values of a level, the level's parameter is NULL. The statement runs in its
    own transaction. It must be idempotent, because it runs again after a kill.

    Args:
        sql: The statement, such as `CALL reports.recompute(:start, :end, :region)`. Names outside of `pg_catalog` need
            their schema.
        warehouse: The warehouse's name in `FEED_ASSETS_WAREHOUSES`.
        seconds: The longest time of the statement.

    Raises:
        InvalidDefinition: A value has a wrong type or is out of bounds.
    """

    sql: _Sql
    warehouse: WarehouseName
    seconds: _Seconds = 900

    kind = "statement"
    one_lane = False


PARAMETERS = ("dataset", "transition", "partition", "start", "end", "grain")
"""The parameters of every statement."""

Target = Webhook | RefreshView | Statement
SubscriptionName = Name
"""The name of a subscription, which is unique in an installation."""


@dataclass(frozen=True)
class Subscription:
    """A declared subscription: the target that is notified of these transitions of a dataset.

    `grain` and `level` restrict the windows: to one grain, and to the sub-partitions of one level ('': the whole
    dataset). None means all.
    """

    name: str
    dataset: Feed
    transitions: tuple[str, ...]
    target: Target
    grain: str | None = None
    level: str | None = None

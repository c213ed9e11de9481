"""Types of arguments with rules for their values, such as a share from 0 to 1. `@typed` checks them."""

import re
from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator

from feed_assets.core.secrets import has_secret

_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_URL = re.compile(r"env:\w+|(?!postgres:)[a-z][a-z0-9_+]*://.*", re.DOTALL)  # SQLAlchemy has no `postgres://`

_OPEN = re.compile(r"env:.*|[^:]*://([\w.~%+-]*@)?[^@/?#\s]*([/?#].*)?", re.DOTALL)
"""A URL with at most a user name, but no password, before its host."""


def rule(holds: Callable[[Any], object], expected: str) -> AfterValidator:
    """Return a rule for `Annotated`: a condition, and the text that a message shows as the expected value."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def as_share(value: float | str) -> float:
    """Return a share as a number: 0.05 for `0.05` and for `5%`. Raise ValueError for any other value."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match else value
    if isinstance(share, str) or not 0 <= share <= 1:
        raise ValueError("a share from 0 to 1, such as 0.05 or '5%'")
    return share


def _check_share(value: float | str) -> float | str:
    as_share(value)
    return value


Share = Annotated[float | str, AfterValidator(_check_share)]
"""A share, as a number or in per cent. `as_share` returns it as a number."""

Age = Annotated[timedelta, rule(lambda age: age >= timedelta(), "a time of 0 or more")]
"""A duration that is not negative, such as an age or a delay."""

NotNegative = Annotated[int, rule(lambda number: number >= 0, "0 or more")]
Positive = Annotated[int, rule(lambda number: number >= 1, "1 or more")]

BASELINE = re.compile("([1-9][0-9]{0,2}) (same hours|same weekdays|partitions)")
BaselineText = Annotated[
    str, rule(BASELINE.fullmatch, "up to 999 'same hours', 'same weekdays' or 'partitions', such as '28 same hours'")
]
"""The earlier partitions that a partition is compared with."""

Deviations = Annotated[
    float, rule(lambda number: isfinite(number) and number > 0, "a number above 0, and not infinity")
]

Price = Annotated[float, rule(lambda number: isfinite(number) and number >= 0, "a number of 0 or more")]
"""A value or a cost, in the user's own unit."""

Aggregate = Annotated[str, rule(str.strip, "an aggregate in SQL, such as count(1)")]

Name = Annotated[str, rule(re.compile("[A-Za-z0-9_]+").fullmatch, "letters, digits and '_'")]
"""A name that Dagster accepts."""

Url = Annotated[
    str,
    rule(_URL.fullmatch, "a SQLAlchemy URL, such as postgresql+psycopg://…, or env:NAME"),
    rule(
        lambda url: _OPEN.fullmatch(url) and not has_secret(url),
        "no password in it, because the web UI shows declarations: env:NAME, and the URL in the variable NAME",
    ),
]
"""The URL of a database, or the variable that holds it."""

Prefix = Annotated[
    str, rule(lambda text: all(part.strip(".") for part in text.split("/")), "a folder such as events/shop")
]
"""A folder of the blackboard."""

BOARD_NAME = "[A-Za-z0-9_-]+"
BoardName = Annotated[str, rule(re.compile(BOARD_NAME).fullmatch, "letters, digits, '_' and '-'")]
"""The name of another team's blackboard. The settings define it."""

Owner = Annotated[
    str,
    rule(re.compile(r"team:.+|[\w.%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII).fullmatch, "team:NAME or an e-mail"),
]
"""The owner of an asset, as Dagster accepts it."""

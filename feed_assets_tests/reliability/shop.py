"""The first code location: orders of another team, and their clean form behind a blocking check."""

import os
from functools import cache
from typing import Any

import dagster as dg

from feed_assets import Webhook, checks, feed_asset, foreign_feed, on_change, with_automation
from feed_assets.runs.maker import Task
from feed_assets.testing import Given
from feed_assets_tests.reliability.making import Rows, made_of, makes

CODE = "WHOLE_CODE"
"""The environment variable with the version of the code."""
CODES = ("1", "2", "3")

HOURS = dg.HourlyPartitionsDefinition("2026-03-02-00:00")
ORDERS, CLEAN = "shop/orders/v1.0", "shop/clean/v1.0"
MOST = 1000
"""The greatest amount that the check of `clean` allows."""


def code() -> str:
    """Return the version of the code that is deployed now."""
    return os.environ.get(CODE, CODES[0])


@cache
def definitions(code: str) -> dg.Definitions:
    """Return the project with this version of the code."""
    orders = foreign_feed(ORDERS, partitions_def=HOURS, schema="id string, amount int", format="csv")

    @feed_asset(
        CLEAN,
        partitions_def=HOURS,
        inputs={"orders": orders},
        checks=[checks.within("amount", 0, MOST)],
        code_version=code,
    )
    def clean(orders):
        """Return the orders."""

    hook = Webhook("env:WHOLE_HOOK", "env:WHOLE_SECRET")
    return with_automation(dg.Definitions(assets=[orders, clean, on_change(clean, name="cache", to=hook)]))


@makes(CLEAN)
def _clean(task: Task, read: dict[str, Rows]) -> Given:
    rows: list[dict[str, Any]] = [{"id": row["id"], "amount": int(row["amount"])} for row in read["orders"]]
    bad = sum(not 0 <= row["amount"] <= MOST for row in rows)
    return Given([row | made_of(task) for row in rows], failed={"within_amount": bad} if bad else {})

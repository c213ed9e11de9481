"""Increments of another team's table: each customer's newest visit, with new days, a delete, late visits, a reload."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from feed_assets import Operation
from feed_assets.cli.demo.crm import Crm, Visit, visits
from feed_assets.core.errors import DemoFailed
from feed_assets.core.events import decode
from feed_assets.core.feeds import Feed
from feed_assets.defs.retail.customers import VARIABLE
from feed_assets.ledger import increment_base, updates

if TYPE_CHECKING:
    from pyspark.sql import Row

    from feed_assets.cli.demo.stage import Stage
    from feed_assets.core.feeds import Update

CUSTOMERS = Feed.parse("retail/customers/v1.0")
THURSDAY, FRIDAY = datetime(2010, 12, 2, tzinfo=UTC), datetime(2010, 12, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)
OFFLINE = FRIDAY - 9 * HOUR
"""Thursday at three in the afternoon, when a till lost its network."""


def play(stage: "Stage") -> None:
    """Play the story: new rows are added to what was published last, until the other team overwrites its table."""
    crm = Crm(os.environ[VARIABLE])
    on_time, late = _halves("2010-12-02")
    stage.step(f"another team, the CRM, has Wednesday's visits in {stage.folder / 'crm.db'}: all of them are loaded")
    crm.write(visits("2010-12-01"), THURSDAY)
    _check(stage, crm)
    stage.step("Thursday's visits: an increment; a till was offline from three o'clock on")
    crm.write(on_time, FRIDAY)
    _check(stage, crm)
    stage.step(f"the customer {on_time[0].customer} asks to be forgotten: one row is removed")
    crm.forget(on_time[0].customer, FRIDAY + 9 * HOUR)
    _check(stage, crm)
    stage.step("the till's visits arrive late: their slice is read again, and newer visits stay")
    crm.write(late, FRIDAY - HOUR, at=FRIDAY + 10 * HOUR)
    _check(stage, crm)
    stage.step("the CRM had left out a tax of 20 %, and overwrites its table: everything is loaded anew")
    taxed = [replace(each, gbp=each.gbp * 6 / 5) for each in crm.visits()]
    crm.write(taxed, FRIDAY + 12 * HOUR, Operation.OVERWRITE)
    _check(stage, crm)
    stage.say("After each step the customers equal those computed from all of the CRM's rows.\n")


def _halves(day: str) -> tuple[list[Visit], list[Visit]]:
    """Return the visits of a day before the till went offline, and the visits after that."""
    visited = visits(day)
    since = [each for each in visited if each.visited_at >= OFFLINE]
    return [each for each in visited if each.visited_at < OFFLINE], since


def _check(stage: "Stage", crm: Crm) -> None:
    """Run what is due, print what was read, and compare the rows with those that Python computes from the CRM."""
    stage.run(1)
    update, frame = stage.published(CUSTOMERS, "")
    rows = {_visit(row) for row in frame.collect()}
    stage.say(f"  {_read(stage, update)}; {len(rows)} customers")
    if rows != (expected := fold(crm)):
        raise DemoFailed(f"{CUSTOMERS} differs from the CRM's own rows, for example by {next(iter(rows ^ expected))}.")


def fold(crm: Crm) -> set[Visit]:
    """Return the newest visit of each customer. Skip customers who were forgotten after this visit."""
    newest, gone = {each.customer: each for each in crm.visits()}, crm.forgotten()
    return {each for customer, each in newest.items() if customer not in gone or each.visited_at > gone[customer]}


def _visit(row: "Row") -> Visit:
    return Visit(row["customer"], row["visited_at"].astimezone(UTC), row["country"], row["gbp"])


def _read(stage: "Stage", update: "Update") -> str:
    """Describe the run that made an update: which slice it read, and whether it was incremental."""
    with stage.services.ledger.read() as connection:
        (pin,) = updates.consumed_by(connection, update.partition, update.id)
        base = increment_base.added_to(connection, [(update.partition, update.id)]).get(update.partition)
    after = f"after {decode(pin.start):%Y-%m-%d %H:%M} " if pin.start else ""
    how = f"incremental, added to {base.update_id}" if base else "reload"
    return f"visits {after}up to {decode(pin.update_id):%Y-%m-%d %H:%M}, {how}"

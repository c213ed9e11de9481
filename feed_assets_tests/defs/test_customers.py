"""The newest visit of each customer: increments of the CRM's table against a fold of its rows in plain Python."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa

from feed_assets import Operation
from feed_assets.cli.demo.crm import Crm, Visit, visits
from feed_assets.core.events import Recorded, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.definitions import defs
from feed_assets.defs.retail import sample
from feed_assets.defs.retail.customers import VARIABLE
from feed_assets.feeds import read
from feed_assets.ledger import event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.session import session
from feed_assets.testing import Harness
from feed_assets_tests.support import retail_figures
from feed_assets_tests.support.each_case import each_case

CUSTOMERS, KEY = "retail/customers/v1.0", "retail/customers"
THURSDAY, FRIDAY = datetime(2010, 12, 2, tzinfo=UTC), datetime(2010, 12, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)


def keys(definitions):
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


def test_a_home_without_a_crm_defines_no_crm_assets(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    without = defs()
    assert not keys(without) & {KEY, "crm/visits"}
    assert "events_crm" not in {sensor.name for sensor in without.sensors}


def test_a_home_with_the_crms_url_loads_though_its_database_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path / 'nothing' / 'crm.db'}")
    with_it = defs()
    assert keys(with_it) >= {KEY, "crm/visits"}
    assert "events_crm" in {sensor.name for sensor in with_it.sensors}


@each_case("day", sample.invoice_days())
def test_the_visits_of_a_day_come_to_what_its_buyers_paid(day):
    paid: dict[str, Decimal] = {}
    for visit in visits(day):
        paid[visit.customer] = paid.get(visit.customer, Decimal()) + visit.gbp
    assert paid == {buyer: gbp for buyer, (_, gbp) in retail_figures.buyers(sample.invoices_csv(day)).items()}


@dataclass(frozen=True)
class Step:
    """One step of the story: plans of its runs, published rows, expected rows (a fold of the CRM), and the event."""

    plans: list[str]
    rows: list[Visit]
    fold: list[Visit]
    told: Recorded


class World:
    """The CRM, and the domain that reads it."""

    def __init__(self, url, harness):
        self.crm, self.harness, self.steps = Crm(url), harness, {}

    def step(self, name):
        """Run all that is due."""
        runs = self.harness.run_until_idle()
        assert [run.error for run in runs if not run.succeeded] == []
        plans = [run.tags["feed_assets/plan"] for run in runs]
        with open_ledger(settings().ledger).read() as connection:
            told = event_store.newest(connection, 1, Feed.parse(CUSTOMERS))[0]
        self.steps[name] = Step(plans, self.rows(), fold(self.crm), told)

    def rows(self):
        """Return the rows of the newest update, by customer."""
        update = read.latest(self.harness.board, Partition(Feed.parse(CUSTOMERS), "")).update
        rows = read_own(session(settings()), self.harness.board, update).collect()
        return ordered(Visit(**row.asDict() | {"visited_at": row["visited_at"].astimezone(UTC)}) for row in rows)


def fold(crm):
    """Return each customer's newest visit, unless the customer was deleted afterwards."""
    found = {visit.customer: visit for visit in crm.visits()}
    gone = crm.forgotten()
    return ordered(each for who, each in found.items() if who not in gone or each.visited_at > gone[who])


def ordered(some):
    return sorted(some, key=lambda visit: visit.customer)


ON_TIME = [visit for visit in visits("2010-12-02") if visit.visited_at < THURSDAY + 15 * HOUR]
LATE = [visit for visit in visits("2010-12-02") if visit not in ON_TIME]
SOMEBODY = ON_TIME[0].customer
OLD = Visit(ON_TIME[-1].customer, LATE[0].visited_at - 15 * HOUR, "France", Decimal(1))
"""Late visit that is read after a newer visit of the same customer."""


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("customers")
        url = sa.URL.create("sqlite", database=str(home / "crm.db")).render_as_string()
        patch.setenv("DAGSTER_HOME", str(home))
        patch.setenv(VARIABLE, url)
        settings.cache_clear()
        with Harness(defs()) as harness:
            yield played(World(url, harness))
    settings.cache_clear()


def played(world):
    crm = world.crm
    crm.write(visits("2010-12-01"), THURSDAY)
    world.step("first")
    crm.write(ON_TIME, FRIDAY)
    world.step("day")
    crm.forget(SOMEBODY, FRIDAY + 9 * HOUR)
    world.step("delete")
    crm.write([OLD, *LATE], FRIDAY - HOUR, at=FRIDAY + 10 * HOUR)
    world.step("late")
    crm.write([SOMEBODYS_NEXT], FRIDAY + 11 * HOUR)
    world.step("back")
    crm.write([replace(each, gbp=each.gbp + 1) for each in crm.visits()], FRIDAY + 12 * HOUR, Operation.OVERWRITE)
    world.step("overwrite")
    return world


SOMEBODYS_NEXT = Visit(SOMEBODY, FRIDAY + 10 * HOUR, "France", Decimal("2.5"))
STEPS = {
    "first": ["reload"],
    "day": ["incremental"],
    "delete": ["incremental"],
    "late": ["incremental"],
    "back": ["incremental"],
    "overwrite": ["reload"],
}


@pytest.mark.parametrize("name", STEPS)
def test_after_each_step_the_table_is_a_fold_of_the_crms_rows(world, name):
    assert world.steps[name].plans == STEPS[name]
    assert world.steps[name].rows == world.steps[name].fold


def test_a_deleted_customer_has_no_row_until_the_next_visit(world):
    of_somebody = {name: [row for row in each.rows if row.customer == SOMEBODY] for name, each in world.steps.items()}
    assert of_somebody["day"]
    assert of_somebody["delete"] == of_somebody["late"] == []
    assert of_somebody["back"] == [SOMEBODYS_NEXT]


def test_a_late_visit_replaces_no_newer_one_and_adds_who_was_not_known(world):
    before, after = ({row.customer: row for row in world.steps[name].rows} for name in ("delete", "late"))
    assert after[OLD.customer] == before[OLD.customer] != OLD
    assert after.keys() - before.keys() == {visit.customer for visit in LATE} - before.keys() != set()


def test_our_own_events_say_which_slice_was_added_and_what_was_loaded_anew(world):
    told = {name: (each.told.operation, each.told.context.get("slices")) for name, each in world.steps.items()}
    assert told["first"] == told["overwrite"] == (Operation.OVERWRITE, None)
    assert told["day"] == (Operation.UPSERT, {"crm/visits": [encode(THURSDAY), encode(FRIDAY)]})
    assert told["late"] == (Operation.UPSERT, {"crm/visits": [encode(THURSDAY), encode(FRIDAY - HOUR)]})

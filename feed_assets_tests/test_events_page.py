"""The dataset of docs/events.md: a shop's rows, read by slice, become a published report."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import with_automation
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Harness

TEXT = (Path(__file__).parents[1] / "docs" / "events.md").read_text(encoding="utf-8")
(BODY,) = [
    text for text in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL) if "def report" in text
]
NOON, HOUR = datetime(2024, 1, 1, 12, tzinfo=UTC), timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("home", "spark")


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """Provide the shop's database, at the address that the page names, with a table of orders."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'shop.db'}" if is_file else request.getfixturevalue("postgresql").database()
    monkeypatch.setenv("SHOP_EVENTS_URL", str(url))
    engine = sa.create_engine(url)
    columns = sa.Column("item", sa.Text), sa.Column("amount", sa.Integer), sa.Column("updated_at", sa.DateTime)
    sa.Table("orders", sa.MetaData(), *columns).create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def page(shop: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the page's code as a module."""
    module = ModuleType("events_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    events_of(shop).publish([])
    exec(BODY, module.__dict__)  # noqa: S102
    return module


def order(shop: sa.Engine, item: str, amount: int, at: datetime) -> None:
    with shop.begin() as connection:
        values = {"item": item, "amount": amount, "at": str(at.replace(tzinfo=None))}
        connection.execute(sa.text("INSERT INTO orders VALUES (:item, :amount, :at)"), values)


def announce(shop: sa.Engine, marker: datetime, correlation: str, prices: Operation = Operation.UPSERT) -> None:
    tables = {"ORDERS": Operation.UPSERT, "PRICES": prices}
    rows = [(0, WriteEvent(table, marker, marker, correlation, operation)) for table, operation in tables.items()]
    events_of(shop).publish(rows)


def events_of(shop: sa.Engine) -> SqlSink:
    """Return the shop's table of events."""
    return SqlSink(shop.url.render_as_string(hide_password=False), "events")


def test_the_report_of_the_page_reads_each_slice_once_and_all_of_it_to_reload(
    shop: sa.Engine, page: ModuleType
) -> None:
    definitions = with_automation(dg.Definitions(assets=[page.orders, page.prices, page.report]))
    with Harness(definitions) as world:
        order(shop, "ice", 3, NOON)
        order(shop, "ice", 4, NOON + HOUR)
        announce(shop, NOON, "X")
        first = world.run_until_idle()
        order(shop, "tea", 5, NOON + HOUR)
        announce(shop, NOON + HOUR, "Y")
        second = world.run_until_idle()
        announce(shop, NOON + 2 * HOUR, "Z", prices=Operation.OVERWRITE)
        third = world.run_until_idle()
        runs = [*first, *second, *third]
        plans = [run.tags["feed_assets/plan"] for run in runs]
        assert [run.error for run in runs] == [None] * 3
        previews = [reported.metadata["preview"] for reported in world.reported("sales/report") if reported.run]
    third, second, first = (sorted(preview.splitlines()[2:]) for preview in previews)
    assert (first, second, third) == (["| ice | 3 |"], ["| ice | 4 |", "| tea | 5 |"], ["| ice | 7 |", "| tea | 5 |"])
    assert plans == ["incremental", "incremental", "reload"]

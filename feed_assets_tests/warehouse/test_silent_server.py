"""A server that takes logins and answers no query fails alone, and in time: no tick waits for it."""

import json

import pytest

from feed_assets.core.delivery_targets import Statement
from feed_assets.core.errors import DeliveryTargetDown, SourceUnavailable
from feed_assets.deliveries import sql_delivery
from feed_assets.feeds import answers
from feed_assets.settings import settings
from feed_assets.sources.databases import reading
from feed_assets.sources.warehouse_events import states, table_loads
from feed_assets.warehouse import postgresql
from feed_assets_tests.support.slow_servers import silent_postgresql


@pytest.fixture
def silent_url():
    with silent_postgresql() as port:
        yield f"postgresql://a:b@127.0.0.1:{port}/c"


@pytest.fixture
def silent(home, silent_url, monkeypatch) -> str:
    """Return the name of a warehouse on the server."""
    monkeypatch.setenv("FEED_ASSETS_WAREHOUSES", json.dumps({"silent": {"url": silent_url}}))
    settings.cache_clear()
    return "silent"


def test_a_look_at_tables_ends_so_that_alerts_of_others_are_sent(silent, monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.3)
    for problem in ("no answer within 0.3 s$", "no answer within 0.3 s, and it will be asked again in a minute"):
        with pytest.raises(SourceUnavailable, match=f"the warehouse silent: {problem}"):
            states(silent)


def test_loads_of_tables_and_statements_of_subscriptions_end(silent, monkeypatch):
    monkeypatch.setattr(postgresql, "FIRST_SECONDS", 0.1)
    with pytest.raises(SourceUnavailable, match=r"server closed the connection|connection is lost"):
        table_loads(silent).read(None, 10, 1)
    data = {"dataset": "a/b/v1.0", "transition": "published", "partition": "", "dimensions": {}, "window": None}
    with pytest.raises(DeliveryTargetDown):
        sql_delivery.run(Statement("SELECT 1", silent), {"data": data})


def test_a_read_of_an_event_table_ends(silent_url, monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.3)
    with (
        pytest.raises(SourceUnavailable, match=r"its first answer: no answer within 0\.3 s"),
        reading(silent_url.replace("postgresql:", "postgresql+psycopg:")),
    ):
        pass

"""`feed-assets feed uses`, as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger.database import open_ledger, schema_of
from feed_assets.settings import settings
from feed_assets_tests.support.ledger_records import claim, publish, seen, sync

FIRST, SECOND = "20191125.010000", "20191125.020000"
RAW, SHOWN, REJECTS, DAILY = (
    Partition(Feed.parse(f"ads/{name}/v1.0"), "2019-11-24") for name in ("raw", "shown", "shown_rejects", "daily")
)


@pytest.fixture
def ledger(home, empty_ledger):
    """Record a raw update, its cleaned rows, and a report of those; then a new raw update."""
    (home / "ledger.db").write_bytes(empty_ledger.read_bytes())
    made = open_ledger(settings().ledger)
    sync(made, RAW, seen(RAW, FIRST))
    claim(made, "a", (REJECTS, FIRST), (SHOWN, FIRST), pins=(Pin(RAW, FIRST, "x"),))
    for each in (REJECTS, SHOWN):
        publish(made, "a", each, FIRST)
    claim(made, "b", (DAILY, SECOND), pins=(Pin(SHOWN, FIRST, "x"),))
    return made


def uses(*arguments, **options):
    return CliRunner().invoke(app, ["feed", "uses", *arguments], **options)


def test_uses_prints_the_downstream_updates_in_columns(ledger):
    said = uses("ads/raw/v1.0", "2019-11-24", FIRST).stdout.splitlines()
    assert said == [
        "feed                    partition   id               state      is_newest  depth  how         via",
        "ads/shown/v1.0          2019-11-24  20191125.010000  published  yes        1      read        "
        "ads/raw/v1.0 2019-11-24 20191125.010000",
        "ads/shown_rejects/v1.0  2019-11-24  20191125.010000  published  yes        1      rejects of  "
        "ads/shown/v1.0 2019-11-24 20191125.010000",
        "ads/daily/v1.0          2019-11-24  20191125.020000  claimed    no         2      read        "
        "ads/shown/v1.0 2019-11-24 20191125.010000",
        "3 updates of 3 feeds; 2 of them are the newest, which readers get",
    ]


def test_uses_prints_the_same_as_json(ledger):
    (found,) = json.loads(uses("ads/shown/v1.0", "2019-11-24", FIRST, "--json").stdout)
    assert found == {
        "feed": "ads/daily/v1.0",
        "partition": "2019-11-24",
        "id": SECOND,
        "state": "claimed",
        "is_newest": False,
        "depth": 1,
        "how": "read",
        "via": f"{SHOWN} {FIRST}",
    }


def test_uses_of_an_unused_update_prints_nothing(ledger):
    assert uses("ads/daily/v1.0", "2019-11-24", SECOND).stdout == "no update was built from it\n"
    assert json.loads(uses("ads/daily/v1.0", "2019-11-24", SECOND, "--json").stdout) == []


def test_ledger_upgrade_prints_its_schema_as_json(ledger):
    said = CliRunner().invoke(app, ["ledger", "upgrade", "--json"]).stdout
    assert json.loads(said) == {"schema": schema_of(settings().ledger)[1]}


def test_an_unknown_update_is_an_error(ledger):
    error = uses("ads/raw/v1.0", "2019-11-24", SECOND).exception
    assert isinstance(error, NoValidUpdate)
    assert str(error) == (f"the ledger has no update {SECOND} of {RAW}: it has {FIRST}. Name one of these.")

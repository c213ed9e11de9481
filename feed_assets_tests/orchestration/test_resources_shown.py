"""What commands and figures show of compute targets, and of partitions that wait for their resources."""

import json
from datetime import timedelta

import dagster as dg
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from feed_assets import with_automation
from feed_assets.cli import app
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import due
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.sum_projects import DAY, RAW, harness, raw_feed, rows, sums_of

pytestmark = pytest.mark.usefixtures("home")

WHY = "it needs 2 cores and 1 GiB, but no target is so large: here has 1 core and 2 GiB"
raw = raw_feed()
defs = with_automation(dg.Definitions(assets=[raw, sums_of(raw)]))
"""Module-level definitions for the command line."""


@pytest.fixture
def lake(setting):
    """Return a world whose only target is too small."""
    setting(targets=json.dumps({"here": {"kind": "local", "cores": 1, "memory": "2g"}}))
    feed = raw_feed()
    made = harness(feed, sums_of(feed))
    made.drop(RAW, DAY, rows(1))
    return made


def test_a_status_says_resources_also_after_it_has_decided_again(lake):
    lake.ask()
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(due).values(look_at=utc_now() - timedelta(hours=1)))
    waits = json.loads(printed("status", "-m", __name__, "--json"))["waits"]
    assert [each["why"] for each in waits if each["partitions"] == DAY] == [WHY]
    assert [each["verdict"] for each in waits if each["why"] == WHY] == ["waits for resources"]
    assert f"waits for resources  1      {DAY}  {WHY}" in printed("explain", "-m", __name__)


def test_a_run_ends_well_if_partitions_wait_for_resources_alone(lake):
    result = CliRunner().invoke(app, ["run", "-m", __name__])
    assert (result.exit_code, "AGAIN" in result.stdout) == (0, False)
    assert f"BUSY    t/sums/v1.0 {DAY}: it waits for resources: {WHY}" in result.stdout
    view = json.loads(printed("run", "-m", __name__, "--json"))
    assert [each["why"] for each in view["busy"]] == [WHY]

"""Each harness uses the environment of its own test, even with many tests in one process."""

import dagster as dg

from feed_assets import with_automation
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, given, raw_feed, rows, sums_of


def test_a_home_of_its_own_has_a_ledger_of_its_own(tmp_path, monkeypatch):
    for name in ("one", "other"):
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / name))
        raw = raw_feed()
        with Harness(with_automation(dg.Definitions(assets=[raw, sums_of(raw)])), maker=PlainMaker(given)) as harness:
            assert harness.newest(SUMS, DAY) is None
            harness.drop(RAW, DAY, rows(1))
            harness.run_until_idle()
            assert harness.newest(SUMS, DAY)
        assert (tmp_path / name / "ledger.db").exists()

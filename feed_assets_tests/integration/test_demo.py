"""`make demo` as a newcomer runs it: its figures equal those computed without Spark and without the product."""

import csv
import gzip
import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from itertools import product
from pathlib import Path
from zlib import crc32

import pytest

from feed_assets.defs.ads import sample
from feed_assets_tests.support import ads_figures

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"(\d{4}-\d\d-\d\d) +(\w+) +(\d+) +(\d+) +([\d.]+)% +([\d.]+)%-([\d.]+)% +(\d{8}\.\d{6})")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    folder = tmp_path_factory.mktemp("home")
    env = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    env |= {"DAGSTER_HOME": str(folder)}
    command = ["make", "demo"]
    # Three minutes on a quiet machine. The limit only ends a demo that hangs, beside other tests on a slow one.
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    return folder / "demo", done


def test_demo_succeeds_without_warnings(played) -> None:
    _, done = played
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stderr.splitlines() if "warn" in line.lower() or "Alert" in line] == []
    assert "49/49" in done.stdout
    assert "3/3" in done.stdout


def test_demo_table_equals_the_figures_of_the_raw_files(played) -> None:
    found = {(row[0], row[1]): row[2:7] for row in ROW.findall(played[1].stdout)}
    wanted = {}
    for day in sample.days():
        for campaign in sample.CAMPAIGNS:
            total = ads_figures.total(sample.shown_csv(day, campaign), sample.clicked_csv(day, campaign))
            rates = [f"{rate * 100:.2f}" for rate in (total.ctr, total.ctr_low, total.ctr_high)]
            wanted[day, campaign] = (str(total.impressions), str(total.clicks), *rates)
    assert found == wanted


def test_the_slot_of_the_article_completes_exactly_four_windows(played) -> None:
    lines = re.findall(r"^  (\w+ \[\d\d:\d\d ~ \d\d:\d\d\)) complete: ", played[1].stdout, re.MULTILINE)
    assert lines == ["hour [15:00 ~ 16:00)", "10min [15:50 ~ 16:00)", "5min [15:55 ~ 16:00)", "5min [16:00 ~ 16:05)"]


def test_global_day_sums_the_raw_files_by_each_regions_own_midnight(played) -> None:
    found = re.findall(r"^(\w+) +(men|women) +(\d+) +(\d+) +[\d.]+%$", played[1].stdout, re.MULTILINE)
    assert {(region, campaign): (int(shown), int(clicks)) for region, campaign, shown, clicks in found} == by_region()


MIDNIGHTS = {
    "apac": "2019-11-25 16",
    "south_asia": "2019-11-25 19",
    "emea": "2019-11-26 00",
    "americas": "2019-11-26 08",
}


def by_region() -> dict[tuple[str, str], tuple[int, int]]:
    """Return impressions and clicks of 2019-11-26 by region and campaign, from the sample's files."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for policy, campaign in product(sample.POLICIES, sample.CAMPAIGNS):
        path = Path(sample.__file__).with_name("sample") / f"{policy}_{campaign}.csv.gz"
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                region = [*MIDNIGHTS][crc32(row["user_feature_2"].encode()) % 4]
                end = MIDNIGHTS[region].replace("-26", "-27").replace("-25", "-26")
                if MIDNIGHTS[region] <= row["timestamp"] < end:
                    shown, clicks = found.get((region, campaign), (0, 0))
                    found[region, campaign] = shown + 1, clicks + int(row["click"])
    return found


def test_demo_rebuilds_only_the_late_day(played) -> None:
    home, _ = played
    built = {
        path.parent.name: len(list(path.iterdir())) for path in home.glob("blackboard/ads/effectiveness/v1.0/*/men")
    }
    assert built == {day: 2 if day == "2019-11-26" else 1 for day in sample.days()}


def test_demo_refuses_the_corrupt_update_with_its_reason(played) -> None:
    assert re.search(r"refused \d{8}\.\d{6}: its manifest says 2 files and there are 1", played[1].stdout)


PARTNERS_DAY = [("2019-11-27", "men"), ("2019-11-27", "women")]


def test_demo_rebuilds_the_one_of_three_late_days_that_grew_enough(played) -> None:
    home, done = played
    found = re.findall(
        r"^\S+ \S+ UTC  ads/partners_daily/v1.0  (\S+)  (\S+) +\d+ +\d+ +(\S+)", done.stdout, re.MULTILINE
    )
    first, second, third = days = sorted(path.name for path in (home / "women").iterdir())
    assert {day: (decision, growth) for day, decision, growth in found} == {
        first: ("re-run", "+10.0%"),
        second: ("skip", "+3.0%"),
        third: ("skip", "+1.0%"),
    }
    board = home / "blackboard" / "ads" / "partners_daily" / "v1.0"
    assert [len([*(board / day).iterdir()]) for day in days] == [2, 1, 1]


def test_rerun_report_equals_the_figures_of_the_raw_files(played) -> None:
    day = [ads_figures.total(sample.shown_csv(on, who), sample.clicked_csv(on, who)) for on, who in PARTNERS_DAY]
    found = dict(re.findall(r"^(impressions|clicks) +[\d,]+ +([\d,]+) +\+[\d.]+%$", played[1].stdout, re.MULTILINE))
    wanted = {"impressions": sum(each.impressions for each in day), "clicks": sum(each.clicks for each in day)}
    assert {name: int(number.replace(",", "")) for name, number in found.items()} == wanted


def test_crm_increments_add_up_to_the_fold_of_its_rows(played) -> None:
    home, done = played
    found = re.findall(
        r"^  visits (.*), (incremental|reload)(?:, added to \S+)?; (\d+) customers$", done.stdout, re.MULTILINE
    )
    wednesday, *_, taxed = counts = [int(count) for *_, count in found]
    assert [how for _, how, _ in found] == ["reload", *["incremental"] * 3, "reload"]
    assert counts[2] == counts[1] - 1
    with closing(sqlite3.connect(home / "crm.db")) as crm:
        assert crm.execute("SELECT count(DISTINCT customer) FROM visits").fetchone() == (taxed,)
    assert wednesday < counts[1] < taxed


def test_demo_prints_commands_that_work(played) -> None:
    home, done = played
    for command in re.findall(r"(\.venv/bin/feed-assets .*)", done.stdout):
        looked = subprocess.run(
            command.split(), cwd=ROOT, env={**os.environ, "DAGSTER_HOME": str(home)}, capture_output=True, check=False
        )
        assert looked.returncode == 0, looked.stderr
    boards = json.dumps({"women": {"url": (home / "women").as_uri()}})
    crm = f"RETAIL_CRM=sqlite:///{home / 'crm.db'}"
    assert f"DAGSTER_HOME={home} FEED_ASSETS_BLACKBOARDS='{boards}' {crm} make ui" in done.stdout


def test_demo_never_clears_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "precious").touch()
    env = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    done = subprocess.run(
        [ROOT / ".venv/bin/feed-assets", "demo"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "was not made by the demo: move it away" in done.stderr
    assert (tmp_path / "demo" / "precious").exists()

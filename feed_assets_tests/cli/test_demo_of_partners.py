"""The demo's story of two partners: data on time and late data, and a demo without the receiver."""

from types import SimpleNamespace

import pytest

from feed_assets.cli.demo import partners
from feed_assets.defs.ads import sample
from feed_assets_tests.support.each_case import each_case

MOVED = "2026-11-20"


@each_case(("day", "share"), partners.LATE.items())
def test_a_day_on_time_has_every_hour_and_grows_by_its_share(day, share):
    rows = sample.moved(day, "women", MOVED)
    on_time, late = partners.split(rows, share)
    assert {row["timestamp"][11:13] for row in on_time} == {f"{hour:02}" for hour in range(24)}
    assert sorted([*on_time, *late], key=lambda row: row["timestamp"]) == rows
    assert len(late) / len(on_time) == pytest.approx(share, abs=0.001)


def test_without_the_receiver_the_demo_says_what_to_install(monkeypatch):
    said = []
    monkeypatch.setattr(partners, "find_spec", lambda _: None)
    partners.play(SimpleNamespace(say=said.append))
    assert len(said) == 1
    assert "pip install 'feed-assets[receiver]'" in said[0]

"""Requests that a look at a partner's files costs, counted by a proxy before a real S3 server."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.faults.many_objects import put_many
from feed_assets_tests.faults.proxied_boards import QUICK, credentials_of
from feed_assets_tests.support.pull_partners import NOW, Partner
from feed_assets_tests.support.s3_proxy import Fault

_PREFIXES = count(1)


@pytest.fixture
def partner(s3_proxy, direct, bucket, ledger) -> Partner:
    """Return a partner with 20 files on each day of a month, seen through the proxy."""
    url = f"s3://{bucket}/partner-{next(_PREFIXES)}"
    keys = credentials_of(s3_proxy.server)
    made = Partner(
        Blackboard.open(url, endpoint=s3_proxy.server.endpoint, credentials=keys, patience=QUICK),
        Blackboard.open("memory://"),
        ledger,
    )
    days = [f"{NOW - timedelta(days=back):%Y-%m-%d}" for back in range(30)]
    put_many(made.theirs, [f"out/{day}/05/{number}.csv" for day in days for number in range(20)], b"id\n1\n")
    return made


def test_pull_costs_one_listing_per_day_and_one_read_per_new_file(partner, s3_proxy):
    for lookback, files in ((3, 80), (5, 40)):  # The second look goes back two more days.
        partner.declare(lookback=lookback)
        s3_proxy.begin()
        partner.look()
        assert (s3_proxy.requests["list"], s3_proxy.requests["get part"]) == (lookback + 1, files)
    s3_proxy.begin()
    partner.look()
    assert (s3_proxy.requests["list"], len(s3_proxy.asked)) == (6, 6)
    partner.put("2024-02-27/05/late.csv", "id\n2\n")
    s3_proxy.begin()
    partner.look()
    assert (s3_proxy.requests["list"], len(s3_proxy.asked)) == (6, 7)
    assert partner.known() == {key: 20 + (key == "2024-02-27-05:00") for key in partner.known()}


def test_pull_from_a_flat_folder_lists_only_names_of_the_day(partner, s3_proxy):
    """Without a folder for each day, a listing begins at the day's first name and ends with its last."""
    put_many(partner.theirs, [f"flat/2024{number:06}_x.csv" for number in range(3000)], b"id\n1\n")
    partner.theirs.put("flat/20240229_05_a.csv", b"id\n1\n")
    partner.pull = replace(partner.pull, pattern="%Y%m%d_%H_*.csv", prefix="flat", lookback=1)
    s3_proxy.begin()
    partner.look()
    assert (s3_proxy.requests["list"], s3_proxy.requests["get part"]) == (2, 1)


def test_truncated_body_is_read_again_now_or_at_the_next_pull(partner, s3_proxy):
    partner.declare(lookback=0)
    s3_proxy.begin(Fault("get part", "truncated body", times=1))
    with suppress(BlackboardUnavailable):
        partner.look()
    assert s3_proxy.fired
    s3_proxy.begin()
    partner.look()
    assert partner.held() == {"2024-02-29-05:00": ["id\n1\n"] * 20}
    assert partner.updates() == 20

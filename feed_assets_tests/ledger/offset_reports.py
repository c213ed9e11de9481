"""Report lines with offsets of five-minute windows, and the states that the ledger derives from them."""

import json

from feed_assets.core.report_lines import parse_report
from feed_assets.ledger.states import count_reports, window_policies, window_queries
from feed_assets.ledger.states.window_explanations import whys
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW

W = [*HOUR_15][:6]
"""Windows of five minutes."""


def said(ledger, *lines):
    """Report lines as they are sent. Each window in `at` has 100 records unless the line gives a number."""
    found = [each for line in lines for each in parsed(line)]
    outcome = count_reports.report(ledger, found, NOW)
    assert not outcome.rejected, outcome.rejected
    return outcome


def parsed(line, dataset=FOO):
    more = {name: value for name, value in line.items() if name != "at"}
    counts = [{"start": f"{at:%Y-%m-%dT%H:%MZ}", "records": n} for at, n in line["at"].items()]
    return parse_report(json.dumps({"dataset": str(dataset), "windows": counts, **more}))


def part(name, at, offsets=None, **more):
    counts = at if isinstance(at, dict) else dict.fromkeys(at, 100)
    return {"kind": "part", "part": name, "at": counts, **({"offsets": offsets} if offsets else {}), **more}


def source(at, offsets=None, records=100, **more):
    return {
        "kind": "source",
        "tier": "kafka",
        "at": dict.fromkeys(at, records),
        **({"offsets": offsets} if offsets else {}),
        **more,
    }


def state(ledger, at=W[0], grain="5min", sub_partition=""):
    address = window_queries.WindowAddress(FOO, sub_partition, grain, f"{at:%Y-%m-%d-%H:%M}")
    with ledger.read() as connection:
        found = window_queries.stored_windows(connection, [address])
        why = whys(connection, found.values(), {FOO: tracked(connection)})
    return str(found[address].state), why[address].partition("%); ")[2]


def tracked(connection):
    return window_policies.tracked(connection, [FOO])[FOO]

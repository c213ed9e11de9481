"""One dataset made from one raw feed."""

import dagster as dg
import pytest

from feed_assets import Input, checks, feed_asset, foreign_feed, with_automation

RAW, OUT, REJECTS = "t/raw/v1.0", "t/out/v1.0", "t/out_rejects/v1.0"
LEAST = [checks.not_empty(), checks.within("n", 0, 9)]


def definitions() -> dg.Definitions:
    """Return raw and out; the function of out is never called."""
    raw = foreign_feed(RAW, schema="n int")

    @feed_asset(OUT, inputs={"raw": Input(raw)}, checks=LEAST)
    def out(raw):
        pytest.fail("a PlainMaker calls no function")

    return with_automation(dg.Definitions(assets=[raw, out]))

"""Some days of a web shop, by events: what arrived, what waited, and what ran."""

from typing import TYPE_CHECKING

from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.retail.sample import invoices_csv, rates_csv
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph

if TYPE_CHECKING:
    from feed_assets.cli.demo.stage import Stage

INVOICES, RATES = Feed.parse("retail/invoices_raw/v1.0"), Feed.parse("fx/ecb_raw/v1.0")
SUMMARY = Feed.parse("retail/daily_summary/v1.0")
FRIDAY, SATURDAY, SUNDAY = "2010-12-03", "2010-12-04", "2010-12-05"


def play(stage: "Stage") -> None:
    """Play the story. A day waits for the bank's file of that day, even if the file has no rate, as on weekends.

    A corrected rate rebuilds the days that used it.
    """
    stage.step(f"a shop drops invoices of {FRIDAY} and of Sunday, a bank Friday's rates and Saturday's empty file")
    for day in (FRIDAY, SUNDAY):
        stage.publish(INVOICES, day, invoices_csv(day))
    for day in (FRIDAY, SATURDAY):
        stage.publish(RATES, day, rates_csv(day))
    stage.run(9)
    _say_state(stage, FRIDAY)
    _say_state(stage, SUNDAY)
    stage.step(
        "the bank's file of Sunday arrives: it has no rate, but it is an event; Friday's rate is the last known one"
    )
    stage.publish(RATES, SUNDAY, rates_csv(SUNDAY))
    stage.run(2)
    stage.step("the bank corrects Friday's rate: the days that used it are built again, the weekend included")
    stage.publish(RATES, FRIDAY, rates_csv(FRIDAY).replace(b"0.848,", b"0.85,"))
    stage.run(5)
    _finish(stage)


def _say_state(stage: "Stage", day: str) -> None:
    """Print the state of a day's summary as `feed-assets explain` does."""
    graph, output = Graph(stage.definitions.resolve_asset_graph()), Partition(SUMMARY, day)
    with stage.services.ledger.read() as connection:
        verdict = verdicts(graph, connection, [output], stage.services.now())[0]
    stage.say(f"  {output}: {verdict.state.value}: {verdict.reason}")


def _finish(stage: "Stage") -> None:
    stage.say(f"\n{SUMMARY}")
    for day in (FRIDAY, SUNDAY):
        row = stage.published(SUMMARY, day)[1].collect()[0].asDict()
        stage.say("  " + "  ".join(f"{name} {value}" for name, value in row.items()))
        numbers = {line.split(b",", 1)[0] for line in invoices_csv(day).splitlines()[1:]}
        purchases = len([number for number in numbers if not number.startswith(b"C")])
        if (row["purchases"], str(row["gbp_per_eur"])) != (purchases, "0.850000"):
            raise DemoFailed(f"{row} differs from the sample's {purchases} purchases, or from the corrected rate 0.85.")

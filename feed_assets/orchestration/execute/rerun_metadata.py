"""Effects of a re-run, for the metadata of its materialization."""

import dagster as dg

from feed_assets.core.rerun_report import as_markdown
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.rerun_effects import effect
from feed_assets.runs.phases import Published


def effect_metadata(ledger: Ledger, published: Published) -> dict[str, dg.MetadataValue]:
    """Return a table and a chart that compare inputs and output before and after the re-run.

    Return {} for a partition's first update.
    """
    main = published.outputs[-1]
    with ledger.read() as connection:
        report = effect(connection, main.partition, main.id)
    return {"before and after": dg.MetadataValue.md(as_markdown(report))} if report else {}

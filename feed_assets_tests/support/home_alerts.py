"""Open alerts in the ledger of the home."""

from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings


def open_reasons() -> dict[str, str]:
    """Return the open alerts by name, each with its reason."""
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}

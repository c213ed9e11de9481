"""Alerts raised and resolved one by one."""

from datetime import datetime

from feed_assets.ledger.alerts import keep, open_alerts
from feed_assets.ledger.database import Ledger


def raise_alert(ledger: Ledger, name: str, reason: str, now: datetime) -> None:
    """Open one alert, and keep the open ones of its kind."""
    _keep(ledger, name, {name: reason}, now)


def resolve(ledger: Ledger, name: str, now: datetime) -> None:
    """Resolve one alert, and keep the other ones of its kind."""
    _keep(ledger, name, {}, now)


def _keep(ledger: Ledger, name: str, reasons: dict[str, str], now: datetime) -> None:
    kind = name.partition(":")[0]
    with ledger.read() as connection:
        others = {each.name: each.reason for each in open_alerts(connection) if each.name != name}
    wanted = {key: reason for key, reason in (others | reasons).items() if key.startswith(f"{kind}:")}
    keep(ledger, kind, {key.removeprefix(f"{kind}:"): reason for key, reason in wanted.items()}, now)

"""Alerts in the ledger: opened once, resolved once, and deleted when every channel has delivered both."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.ledger import alerts, log, subscriptions
from feed_assets.ledger.alerts import Alert, keep
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import alert
from feed_assets_tests.support.alert_steps import raise_alert, resolve
from feed_assets_tests.support.ledger_records import MINUTE, NOW, SHOWN

LATER, LAST = NOW + MINUTE, NOW + 2 * MINUTE
NAME = "missing:sales/orders"
CHANNELS = ("log", "webhook", "mail")


def opened(ledger: Ledger) -> list[Alert]:
    with ledger.read() as connection:
        return [*alerts.open_alerts(connection)]


def left(ledger: Ledger, *channels: str) -> list[tuple[str, str, str]]:
    """Return the undelivered notices, each as channel, name and state."""
    with ledger.read() as connection:
        notices = alerts.undelivered(connection, channels or CHANNELS)
    return [(notice.channel, notice.name, notice.state) for notice in notices]


def say(ledger: Ledger, *said: tuple[str, str], channels: tuple[str, ...] = CHANNELS) -> None:
    """Record that channels delivered a state of the one alert."""
    with ledger.read() as connection:
        notices = {(each.channel, each.state): each for each in alerts.undelivered(connection, channels)}
    for each in said:
        alerts.delivered(ledger, notices[each], channels)


def rows(ledger: Ledger) -> int:
    with ledger.read() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(alert)).scalar_one()


def test_an_alert_is_open_until_it_is_resolved(ledger):
    raise_alert(ledger, NAME, "expected at 6:00", NOW)
    assert opened(ledger) == [Alert(NAME, NOW, "expected at 6:00")]
    resolve(ledger, NAME, LATER)
    assert opened(ledger) == []


def test_opening_an_open_alert_again_changes_its_reason_only(ledger):
    raise_alert(ledger, NAME, "one is missing", NOW)
    say(ledger, ("log", "opened"))
    raise_alert(ledger, NAME, "two are missing", LATER)
    assert opened(ledger) == [Alert(NAME, NOW, "two are missing")]
    assert left(ledger) == [("webhook", NAME, "opened"), ("mail", NAME, "opened")]


def test_resolving_an_alert_that_is_not_open_changes_nothing(ledger):
    resolve(ledger, NAME, NOW)
    assert rows(ledger) == 0
    raise_alert(ledger, NAME, "late", NOW)
    resolve(ledger, NAME, LATER)
    resolve(ledger, NAME, LAST)
    with ledger.read() as connection:
        assert alerts.undelivered(connection, ["log"])[1].at == LATER


def test_each_channel_delivers_opening_and_resolution_in_order(ledger):
    raise_alert(ledger, NAME, "late", NOW)
    assert left(ledger) == [(channel, NAME, "opened") for channel in CHANNELS]
    say(ledger, ("log", "opened"), ("mail", "opened"))
    resolve(ledger, NAME, LATER)
    assert left(ledger) == [
        ("log", NAME, "resolved"),
        ("webhook", NAME, "opened"),
        ("webhook", NAME, "resolved"),
        ("mail", NAME, "resolved"),
    ]


def test_alert_is_deleted_once_all_channels_delivered_its_resolution(ledger):
    raise_alert(ledger, NAME, "late", NOW)
    resolve(ledger, NAME, LATER)
    say(ledger, *((channel, "opened") for channel in CHANNELS), ("log", "resolved"), ("mail", "resolved"))
    assert left(ledger) == [("webhook", NAME, "resolved")]
    say(ledger, ("webhook", "resolved"))
    assert left(ledger) == []
    assert rows(ledger) == 0


def test_open_alert_stays_after_all_channels_delivered_it(ledger):
    raise_alert(ledger, NAME, "late", NOW)
    say(ledger, *((channel, "opened") for channel in CHANNELS))
    assert left(ledger) == []
    assert rows(ledger) == 1


def test_new_channel_gets_open_alerts_and_no_resolved_ones(ledger):
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, "missing:other", "late", NOW)
    log = ("log",)
    with ledger.read() as connection:
        notices = alerts.undelivered(connection, log)
    for notice in notices:
        alerts.delivered(ledger, notice, log)
    resolve(ledger, NAME, LATER)
    say(ledger, ("log", "resolved"), channels=log)
    assert left(ledger) == [("webhook", "missing:other", "opened"), ("mail", "missing:other", "opened")]


@pytest.mark.parametrize("said", [(), (("log", "opened"),), (("log", "opened"), ("log", "resolved"))])
def test_reopened_alert_is_delivered_again_with_a_new_id(ledger, said):
    raise_alert(ledger, NAME, "late", NOW)
    with ledger.read() as connection:
        first = alerts.undelivered(connection, ["log"])[0]
    resolve(ledger, NAME, LATER)
    say(ledger, *said)
    raise_alert(ledger, NAME, "late again", LAST)
    assert opened(ledger) == [Alert(NAME, LAST, "late again")]
    assert left(ledger, "log") == [("log", NAME, "opened")]
    with ledger.read() as connection:
        assert alerts.undelivered(connection, ["log"])[0].id != first.id


def test_delivery_of_an_alert_that_reopened_meanwhile_is_not_recorded(ledger):
    raise_alert(ledger, NAME, "late", NOW)
    resolve(ledger, NAME, LATER)
    with ledger.read() as connection:
        before = alerts.undelivered(connection, ["log"])
    raise_alert(ledger, NAME, "late again", LAST)
    for notice in before:
        alerts.delivered(ledger, notice, ["log"])
    assert left(ledger, "log") == [("log", NAME, "opened")]


def test_notice_id_depends_on_alert_and_state_alone(ledger):
    def ids() -> dict[str, set[str]]:
        with ledger.read() as connection:
            notices = alerts.undelivered(connection, CHANNELS)
        return {state: {each.id for each in notices if each.state == state} for state in ("opened", "resolved")}

    raise_alert(ledger, NAME, "late", NOW)
    before = ids()
    raise_alert(ledger, NAME, "very late", LATER)
    resolve(ledger, NAME, LATER)
    assert ids()["opened"] == before["opened"]
    assert [len(each) for each in ids().values()] == [1, 1]
    assert ids()["opened"] != ids()["resolved"]


def test_keep_opens_given_alerts_and_resolves_others_of_their_kind(ledger):
    raise_alert(ledger, "stuck:a", "stuck", NOW)
    raise_alert(ledger, "missing_b:x", "of another kind, though it begins alike", NOW)
    keep(ledger, "missing", {"a": "late", "b": "late"}, NOW)
    keep(ledger, "missing", {"b": "later still", "c": "late"}, LATER)
    assert opened(ledger) == [
        Alert("missing:b", NOW, "later still"),
        Alert("missing_b:x", NOW, "of another kind, though it begins alike"),
        Alert("stuck:a", NOW, "stuck"),
        Alert("missing:c", LATER, "late"),
    ]
    keep(ledger, "missing", {}, LAST)
    assert [each.name for each in opened(ledger)] == ["missing_b:x", "stuck:a"]


def test_keep_reopens_a_resolved_alert(ledger):
    keep(ledger, "missing", {"a": "late"}, NOW)
    keep(ledger, "missing", {}, LATER)
    keep(ledger, "missing", {"a": "late"}, LAST)
    assert opened(ledger) == [Alert("missing:a", LAST, "late")]


def test_keep_resolves_only_alerts_of_its_owner(ledger):
    keep(ledger, "stuck", {"a|one": "stuck", "b|one": "stuck"}, NOW)
    keep(ledger, "stuck", {"a|two": "stuck"}, LATER, lambda about: about == "a")
    assert [each.name for each in opened(ledger)] == ["stuck:b|one", "stuck:a|two"]


def test_feed_whose_subscriptions_all_lag_behind_an_old_change_is_abandoned(ledger):
    made, removed, read = "ads/made/v1.0", "ads/removed/v1.0", str(SHOWN.feed)
    with ledger.change() as connection:
        subscriptions.subscribe(connection, [(made, made), (made, read), (removed, removed), (removed, read)])
        last = log.append(connection, [Change(SHOWN, log.UPDATE, "1", NOW, None, log.PUBLISHED)])
        for feed in (made, read):
            subscriptions.advance(connection, made, last, feed)
    with ledger.read() as connection:
        found = [subscriptions.abandoned(connection, before) for before in (NOW, LATER)]
    assert found == [set(), {removed}]


def test_keep_writes_nothing_where_nothing_has_changed(ledger):
    keep(ledger, "missing", {"a": "late"}, NOW)
    writes = []

    def note(connection: sa.Connection) -> None:
        writes.extend([1] if connection.get_execution_options().get("write") else [])

    sa.event.listen(ledger.engine, "begin", note)
    try:
        keep(ledger, "missing", {"a": "late"}, NOW + timedelta(days=1))
        keep(ledger, "stuck", {}, NOW)
        assert writes == []
        keep(ledger, "missing", {"a": "very late"}, LATER)
        assert writes == [1]
    finally:
        sa.event.remove(ledger.engine, "begin", note)

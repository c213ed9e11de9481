"""The slow sensor reads old updates once a day: damage is an alert until it is repaired or replaced."""

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.read import named
from feed_assets.ledger import alerts
from feed_assets.ledger.database import found_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.harness_queries import evaluate_orphans as look
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, rows, short


def damage() -> dict[str, str]:
    with found_ledger(settings().ledger).read() as connection:
        found = alerts.open_alerts(connection)
    return {each.name: each.reason for each in found if each.name.startswith("damaged:")}


def test_a_published_file_that_has_changed_is_an_alert_until_it_is_replaced(home):
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    update_id = world.newest(SUMS, DAY)
    (file,) = named(world.board, Partition(Feed.parse(SUMS), DAY), update_id).files
    world.board.put(file.key, b"{}\n")
    assert damage() == {}
    message = look(world, hours=25)
    name = f"damaged:{SUMS}|{DAY}/{update_id}"
    assert damage().keys() == {name}
    assert f"{file.key} has changed since it was published: found 3 bytes" in damage()[name]
    assert damage()[name] in message
    assert "has changed" not in look(world, hours=27)
    assert damage().keys() == {name}
    assert "has changed" in look(world, hours=50)
    world.invalidate(SUMS, DAY, update_id)
    world.run_until_idle()
    look(world, hours=75)
    assert damage() == {}

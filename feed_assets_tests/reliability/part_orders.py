"""Another team's hourly orders and another one's stock: late, repeated, partial, with bad amounts."""

from datetime import timedelta
from random import Random

from feed_assets_tests.reliability.reports import STOCK
from feed_assets_tests.reliability.schedule import act, below, one_of
from feed_assets_tests.reliability.shop import ORDERS
from feed_assets_tests.reliability.world import World

HOURS = 4


def hour_key(hour: int) -> str:
    """Return the key of an hour of the first day."""
    return f"2026-03-02-{hour:02}:00"


def new_id(world: World, feed: str, hour: int) -> str:
    """Return an update id of now that this producer has not used: it waits a second if it must."""
    used = world.state.setdefault(("ids", feed, hour), set())
    while (name := f"{world.now:%Y%m%d.%H%M%S}") in used:
        world.now += timedelta(seconds=1)
    used.add(name)
    return name


def publish(world: World, feed: str, hour: int, text: str, *, parts: int = 1, lacks: str = "") -> None:
    """Write an update as its producer does: parts first, then the manifest. It may lack its manifest or a part."""
    head, *lines = text.splitlines()
    path = f"{feed}/{hour_key(hour)}/{new_id(world, feed, hour)}"
    for part in range(parts):
        content = "\n".join([head, *lines[part::parts], ""])
        world.store.put(f"{path}/part-{part}.csv", content.encode())
    if lacks != "manifest":
        world.store.put(f"{path}/_SUCCESS", str(parts + (lacks == "part")).encode())
    if lacks:
        world.state.setdefault("partial", []).append((path, lacks, parts))
    world.note("began" if lacks else "published", path=path, text=text)


def _orders(step: int, random_rows: list[int]) -> str:
    lines = [f"{step}-{number},{amount}" for number, amount in enumerate(random_rows)]
    return "\n".join(["id,amount", *lines])


def _amounts(random: Random) -> list[int]:
    return [random.randrange(1000) for _ in range(random.randint(1, 5))]


@act(10, hour=below(HOURS), amounts=_amounts, parts=one_of(1, 1, 2))
def publish_orders(world: World, hour: int, amounts: list[int], parts: int) -> None:
    """Publish the orders of an hour, the first or late ones."""
    text = _orders(world.step, amounts)
    world.state["orders", hour] = text
    publish(world, ORDERS, hour, text, parts=parts)


@act(2, is_fault=True, hour=below(HOURS))
def publish_orders_again(world: World, hour: int) -> None:
    """Publish the same orders once more."""
    if text := world.state.get(("orders", hour)):
        publish(world, ORDERS, hour, text)


@act(2, is_fault=True, hour=below(HOURS), amounts=_amounts, bad=one_of(-1, 5000))
def publish_bad_orders(world: World, hour: int, amounts: list[int], bad: int) -> None:
    """Publish orders of which one fails the check."""
    publish(world, ORDERS, hour, _orders(world.step, [*amounts, bad]))


@act(2, is_fault=True, hour=below(HOURS), amounts=_amounts, lacks=one_of("manifest", "part"))
def upload_half(world: World, hour: int, amounts: list[int], lacks: str) -> None:
    """Begin an update and leave it without its manifest, or without a part that the manifest counts."""
    publish(world, ORDERS, hour, _orders(world.step, amounts), lacks=lacks)


@act(1, is_fault=True, number=below(100))
def finish_upload(world: World, number: int) -> None:
    """Write what an upload lacks that was left before."""
    if partial := world.state.get("partial"):
        path, lacks, parts = partial.pop(number % len(partial))
        name, data = ("_SUCCESS", f"{parts}") if lacks == "manifest" else (f"part-{parts}.csv", "id,amount\n")
        world.store.put(f"{path}/{name}", data.encode())
        world.note("finished", path=path)


@act(5, hour=below(HOURS), pieces=one_of(1, 2, 3, 5, 8))
def publish_stock(world: World, hour: int, pieces: int) -> None:
    """Publish the stock of an hour."""
    publish(world, STOCK, hour, f"id,pieces\n{world.step}-0,{pieces}")

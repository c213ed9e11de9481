"""A partner that pushes clicks to a receiver, which is stopped and killed."""

import json
import os
import signal
from random import Random

import psutil
import requests

from feed_assets_tests.reliability.part_orders import HOURS
from feed_assets_tests.reliability.processes import Life, add_key, live, receive
from feed_assets_tests.reliability.reports import CLICKS
from feed_assets_tests.reliability.schedule import act, begins, below, death, ends, one_of, settles
from feed_assets_tests.reliability.world import World, WorldFailed
from feed_assets_tests.support.receivers import free_port
from feed_assets_tests.support.servers import wait_until

PATIENCE = 120
"""Seconds of the machine within which a receiver must begin to listen."""


@begins
def give_the_partner_a_key(world: World) -> None:
    """Make the partner's API key. The receiver flushes only when it stops, so that no clock decides."""
    world.variables["FEED_ASSETS_RECEIVER_FLUSH_SECONDS"] = "100000"
    world.state["key"], world.state["pushed"] = world.run(add_key, CLICKS), 0


def url_of(world: World, dies_at: int | None = None) -> str | None:
    """Return the URL of the running receiver. Start one if there is none; None if it was killed before it listened."""
    if "receiver" not in world.state:
        port = free_port()
        with world.environment():
            child = world.forks.start(live, Life(world.now, dies_at), receive, str(world.folder / "spool"), port)
        world.state["receiver"] = child, port, dies_at
    child, port, _ = world.state["receiver"]
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_dead(child) or _listens(url), "the receiver", PATIENCE)
    except TimeoutError as error:
        raise WorldFailed(f"the receiver does not listen: {world.log()[-2000:]}") from error
    if _is_dead(child):
        bury(world)
        return None
    return url


def _is_dead(child: int) -> bool:
    return psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def _listens(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=30).ok
    except requests.RequestException:
        return False


def bury(world: World, sent: int | None = None) -> None:
    """Wait for the end of the receiver, after a signal or at the change at which it dies."""
    child, _, dies_at = world.state.pop("receiver")
    if sent:
        os.kill(child, sent)
    code = world.forks.wait(child)
    world.counts["killed receive"] += code == -signal.SIGKILL
    expected = {0, -signal.SIGTERM} | ({-signal.SIGKILL} if dies_at or sent == signal.SIGKILL else set())
    if code not in expected:
        raise WorldFailed(f"the receiver ended with {code}: {world.log()[-2000:]}")


def _minutes(random: Random) -> list[int]:
    return [random.randrange(60) for _ in range(random.randint(1, 4))]


@act(6, hour=below(HOURS), minutes=_minutes, times=one_of(1, 1, 2), dies_at=death(60, share=0.4))
def push_clicks(world: World, hour: int, minutes: list[int], times: int, dies_at: int | None) -> None:
    """Push clicks of an hour, some twice with the same idempotency key. The receiver may die at a later change."""
    ids = [f"{world.step}-{number}" for number in range(len(minutes))]
    events = [
        {"id": name, "at": f"2026-03-02T{hour:02}:{minute:02}:00Z", "n": 1}
        for name, minute in zip(ids, minutes, strict=True)
    ]
    body = "".join(f"{json.dumps(each)}\n" for each in events).encode()
    headers = {
        "Authorization": f"Bearer {world.state['key']}",
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": f"step {world.step}",
    }
    for _ in range(times):
        while not _is_taken(world, body, headers, dies_at):
            dies_at = None
        world.note("acknowledged", feed=CLICKS, hour=hour, ids=ids)


def _is_taken(world: World, body: bytes, headers: dict[str, str], dies_at: int | None) -> bool:
    """Push a body. Return False if the receiver died before its answer: the partner then repeats the call."""
    world.state["pushed"] += 1
    url = url_of(world, dies_at)
    if url is None:
        return False
    try:
        answer = requests.post(f"{url}/v1/{CLICKS}/events", body, headers=headers, timeout=PATIENCE)
    except requests.ConnectionError:
        bury(world)
        return False
    if not answer.ok:
        raise WorldFailed(f"the receiver answered {answer.status_code}: {answer.text}")
    return True


@act(2)
def stop_receiver(world: World) -> None:
    """Stop the receiver in order: it flushes, unless it dies on the way."""
    if "receiver" in world.state:
        bury(world, signal.SIGTERM)


@act(2, is_fault=True)
def kill_receiver(world: World) -> None:
    """Kill the receiver between two requests."""
    if "receiver" in world.state:
        bury(world, signal.SIGKILL)


@settles
def flush_everything(world: World) -> bool:
    """Let a receiver publish all that earlier ones have taken. Return whether something was pushed."""
    while "receiver" in world.state or world.state["pushed"]:
        if url_of(world):
            was_to_die = world.state["receiver"][2]
            bury(world, signal.SIGTERM)
            if not was_to_die:
                break
    pushed, world.state["pushed"] = world.state["pushed"], 0
    return bool(pushed)


@ends
def end_the_receiver(world: World) -> None:
    """Kill the receiver."""
    kill_receiver(world)

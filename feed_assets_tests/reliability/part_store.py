"""An S3 server that fails and lies for a while: errors, resets before and after it applied a request, cut bodies."""

from contextlib import ExitStack

from feed_assets_tests.reliability.processes import LOCATIONS, tick
from feed_assets_tests.reliability.schedule import act, begins, ends, one_of
from feed_assets_tests.reliability.world import World
from feed_assets_tests.support.s3_proxy import TARGETS, Fault, proxied
from feed_assets_tests.support.servers import S3Server

ENDPOINT = "FEED_ASSETS_S3_ENDPOINT"
KINDS = ("503", "500", "reset before", "reset after", "truncated body", "access denied", "stale list")


@begins
def put_a_proxy_before_the_store(world: World) -> None:
    """Let all requests of the system go through a proxy, if the blackboard is on S3. Outsiders go around it."""
    world.state["network"] = network = ExitStack()
    if endpoint := world.places.environment.get(ENDPOINT):
        world.state["proxy"] = network.enter_context(proxied(S3Server(endpoint, "admin", "admin-secret")))
        world.variables[ENDPOINT] = world.state["proxy"].server.endpoint


@ends
def end_the_proxy(world: World) -> None:
    """Stop the proxy."""
    if network := world.state.get("network"):
        network.close()


@act(
    5, is_fault=True, location=one_of(*LOCATIONS), target=one_of(*TARGETS), kind=one_of(*KINDS), times=one_of(1, 2, 20)
)
def tick_with_a_bad_store(world: World, location: str, target: str, kind: str, times: int) -> None:
    """Tick once while requests of a kind fail. On disk this is a tick as any other."""
    proxy = world.state.get("proxy")
    if proxy:
        proxy.begin(Fault(target, kind, times))
    world.run(tick, location, 1, may_fail=proxy is not None)
    if proxy:
        world.counts["requests that failed"] += proxy.fired
        proxy.begin()

"""Which request gets which target, what the others wait for, and that nobody is overtaken for ever."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from feed_assets.core.allotment import STEP, Nowhere, Placement, QueueEntry, allot
from feed_assets.core.resources import Amount, Resources
from feed_assets.core.target_room import SETTLES, Grant, Probe, Room, Worker, free_of
from feed_assets.core.targets import Kubernetes, Standalone, Yarn
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
GIB = 1 << 30
OFFLINE = "offline since 12:03 UTC (no answer in 2 s)"


def room(free, total=8, *, memory=64, others=0, machines=(), **more):
    """Return a room of which `others` use so many cores, and our own runs the rest that is not free.

    `machines` are those of a cluster, each as its cores and its GiB, with the GiB that are free.
    """
    granted = Amount(total - free - others, (64 - memory) * GIB)
    workers = [Worker(Amount(cores, size * GIB), Amount(cores, left * GIB)) for cores, size, left in machines]
    return Room(Amount(total, 64 * GIB), Amount(free, memory * GIB), granted=granted, workers=workers, **more)


def ask(name="a", cores=4, *, since=NOW, is_history=False, **more):
    resources = Resources(cores=cores, memory=more.pop("memory", f"{cores}g"), **more)
    return QueueEntry(name, resources, is_history, since, f"t/{name}/v1.0")


def one(request, **rooms):
    place = allot([request], rooms, NOW)[request.name]
    return place.target if isinstance(place, Placement) else place


@each_case(
    ("request_", "rooms", "expected"),
    [
        (ask(), {"x": room(8)}, "x"),
        (ask(), {"x": room(4), "y": room(8)}, "y"),
        (ask(), {"x": room(8, 16), "y": room(6, 8)}, "y"),
        (ask(), {"x": room(8, queued=2), "y": room(8)}, "y"),
        (ask(), {"b": room(8), "a": room(8)}, "a"),
        (ask(target="x"), {"x": room(4), "y": room(8)}, "x"),
        (ask(labels=("gpu",)), {"x": room(8), "y": room(4, labels=("gpu", "eu"))}, "y"),
        (ask(memory="9g"), {"x": room(8, memory=8), "y": room(4, memory=9)}, "y"),
        (ask(memory="16g"), {"x": room(8, machines=[(4, 32, 9), (4, 32, 9)]), "y": room(5)}, "x"),
        (ask(memory="16g"), {"x": room(8, machines=[(4, 32, 9), (4, 32, 7)]), "y": room(5)}, "y"),
        (
            ask(memory="16g"),
            {"x": room(8, machines=[(8, 3, 3), (8, 3, 3)])},
            "it needs 4 cores and 16 GiB, but no target is so large: x has 8 cores and 64 GiB, 3 GiB on one machine: "
            "an executor needs 4 GiB",
        ),
        (
            ask(memory="16g"),
            {"x": room(8, machines=[(4, 32, 3), (4, 32, 2), (0, 32, 32)])},
            "it needs 4 cores and 16 GiB: x 8 of 8 cores and 64 GiB of 64 GiB free, at most 3 GiB on a machine "
            "with a free core: an executor needs 4 GiB",
        ),
        (ask(), {"x": room(8, closed=OFFLINE), "y": room(4)}, "y"),
        (
            ask(),
            {"x": room(0), "y": room(8, closed=OFFLINE)},
            f"it needs 4 cores and 4 GiB: x 0 of 8 cores free, y {OFFLINE}",
        ),
        (ask(), {"x": room(3)}, "it needs 4 cores and 4 GiB: x 3 of 8 cores and 64 GiB of 64 GiB free"),
        (ask(), {"x": room(-2)}, "it needs 4 cores and 4 GiB: x 0 of 8 cores free"),
        (ask(cores=1, memory="1g"), {"x": room(0)}, "it needs 1 core and 1 GiB: x 0 of 8 cores free"),
        (
            ask(cores=9),
            {"x": room(8)},
            "it needs 9 cores and 9 GiB, but no target is so large: x has 8 cores and 64 GiB",
        ),
        (ask(target="z"), {"x": room(8)}, "it needs 4 cores and 4 GiB, but FEED_ASSETS_TARGETS has no 'z': it has x"),
        (
            ask(labels=("gpu",)),
            {"x": room(8)},
            "it needs 4 cores and 4 GiB, but no target has the labels gpu: correct them, or FEED_ASSETS_TARGETS",
        ),
        (
            ask(target="x", labels=("gpu",)),
            {"x": room(8), "y": room(8)},
            "it needs 4 cores and 4 GiB, but x has not the labels gpu: correct them, or the target",
        ),
    ],
)
def test_a_request_takes_the_least_busy_target_that_fits_or_says_what_it_waits_for(request_, rooms, expected):
    assert one(request_, **rooms) == expected


@each_case(
    ("queue", "expected"),
    [
        ([ask("old", is_history=True), ask("new")], ["new"]),
        ([ask("low"), ask("high", priority=1)], ["high"]),
        ([ask("second"), ask("first", since=NOW - timedelta(seconds=1))], ["first"]),
        ([ask("low", since=NOW - 2 * STEP), ask("high", priority=1)], ["low"]),
        ([ask("low", since=NOW - STEP), ask("high", priority=2)], ["high"]),
        ([ask("old", is_history=True, since=NOW - 100 * STEP, priority=9), ask("new")], ["new"]),
        ([ask("big", 8, since=NOW - STEP / 2), ask("small", 2)], ["small"]),
        ([ask("big", 8, since=NOW - STEP), ask("small", 2)], []),
        ([ask("big", 8, since=NOW - STEP), ask("small", 2, priority=2)], ["small"]),
        ([replace(ask("elsewhere", 4, priority=1), usable=frozenset("y")), ask("small", 4)], ["small"]),
        ([replace(ask("elsewhere", 8, since=NOW - STEP), usable=frozenset("y")), ask("small", 4)], ["small"]),
    ],
)
def test_new_goes_before_history_then_priority_and_a_long_wait_keeps_a_target(queue, expected):
    places = allot(queue, {"x": room(5)}, NOW)
    assert [name for name, place in places.items() if isinstance(place, Placement)] == expected


def test_a_target_is_kept_for_one_request_and_only_if_the_end_of_our_runs_would_suffice():
    queue = [ask("big", 8, since=NOW - STEP), *(ask(f"small-{number}", 2) for number in range(4))]
    places = allot(queue, {"x": room(6, 8), "y": room(6, 9)}, NOW)
    assert [place.target for place in places.values() if isinstance(place, Placement)] == ["x"] * 3
    waits = [place for place in places.values() if not isinstance(place, Placement)]
    assert waits[-1] == "it needs 2 cores and 2 GiB: x 0 of 8 cores free, y is kept for t/big/v1.0"
    for others in (room(3, others=1), room(8, machines=[(8, 8, 3), (8, 8, 3)])):
        queue = [ask("big", 8, since=NOW - STEP, memory="32g"), ask("small", 2)]
        places = allot(queue, {"x": others}, NOW)
        assert [name for name, place in places.items() if isinstance(place, Placement)] == ["small"]
    beside_a_small_run = room(15, 16, memory=63, machines=[(8, 16, 7), (8, 16, 8)])
    places = allot([ask("big", 1, since=NOW - STEP, memory="12g"), ask("small", 2)], {"x": beside_a_small_run}, NOW)
    assert isinstance(places["small"], Placement), "the end of the small run makes no room for 12 GiB on one machine"


def test_machines_are_filled_by_one_request_after_the_other():
    rooms = {"x": room(8, machines=[(4, 8, 8), (4, 8, 8)])}
    places = allot([ask(name, 2, memory="8g") for name in "abc"], rooms, NOW)
    assert [isinstance(place, Placement) for place in places.values()] == [True, True, False]
    rooms = {"x": room(4, machines=[(2, 2, 2), (2, 2, 2)])}
    places = allot([ask("a", 2, memory="1g"), ask("b", 1, memory="2g")], rooms, NOW)
    assert [isinstance(place, Placement) for place in places.values()] == [True, False], "one executor on each machine"


def test_a_reason_names_the_targets_that_were_compared_and_those_that_the_process_cannot_use():
    place = allot([ask()], {"x": room(0), "y": room(8), "z": room(8, closed=OFFLINE)}, NOW)["a"]
    assert place.reason == (
        "y is the least busy target with room: 8 of 8 cores and 64 GiB of 64 GiB free; x 0 of 8 cores free, "
        f"z {OFFLINE}"
    )
    for may_grow, now in ((True, " now"), (False, "")):
        reason = one(ask(cores=9), x=replace(room(8), may_grow=may_grow))
        assert isinstance(reason, Nowhere) is not may_grow, "a machine that is down for a moment ends no run"
        assert f"no target is so large{now}: x has 8 cores" in reason
    for target, is_nowhere in ((None, False), ("y", True)):
        request = replace(ask(target=target), usable=frozenset("x"))
        reason = one(request, x=room(0), y=room(8, closed="is left to the daemon"))
        assert (isinstance(reason, Nowhere), reason[-24:]) == (is_nowhere, " y is left to the daemon")


@each_case(
    ("free", "given", "expected"),
    [
        (8, [], 8),
        (8, [Grant(Amount(3, GIB))], 5),
        (5, [Grant(Amount(3, GIB), NOW - 2 * SETTLES)], 5),
        (5, [Grant(Amount(3, GIB), NOW - SETTLES / 2)], 2),
        (8, [Grant(Amount(3, GIB), NOW - 2 * SETTLES)], 5),
        (1, [Grant(Amount(3, GIB), NOW - 2 * SETTLES), Grant(Amount(2, GIB))], -1),
    ],
)
def test_free_is_the_answer_less_what_it_cannot_have_seen_and_never_more_than_is_not_given(free, given, expected):
    probe = Probe(NOW, Amount(8, 64 * GIB), Amount(free, 64 * GIB))
    assert free_of(probe, given).cores == expected


@each_case(
    ("target", "resources", "takes", "conf"),
    [
        (
            Standalone(kind="standalone", master="spark://h:7077", url="http://h:8080"),
            Resources(cores=4, memory="8g"),
            Amount(4, 8 * GIB),
            {
                "spark.master": "spark://h:7077",
                "spark.cores.max": "4",
                "spark.executor.cores": "1",
                "spark.executor.memory": "2048m",
            },
        ),
        (
            Yarn(kind="yarn", url="http://h:8088", queue="etl"),
            Resources(cores=2, memory="20g"),
            Amount(3, 23 * GIB),
            {
                "spark.master": "yarn",
                "spark.yarn.queue": "etl",
                "spark.dynamicAllocation.enabled": "false",
                "spark.executor.instances": "2",
                "spark.executor.cores": "1",
                "spark.executor.memory": "10240m",
                "spark.executor.memoryOverhead": "1024m",
            },
        ),
        (
            Kubernetes(kind="kubernetes", url="https://h:6443", namespace="etl", token_file="/t"),
            Resources(),
            Amount(2, GIB + 2 * (384 << 20)),
            {
                "spark.master": "k8s://https://h:6443",
                "spark.kubernetes.namespace": "etl",
                "spark.kubernetes.authenticate.oauthTokenFile": "/t",
                "spark.dynamicAllocation.enabled": "false",
                "spark.executor.instances": "2",
                "spark.executor.cores": "1",
                "spark.executor.memory": "512m",
                "spark.executor.memoryOverhead": "384m",
            },
        ),
    ],
)
def test_a_run_takes_what_its_executors_are_configured_to_take(target, resources, takes, conf):
    assert (target.needs(resources), target.spark(resources)) == (takes, conf)


@each_case(("step", "memory", "takes"), [("1g", "2g", 5), ("512m", "2g", 4 * 1 + 1), ("2g", "2g", 10), ("1g", "4g", 9)])
def test_yarn_counts_each_container_as_a_multiple_of_its_least_allocation(step, memory, takes):
    target = Yarn(kind="yarn", url="http://h:8088", step=step)
    assert target.needs(Resources(cores=4, memory=memory)) == Amount(5, takes * GIB)

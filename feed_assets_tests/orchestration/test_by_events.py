"""A dataset that is built by events: tick by tick, from foreign updates to the run that consumes them."""

from datetime import timedelta

import dagster as dg

from feed_assets import ByEvents, feed_asset
from feed_assets.core.events import WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, due, event_store, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.decisions import due_of, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.watch import keep_alerts
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import by_inputs
from feed_assets_tests.support.ledger_records import waiting
from feed_assets_tests.support.sum_projects import DAY, DAYS, harness, raw_feed, rows

REPORT = Feed.parse("t/report/v1.0")


def made_of(name, **inputs):
    """Build a dataset that passes on its first input."""
    parameters = ", ".join(inputs)
    scope = {}
    exec(f"def function({parameters}): return {next(iter(inputs))}.select('k', 'n')", scope)  # noqa: S102
    return feed_asset(name, partitions_def=DAYS, inputs=inputs)(scope["function"])


def world(**options):
    """Build raw -> a -> b, other -> c, and a report of a, b and c by events."""
    raw, other = raw_feed(), raw_feed("t/other/v1.0")
    a = made_of("t/a/v1.0", raw=raw)
    b = made_of("t/b/v1.0", a=a)
    c = made_of("t/c/v1.0", other=other)
    report = feed_asset(
        "t/report/v1.0", partitions_def=DAYS, inputs={"a": a, "b": b, "c": c}, by_events=ByEvents(**options)
    )(lambda a, b, c: a.unionByName(b).unionByName(c))
    return harness(raw, other, a, b, c, report)


def test_backfills_of_a_dataset_by_events_run_one_partition_each(setting):
    setting(partitions_per_run=7)
    assets = world().definitions.resolve_asset_graph()
    of = {name: assets.get(dg.AssetKey(["t", name])).backfill_policy for name in ("report", "a")}
    assert of == {"report": None, "a": dg.BackfillPolicy.multi_run(7)}


def built(runs):
    return [(run.assets[0].removeprefix("t/"), run.partition) for run in runs]


def ledger():
    return open_ledger(settings().ledger)


def pins(update_id, day=DAY):
    with ledger().read() as connection:
        found = updates.consumed_by(connection, Partition(REPORT, day), update_id)
    return {str(pin.partition.feed): pin.update_id for pin in found}


def events_of(table, day=DAY):
    with ledger().read() as connection:
        found = event_store.newest(connection, 100, Feed.parse(table))
    return [event for event in reversed(found) if event.partition.key == day]


def correlations(table, day=DAY):
    return [event.correlation for event in events_of(table, day)]


def waiting_updates(day=DAY):
    return waiting(ledger(), REPORT).get(day, ())


def test_an_update_is_consumed_once_it_has_reached_every_table():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.drop("t/other/v1.0", DAY, rows(5))
    ran = built(world_.run_until_idle())
    assert ran.count(("report", DAY)) == 1
    assert ran.index(("report", DAY)) == len(ran) - 1
    assert not waiting_updates()


def test_a_pipeline_keeps_the_correlation_id_and_a_report_gets_its_own():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.drop("t/other/v1.0", DAY, rows(5))
    world_.run_until_idle()
    assert correlations("t/raw/v1.0") == correlations("t/a/v1.0") == correlations("t/b/v1.0")
    (report,) = correlations("t/report/v1.0")
    assert report not in correlations("t/raw/v1.0") + correlations("t/other/v1.0")


def test_a_late_update_is_consumed_once_together_with_all_its_tables():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.drop("t/other/v1.0", DAY, rows(5))
    world_.run_until_idle()
    world_.drop("t/raw/v1.0", DAY, rows(1, 2))
    ran = built(world_.run_until_idle())
    assert ran == [("a", DAY), ("b", DAY), ("report", DAY)]
    newest = world_.newest("t/report/v1.0", DAY)
    assert pins(newest)["t/a/v1.0"] == world_.newest("t/a/v1.0", DAY)
    assert pins(newest)["t/b/v1.0"] == world_.newest("t/b/v1.0", DAY)


def test_an_update_without_new_data_passes_every_table_and_starts_no_run():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, {"one": rows(1, 2)})
    world_.drop("t/other/v1.0", DAY, rows(5))
    world_.run_until_idle()
    world_.drop("t/raw/v1.0", DAY, {"one": rows(1), "two": rows(2)})
    assert built(world_.run_until_idle()) == [("a", DAY)]
    assert correlations("t/a/v1.0") == correlations("t/b/v1.0") == correlations("t/raw/v1.0")
    assert len(correlations("t/report/v1.0")) == 2
    assert not waiting_updates()


def test_an_update_on_its_way_names_the_table_that_it_has_not_reached():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.drop("t/other/v1.0", DAY, rows(5))
    world_.run_until_idle()
    world_.drop("t/raw/v1.0", DAY, rows(1, 2))
    said = []
    while ("b", DAY) not in (ran := built(world_.tick())):
        assert ("report", DAY) not in ran
        world_.ask()
        with ledger().read() as connection:
            said += [each.reason for each in due.listed(connection, REPORT)]
    raw = correlations("t/raw/v1.0")[-1]
    assert f"update {raw} of {DAY} has not reached t/b/v1.0 (pipeline t/raw/v1.0)" in said


def test_a_run_reads_the_updates_of_its_request_although_newer_ones_exist():
    world_ = world()
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.drop("t/other/v1.0", DAY, rows(5))
    world_.run_until_idle()
    job = world_.definitions.resolve_implicit_global_asset_job_def()

    def run(assets, **options):
        found = job.execute_in_process(
            instance=world_.instance, partition_key=DAY, asset_selection=[*assets], raise_on_error=False, **options
        )
        assert found.success

    made = dg.AssetKey(["t", "c"])
    world_.drop("t/other/v1.0", DAY, rows(5, 6))
    run([made])
    (request,) = [each for each in world_.ask().requests if each.asset_selection == [dg.AssetKey(["t", "report"])]]
    decided = world_.newest("t/c/v1.0", DAY)
    world_.drop("t/other/v1.0", DAY, rows(5, 6, 7))
    run([made])
    newer = world_.newest("t/c/v1.0", DAY)
    run(request.asset_selection, run_config=request.run_config)
    assert pins(world_.newest("t/report/v1.0", DAY))["t/c/v1.0"] == decided < newer
    world_.run_until_idle()
    assert pins(world_.newest("t/report/v1.0", DAY))["t/c/v1.0"] == newer
    assert not waiting_updates()


def chain_of(a):
    """Build a -> b -> c, and a report of a and c by events."""
    b = made_of("t/b/v1.0", a=a)
    c = made_of("t/c/v1.0", b=b)
    report = feed_asset("t/report/v1.0", partitions_def=DAYS, inputs={"a": a, "c": c}, by_events=ByEvents())(
        lambda a, c: a.unionByName(c)
    )
    return a, b, c, report


def chained():
    """Run that chain on a first update."""
    raw = raw_feed()
    world_ = harness(raw, *chain_of(made_of("t/a/v1.0", raw=raw)))
    world_.drop("t/raw/v1.0", DAY, rows(1))
    world_.run_until_idle()
    return world_


def test_a_roll_back_is_read_once_it_has_passed_the_whole_pipeline():
    world_ = chained()
    second = world_.drop("t/raw/v1.0", DAY, rows(1, 2))
    world_.run_until_idle()
    world_.invalidate("t/raw/v1.0", DAY, second)
    ran = built(world_.run_until_idle())
    assert ran == [("a", DAY), ("b", DAY), ("c", DAY), ("report", DAY)]
    newest = pins(world_.newest("t/report/v1.0", DAY))
    assert newest == {f"t/{name}/v1.0": world_.newest(f"t/{name}/v1.0", DAY) for name in "ac"}
    assert not waiting_updates()


def test_a_middle_dataset_rebuilt_by_hand_is_read_with_its_descendants():
    before = chained()
    raw = raw_feed()

    @feed_asset("t/a/v1.0", partitions_def=DAYS, inputs={"raw": raw})
    def mended(raw):
        return raw.selectExpr("k", "n + 1 AS n")

    world_ = harness(raw, *chain_of(mended), instance=before.instance, give=by_inputs)
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    by_hand = job.execute_in_process(instance=world_.instance, partition_key=DAY, asset_selection=[*mended.keys])
    assert by_hand.success
    assert sorted(built(world_.run_until_idle())) == [("b", DAY), ("c", DAY), ("report", DAY)]
    newest = pins(world_.newest("t/report/v1.0", DAY))
    assert newest == {f"t/{name}/v1.0": world_.newest(f"t/{name}/v1.0", DAY) for name in "ac"}
    assert not waiting_updates()


def source_of(feed, update_id):
    """Return the raw feed's update from which an update was made, through all levels."""
    with ledger().read() as connection:
        made_of = updates.consumed_by(connection, Partition(Feed.parse(feed), DAY), update_id)
    return source_of(str(made_of[0].partition.feed), made_of[0].update_id) if made_of else update_id


def due_now(world_):
    """Return the due events that `events due` and the alerts use."""
    graph = Graph(world_.definitions.resolve_asset_graph())
    with ledger().read() as connection:
        return due_of(graph, connection, [graph.node(REPORT)], world_.now(), {})[Partition(REPORT, DAY)]


def test_an_update_complete_by_events_but_mixed_by_lineage_is_not_due():
    world_ = chained()
    world_.drop("t/raw/v1.0", DAY, rows(1, 2))
    while ("c", DAY) not in built(world_.tick()):
        pass
    world_.ask()
    assert due_now(world_).slices
    taken_back = world_.newest("t/a/v1.0", DAY)
    world_.invalidate("t/a/v1.0", DAY, taken_back)
    sync(world_.board, ledger(), Partition(Feed.parse("t/a/v1.0"), DAY), world_.now())
    found = due_now(world_)
    assert found.slices == ()
    assert "do not belong together" in found.waits


def test_an_update_incomplete_by_events_but_whole_by_lineage_is_due():
    """The event is of `a` alone, and nothing follows from it."""
    world_ = chained()
    last, much_later = events_of("t/a/v1.0")[-1], world_.now() + timedelta(days=2)
    ghost = WriteEvent("t/a/v1.0", last.time + timedelta(seconds=1), last.time, "ghost", partition_key=DAY)
    with ledger().change() as connection:
        event_store.publish(connection, ghost, world_.now())
    graph = Graph(world_.definitions.resolve_asset_graph())
    fan_out_to(graph, [graph.node(REPORT)], ledger(), world_.now(), lambda: False)
    assert [each.correlation for each in waiting_updates()] == ["ghost"]
    assert (due_now(world_).correlations, due_now(world_).incomplete) == (("ghost",), ())
    keep_alerts(graph, ledger(), much_later, lambda: False)
    with ledger().read() as connection:
        assert [each.name for each in alerts.open_alerts(connection)] == []


def test_the_rest_of_a_complete_update_is_not_read_beside_older_data():
    """Its events name `a` and `c`. Before they are read, `a` is invalidated; its previous update is of older data."""
    world_ = chained()
    world_.drop("t/raw/v1.0", DAY, rows(1, 2))
    while ("c", DAY) not in built(world_.tick()):
        pass
    taken_back = world_.newest("t/a/v1.0", DAY)
    world_.invalidate("t/a/v1.0", DAY, taken_back)
    sync(world_.board, ledger(), Partition(Feed.parse("t/a/v1.0"), DAY), world_.now())
    world_.run_until_idle()
    reports = [pins(reported.update_id) for reported in world_.reported("t/report", DAY)]
    assert len(reports) == 2
    assert [len({source_of(*pin) for pin in read.items()}) for read in reports] == [1, 1]
    assert reports[0] == {f"t/{name}/v1.0": world_.newest(f"t/{name}/v1.0", DAY) for name in "ac"}
    assert reports[0]["t/a/v1.0"] > taken_back
    assert not waiting_updates()

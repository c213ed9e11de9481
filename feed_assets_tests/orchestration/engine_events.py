"""Events of runs, as Dagster writes them."""

import dagster as dg


def write_events(instance: dg.DagsterInstance, run_id: str, what: str, count: int) -> None:
    """Write `count` events of a run, and as many materializations to the index."""
    run = instance.get_run_by_id(run_id)
    assert run
    for number in range(count):
        instance.report_engine_event(f"{what} {number}", run)
        instance.report_runless_asset_event(dg.AssetMaterialization(what, partition=str(number)))

"""A cut network: two processes both believe to have a partition, one in `b` and one at the primary. One publishes."""

from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import read
from feed_assets.ledger import places_down, updates
from feed_assets.runs.reconcile import reconcile
from feed_assets_tests.replication.fenced import arrive, build_late, lake_at
from feed_assets_tests.support.build_lake import CLEAN, NOW, REJECTS
from feed_assets_tests.support.feed_processes import processes, start

STEPS = ("pinned", "claimed on the blackboard", "claimed in the ledger", f"manifest of {REJECTS} written")


def test_two_places_that_both_believe_to_have_a_partition_publish_one_update(tmp_path, subtests):
    lake = lake_at(tmp_path)
    for number, step in enumerate(STEPS):
        key, (here, there) = f"day-{number}", processes.Pipe()
        with subtests.test(msg=step):
            arrive(lake, tmp_path, key, "1,2019-11-24 01:00:00\nx,y")
            other = start(build_late, tmp_path, key, step, there)
            assert here.poll(60)
            assert here.recv() == "stands"
            # b is cut off and marked down. Its run is ended in Dagster, so the primary builds the partition.
            places_down.mark(lake.services.ledger, "b", "the network is cut", "ann", NOW)
            reconcile(lake.services, has_ended=lambda run, key=key: run.output.key == key)
            lake.clean(key)
            (published,) = valid(lake, key)
            here.send("the network is back")
            assert here.poll(60)
            assert here.recv() == "abandoned"
            other.join()
            assert valid(lake, key) == [published]
            assert lake.states(CLEAN, key).count(updates.PUBLISHED) == 1
            assert lake.newest(CLEAN, key).id == published


def valid(lake, key) -> list[str]:
    return [each.id for each in read.history(lake.services.board, Partition(CLEAN, key)) if isinstance(each, Update)]


def test_a_process_that_nobody_overtakes_publishes_from_the_place(tmp_path):
    lake, step = lake_at(tmp_path), "undisturbed"
    here, there = processes.Pipe()
    arrive(lake, tmp_path, step, "1,2019-11-24 01:00:00")
    other = start(build_late, tmp_path, step, step, there)
    assert here.poll(60)
    assert here.recv() == "published"
    other.join()
    assert len(valid(lake, step)) == 1

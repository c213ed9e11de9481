"""Leftovers of a killed run."""

import socket

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.feeds import write
from feed_assets.ledger import claims, runs
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, REJECTS, Lake

GONE = f"{socket.gethostname()}:1:-1.00"
OUTPUT, PIN = Partition(CLEAN, DAY), Pin(Partition(RAW, DAY), "20191125.060000", "raw", 7, 1)


def no_spark():
    raise AssertionError("reconciling needs no Spark")


def left_behind(lake: Lake, sealed: int, process: str = GONE, read: Pin = PIN) -> runs.Run:
    """Leave the state of a run that was killed when `sealed` of its two updates, rejects first, had a manifest."""
    board, ledger = lake.services.board, lake.services.ledger
    run = runs.Run(f"run with {sealed}", OUTPUT, runs.RUNNING, process, NOW)
    runs.start(ledger, run)
    partitions = [Partition(feed, DAY) for feed in (REJECTS, CLEAN)]
    claimed = [(partition, write.claim(board, partition, run.id.encode(), NOW)) for partition in partitions]
    with ledger.change() as connection:
        claims.claim(connection, run.id, claimed, [read], "1", NOW)
    for number, (partition, update_id) in enumerate(claimed):
        board.put(f"{partition.path}/{update_id}/part-0", b"rows")
        files = write.listed(board, partition, update_id)
        with ledger.write() as connection:
            claims.stage(connection, write.Update(partition, update_id, files), "version", records=1)
        if number < sealed:
            write.seal(board, partition, update_id, files)
    return run

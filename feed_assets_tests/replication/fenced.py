"""Functions of the processes that build one partition in two places: a module that imports little else."""

from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from feed_assets.core.data_centers import board_key
from feed_assets.core.errors import UpdateAbandoned
from feed_assets.core.setting_types import DataCenter
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.replication.places import Place
from feed_assets.replication.replicator import replicate
from feed_assets.runs.maker import Task
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support.build_lake import NOW, Lake


def plain(board: Blackboard) -> PlainMaker:
    """Return a maker of rows from the raw lines on a blackboard: a line whose id is no number is a reject."""

    def given(task: Task) -> Given:
        files = [file for update in task.updates["raw"] for file in update.files]
        lines = [line for file in files for line in (board.get(file.key) or b"").decode().splitlines()[1:]]
        made = [dict(zip(("id", "at"), line.split(","), strict=True)) for line in lines]
        return Given([each for each in made if each["id"].isdigit()], [each for each in made if each["id"] == "x"])

    return PlainMaker(given)


def lake_at(folder: Path, place: str | None = None) -> Lake:
    """Return a lake whose builds read their inputs at a place. Each process has its own connections."""
    board, copies = (Blackboard.open((folder / name).as_uri(), create=True) for name in ("lake", "b"))
    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}")
    services = Services(board, ledger, lambda: plain(copies if place else board), lambda: NOW)
    return Lake(replace(services, place=place, other_boards={board_key("b"): copies}))


def arrive(lake: Lake, folder: Path, key: str, line: str) -> None:
    """Publish a raw update, and copy it into the place."""
    update = lake.drop(line, key=key)
    services = lake.services
    sync(services.board, services.ledger, update.partition, NOW)
    center = DataCenter(url="file:///b", datasets=("ads/*",))
    place = Place("b", center, Blackboard.open((folder / "b").as_uri()))
    replicate(replace(services, now=lambda: NOW + timedelta(seconds=1)), place)


def build_late(folder: Path, key: str, step: str, pipe: Connection) -> None:
    """Build a partition in the place `b`, and stand still after a step until the other end says to go on."""
    lake = lake_at(folder, "b")

    def stand(reached: str) -> None:
        if reached == step:
            pipe.send("stands")
            pipe.recv()

    try:
        lake.clean(key, services=replace(lake.services, on_step=stand))
        pipe.send("published")
    except UpdateAbandoned:
        pipe.send("abandoned")

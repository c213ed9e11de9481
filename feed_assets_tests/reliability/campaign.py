"""Seeds of the whole system, one after the other: `make faults SEEDS=20 SECONDS=60`.

A seed plays its schedule for some seconds, or for a number of steps, comes to rest, and is judged. What fails is
printed with the command that replays it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from traceback import format_exc

from feed_assets_tests.reliability import checker, schedule, wrong
from feed_assets_tests.reliability.evidence import Evidence
from feed_assets_tests.reliability.processes import LOADS, Life, live, tick
from feed_assets_tests.reliability.world import BEGIN, Places, World, WorldFailed, copied_home
from feed_assets_tests.support.forked_processes import LATER, Forks, forks
from feed_assets_tests.support.servers import BUCKET, PostgreSQL, S3Server
from feed_assets_tests.support.shared_servers import shared

SEEDS_OF_A_VARIANT = 20
"""The most seeds within which a wrong variant must be caught."""


@dataclass(frozen=True)
class Played:
    """One seed: how long it was, what happened, and what the checker objects to."""

    seed: int
    steps: int
    counts: Counter[str]
    objections: list[str]
    seconds: float


@dataclass(frozen=True)
class Stage:
    """The processes, the servers and the prepared home that all seeds share."""

    forks: Forks
    folder: Path
    template: Path
    servers: ExitStack

    def places(self, seed: int, folder: Path) -> Places:
        """Return the stores of a seed: every second ledger is on PostgreSQL, and two of four blackboards on S3."""
        board, ledger = (folder / "home" / "blackboard").as_uri(), f"sqlite:///{folder / 'home' / 'ledger.db'}"
        environment = dict[str, str]()
        if seed % 2:
            address = self.servers.enter_context(shared("postgresql", self.folder))
            ledger = PostgreSQL(**address).database()
        if seed % 4 > 1:
            server = S3Server(**self.servers.enter_context(shared("seaweedfs", self.folder)))
            board, environment = f"s3://{BUCKET}/{folder.name}", {"FEED_ASSETS_S3_ENDPOINT": server.endpoint}
            os.environ.update(server.env)
        return Places(board, ledger, environment)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Start a process that forks all others, and make a home with empty databases. Restore the environment."""
    before = {**os.environ}
    os.environ[LOADS] = "1"
    try:
        with ExitStack() as servers, forks(*LATER, "feed_assets_tests.reliability.processes") as started:
            template = folder / "template"
            template.mkdir(0o700)
            made = World(folder, started, Places((template / "blackboard").as_uri(), f"sqlite:///{template}/ledger.db"))
            (template / "blackboard").mkdir()
            yield Stage(started, folder, _filled(made, template), servers)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _filled(world: World, template: Path) -> Path:
    with world.environment():
        os.environ["DAGSTER_HOME"] = str(template)
        code = world.forks.run(live, Life(BEGIN, None, None), tick, "shop", 0)
    if code:
        raise WorldFailed(world.log())
    return template


def play(stage: Stage, seed: int, *, steps: int = 10**6, seconds: float = 60, variant: str = "") -> Played:
    """Play a seed in a new world, and judge it."""
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=stage.folder))
    copied_home(stage.template, folder)
    places = stage.places(seed, folder)
    world, parts = World(folder, stage.forks, places, variant=variant), schedule.loaded()
    objections = list[str]()
    try:
        for begins in sorted(parts.begins, key=lambda each: each.__name__):
            begins(world)
        for step in schedule.schedule(seed):
            if step.number > steps or time.monotonic() - began > seconds:
                break
            world.play(step)
        world.settle()
        objections = checker.check(Evidence(folder, places.blackboard))
    except Exception as failed:  # noqa: BLE001  (a part that fails is a failing seed as well)
        objections = [str(failed) if isinstance(failed, WorldFailed) else format_exc()]
    finally:
        for ends in parts.ends:
            ends(world)
    if not objections:
        rmtree(folder)
    return Played(seed, world.step, world.counts, objections, time.monotonic() - began)


def caught(stage: Stage, variant: str, steps: int) -> Played:
    """Play seeds with a wrong variant until the checker objects. Return the last one that was played."""
    for seed in range(SEEDS_OF_A_VARIANT):
        played = play(stage, seed, steps=steps, seconds=10**6, variant=variant)
        if found := [each for each in played.objections if each.startswith(f"{wrong.breaks[variant]}: ")]:
            return replace(played, objections=found)
    raise AssertionError(f"{SEEDS_OF_A_VARIANT} seeds have not shown that {variant} breaks {wrong.breaks[variant]}")


def main() -> int:
    """Play the seeds that the command line names. Return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--variants", nargs="*", default=None, help="wrong variants that must be caught; none: all")
    asked = parser.parse_args()
    total, failed = Counter[str](), 0
    folder = Path(tempfile.mkdtemp(prefix="whole-"))
    with stage(folder) as ready:
        if asked.variants is not None:
            for variant in asked.variants or sorted(wrong.variants):
                played = caught(ready, variant, min(asked.steps, 40))
                _say(f"{variant}: caught by seed {played.seed} in {played.seconds:.0f} s: {played.objections[0][:300]}")
            return 0
        for seed in range(asked.first, asked.first + asked.seeds):
            played = play(ready, seed, steps=asked.steps, seconds=asked.seconds)
            total += played.counts
            failed += bool(played.objections)
            _say(f"seed {seed}: {played.steps} steps in {played.seconds:.0f} s, {len(played.objections)} objections")
            for each in played.objections:
                _say(f"  {each}")
            if played.objections:
                _say(f"  replay: make faults FIRST={seed} SEEDS=1 STEPS={played.steps} SECONDS=100000; see {folder}")
    _say(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    if not failed:
        rmtree(folder)
    return int(bool(failed))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""What processes hold: memory, descriptors, threads, connections and temporary files, and whether it grows."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression

import psutil


@dataclass(frozen=True)
class Use:
    """What some processes hold at a moment. `memory` is their resident memory in bytes."""

    memory: int = 0
    descriptors: int = 0
    threads: int = 0
    connections: int = 0
    files: int = 0

    def __add__(self, other: "Use") -> "Use":
        """Return the sum of both."""
        one, two = asdict(self), asdict(other)
        return Use(**{name: one[name] + two[name] for name in one})


def use_of(processes: Iterable[psutil.Process], folders: Iterable[Path] = ()) -> Use:
    """Return what the processes hold that still run, and the number of files in folders for temporary files."""
    total = Use(files=sum(each.is_file() for folder in folders for each in folder.rglob("*")))
    for each in processes:
        with suppress(psutil.NoSuchProcess), each.oneshot():
            connections = len(each.net_connections("inet"))
            total += Use(each.memory_info().rss, each.num_fds(), each.num_threads(), connections)
    return total


def slope(values: Sequence[float]) -> float:
    """Return by how much the values grow from one to the next, by a line through all of them."""
    return linear_regression(range(len(values)), values).slope


def growing(samples: Sequence[Use], memory: float) -> list[str]:
    """Return what grows, without the first third of the samples, in which caches fill.

    `memory` are the bytes that may be added between two samples. Of all else, less than one in all may be added.
    """
    steady = [asdict(each) for each in samples[len(samples) // 3 :]]
    slopes = {name: slope([each[name] for each in steady]) for name in steady[0]}
    limits = {name: memory if name == "memory" else 1 / len(steady) for name in slopes}
    return [
        f"{name} grows by {grown:,.3f} from sample to sample: {steady[0][name]:,} to {steady[-1][name]:,}"
        for name, grown in slopes.items()
        if grown > limits[name]
    ]

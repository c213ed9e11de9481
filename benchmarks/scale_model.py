"""The oracle of the simulation of scale: what is there, what each output was made of, and which runs are wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from benchmarks.scale_graph import BEGIN, ID, VERSION, ScaleGraph, partition
from feed_assets.core.feeds import Partition


class Newest(NamedTuple):
    """The newest update of a partition."""

    id: str
    version: str
    size: int


HISTORY = Newest(ID, VERSION, 4)


@dataclass
class Model:
    """Everything that was published, in plain dictionaries. What began before `begins` is history, and complete."""

    scale: ScaleGraph
    begins: datetime
    wrong: list[str] = field(default_factory=list[str])
    _newest: dict[Partition, Newest] = field(default_factory=dict[Partition, Newest])
    _read: dict[Partition, tuple[str, ...]] = field(default_factory=dict[Partition, tuple[str, ...]])

    def newest(self, at: Partition) -> Newest | None:
        """Return the newest update of a partition, or None if nothing was published."""
        return self._newest.get(at) or (HISTORY if self._is_history(at) else None)

    def arrived(self, at: Partition, now: datetime, data: str) -> Newest:
        """Publish an update of a foreign partition. `data` is "again" for the same data as before."""
        before = self.newest(at)
        same = data == "again" and before is not None
        version = before.version if before and same else sha256(f"{at.path} {data}".encode()).hexdigest()[:16]
        self._newest[at] = Newest(self.id_of(at, now), version, before.size if before and same else 4)
        return self._newest[at]

    def published(self, output: Partition, now: datetime, read: tuple[str, ...], version: str) -> Newest:
        """Publish an update of an output that was made of these versions."""
        self._newest[output] = Newest(self.id_of(output, now), version, 4)
        self._read[output] = read
        return self._newest[output]

    def id_of(self, at: Partition, now: datetime) -> str:
        """Return a greater update id than the partition's newest one."""
        before = self._newest.get(at)
        new = f"{now:%Y%m%d.%H%M%S}"
        return new if before is None or before.id < new else f"{before.id[:-6]}{int(before.id[-6:]) + 1:06}"

    def inputs(self, output: Partition) -> list[Partition]:
        """Return the partitions that an output reads."""
        return [partition(name, output.key) for name in self.scale.inputs[str(output.feed)]]

    def now(self, output: Partition) -> tuple[str, ...] | None:
        """Return the versions that a run would read now, or None if an input is not there."""
        found = [self.newest(each) for each in self.inputs(output)]
        return None if None in found else tuple(each.version for each in found if each)

    def judge(self, output: Partition, is_running: bool) -> None:
        """Note a requested run as wrong if an input is not there, if nothing is new, or if the output is being made."""
        now = self.now(output)
        if now is None:
            self.wrong.append(f"{output}: an input is not there")
        elif is_running:
            self.wrong.append(f"{output}: a run builds it already")
        elif now == self._read.get(output, self._of_history(output)):
            self.wrong.append(f"{output}: nothing is new")

    def missed(self) -> list[str]:
        """Return the outputs that are not what their inputs would give now. Call this when nothing runs any more."""
        keys = {at.key for at in self._newest}
        outputs = [partition(name, key) for name in self.scale.inputs for key in keys]
        return [
            str(each)
            for each in outputs
            if (now := self.now(each)) is not None and now != self._read.get(each, self._of_history(each))
        ]

    def _of_history(self, output: Partition) -> tuple[str, ...] | None:
        return (VERSION,) * len(self.inputs(output)) if self._is_history(output) else None

    def _is_history(self, at: Partition) -> bool:
        return BEGIN <= datetime.fromisoformat(f"{at.key[:10]}T{at.key[11:16]}+00:00") < self.begins


def version_of(output: Partition, read: tuple[str, ...], more: Mapping[str, str]) -> str:
    """Return the version of an output's rows, which depends on what was read and on `more`."""
    return sha256(f"{output.path} {read} {sorted(more.items())}".encode()).hexdigest()[:16]

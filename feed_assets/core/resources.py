"""Amounts of compute resources: what each run of a dataset needs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from feed_assets.core.argument_types import Positive, rule
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.typed import typed

_MEMORY = re.compile("([1-9][0-9]{0,9})([mgt])")
_UNITS = {"m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PER_CORE = 512 << 20
"""The least memory of a core, in bytes. Spark starts no executor with less than 450 MiB."""

_OF_MEMORY, _OF_FILES = "memory as a text, such as '512m' or '4g'", "a size as a text, such as '256m' or '1g'"
MemoryText = Annotated[str, Example("'512m'", _OF_MEMORY), rule(_MEMORY.fullmatch, _OF_MEMORY)]
"""An amount of memory in Spark's form, whose units are powers of 1024."""

SizeText = Annotated[str, Example("'256m'", _OF_FILES), rule(_MEMORY.fullmatch, _OF_FILES)]
"""A size of files in the same form."""


def bytes_of(memory: str) -> int:
    """Return the bytes of a memory text, such as 4g. Raise ValueError for another text."""
    if not (match := _MEMORY.fullmatch(memory)):
        raise ValueError(f"found {memory!r}, expected memory as Spark writes it, such as 512m or 4g")
    return int(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Amount:
    """An amount of compute resources: cores, and bytes of memory."""

    cores: int
    memory: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.cores + other.cores, self.memory + other.memory)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.cores - other.cores, self.memory - other.memory)

    def holds(self, other: "Amount") -> bool:
        """Return whether the other amount fits into this one."""
        return other.cores <= self.cores and other.memory <= self.memory

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{cores} and {in_gib(self.memory)}"


NOTHING = Amount(0, 0)


def in_gib(memory: int) -> str:
    """Return an amount of memory in words, in GiB."""
    return f"{memory / (1 << 30):.4g} GiB"


@typed
@dataclass(frozen=True)
class Resources:
    """The compute resources that each run of a dataset needs, and the targets that may provide them.

    They are in force if FEED_ASSETS_TARGETS is set. A run of many partitions needs them only once.

    Source: "Data Dependency Driven Orchestration" (2021), "wait for resources".

    Args:
        cores: Cores of all executors together.
        memory: Memory of all executors together, such as `8g`; at least 512m for each core.
        target: The name of the only target that may provide them. The default is any target that fits.
        labels: Labels that the target must have, such as `gpu`.
        priority: Datasets with a greater number come first. New partitions come before history, whatever the number.
        learned: Whether a run with more input than usual gets more cores. The memory for each core stays the same.

    Raises:
        InvalidDefinition: A value is of a wrong type or too small.
    """

    cores: Positive = 2
    memory: MemoryText = "1g"
    target: str | None = None
    labels: Sequence[str] = ()
    priority: int = 0
    learned: bool = False

    def __post_init__(self) -> None:
        if self.target == "":
            raise InvalidDefinition(
                "Resources: target is '', expected a name in FEED_ASSETS_TARGETS. Leave it out for any target."
            )
        if self.amount.memory < self.cores * _PER_CORE:
            raise InvalidDefinition(
                f"Resources: memory is {self.memory} for {self.cores} cores, expected at least "
                f"{self.cores * _PER_CORE >> 20}m: 512m for each core. Ask for more memory or fewer cores."
            )

    @property
    def amount(self) -> Amount:
        """Return the cores and the bytes of memory."""
        return Amount(self.cores, bytes_of(self.memory))

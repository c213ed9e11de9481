"""The schedule of a seed: acts with all their arguments, drawn from the seed alone."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feed_assets_tests.reliability.world import World

Drawn = dict[str, Any]
Do = Callable[..., None]

SKEWS = (0, 0, 0, 0, 0, 0, -40, -3 * 3600, 90, 3 * 3600)
"""Seconds by which the clock of a process differs from that of the world."""


@dataclass(frozen=True)
class Act:
    """A kind of act: how often it is chosen, how its arguments are drawn, and what it does."""

    name: str
    weight: int
    draw: Callable[[Random], Drawn]
    do: Do
    is_fault: bool


@dataclass(frozen=True)
class Step:
    """One act of a schedule. Before it the world's clock moves on by `pause` seconds."""

    number: int
    act: str
    pause: int
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.number}. after {self.pause} s {self.act}({said})"


@dataclass
class Parts:
    """Everything that the files `part_….py` add to the world."""

    acts: dict[str, Act] = field(default_factory=dict[str, Act])
    begins: list[Callable[["World"], None]] = field(default_factory=list[Callable[["World"], None]])
    settles: list[Callable[["World"], bool]] = field(default_factory=list[Callable[["World"], bool]])
    ends: list[Callable[["World"], None]] = field(default_factory=list[Callable[["World"], None]])


_parts = Parts()


def act(weight: int, *, is_fault: bool = False, **drawn: Callable[[Random], Any]) -> Callable[[Do], Do]:
    """Register a function of the world as an act. Each argument is drawn by a function of the random numbers."""

    def register(do: Do) -> Do:
        def draw(random: Random) -> Drawn:
            return {name: each(random) for name, each in drawn.items()}

        _parts.acts[do.__name__] = Act(do.__name__, weight, draw, do, is_fault)
        return do

    return register


def begins(function: Callable[["World"], None]) -> Callable[["World"], None]:
    """Register what a part does before the first act."""
    _parts.begins.append(function)
    return function


def settles(function: Callable[["World"], bool]) -> Callable[["World"], bool]:
    """Register what a part does after the last act, again and again until no part has an effect any more."""
    _parts.settles.append(function)
    return function


def ends(function: Callable[["World"], None]) -> Callable[["World"], None]:
    """Register what a part does when the world ends, also after an error."""
    _parts.ends.append(function)
    return function


@cache
def loaded() -> Parts:
    """Return all parts: each is a file `part_….py` of this folder."""
    for file in sorted(Path(__file__).parent.glob("part_*.py")):
        import_module(f"{__package__}.{file.stem}")
    return _parts


def schedule(seed: int) -> Iterator[Step]:
    """Yield the endless schedule of a seed."""
    random, acts = Random(seed), sorted(loaded().acts.values(), key=lambda each: each.name)  # noqa: S311
    for number in count(1):
        (chosen,) = random.choices(acts, [each.weight for each in acts])
        pause = random.choice((1, 5, 30, 120, 600))
        yield Step(number, chosen.name, pause, chosen.draw(random))


def one_of(*values: Any) -> Callable[[Random], Any]:
    """Return a draw of one of these values."""
    return lambda random: random.choice(values)


def below(number: int) -> Callable[[Random], int]:
    """Return a draw of a number from 0 on, below this one."""
    return lambda random: random.randrange(number)


def death(most: int, *, share: float) -> Callable[[Random], int | None]:
    """Return a draw of the change at which a process is killed; None for a process that lives."""
    return lambda random: int(most ** random.random()) if random.random() < share else None

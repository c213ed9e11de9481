"""Shapes of a lake: the datasets, and the inputs of each."""

from dataclasses import dataclass

from feed_assets.core.feeds import Feed
from feed_assets.core.propagation import Consumer

REPORT = "report"


@dataclass(frozen=True)
class Shape:
    """Datasets of a lake by their inputs, inputs first. A name without inputs is a source."""

    made_of: dict[str, str]
    reads: str
    coarse: str = ""
    """Datasets whose rows often stay the same."""

    def origin(self, name: str) -> str:
        above = sorted({self.origin(each) for each in self.made_of.get(name, "")})
        return name if not above else above[0] if len(above) == 1 else f"({' + '.join(above)})"

    @property
    def consumer(self) -> Consumer:
        named: dict[str, frozenset[Feed]] = {}
        for name in self.reads:
            named[self.origin(name)] = named.get(self.origin(name), frozenset()) | {Feed.parse(name)}
        return Consumer(Feed.parse(REPORT), frozenset(map(Feed.parse, self.reads)), named)


SHAPES = {
    "chain": Shape({"a": "r", "b": "a", "c": "b"}, "ac"),
    "chain with equal rows": Shape({"a": "r", "b": "a", "c": "b"}, "ac", coarse="b"),
    "longer chain with equal rows": Shape({"a": "r", "b": "a", "c": "b", "d": "c"}, "ad", coarse="bc"),
    "diamond": Shape({"a": "r", "b": "a", "c": "a", "d": "bc"}, "bd"),
    "diamond with equal rows": Shape({"a": "r", "b": "a", "c": "a", "d": "bc"}, "abcd", coarse="abc"),
    "two ways": Shape({"a": "r", "b": "r", "c": "ab", "d": "c"}, "ad", coarse="b"),
    "two sources": Shape({"a": "r", "b": "rs", "c": "b", "e": "s"}, "bce", coarse="c"),
    "the source itself": Shape({"a": "r", "b": "a"}, "rb", coarse="a"),
}

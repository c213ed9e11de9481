"""Changes of window counts: new reports minus the reports that they replace."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Delta:
    """Change of a window's counts: records and numbers of reports, for ingested data and for each source."""

    records: int = 0
    parts: int = 0
    sources: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    data: int = 0

    def add(self, tier: str, records: int, parts: int, data: int) -> None:
        """Add what one report counts, and a digest of the report. With negative numbers, subtract an earlier report."""
        self.parts += parts
        if not tier:
            self.records, self.data = self.records + records, self.data + data
            return
        add_source(self.sources, tier, records, parts)

    def merge(self, other: "Delta", *, is_base: bool) -> None:
        """Add another delta of the same window, or of a smaller window inside it.

        Only a base window, whose counts come from reports, keeps the counts of its sources.
        """
        self.records, self.parts = self.records + other.records, self.parts + other.parts
        self.data += other.data
        for tier, counted in other.sources.items() if is_base else ():
            add_source(self.sources, tier, *counted)


def add_source(sources: dict[str, tuple[int, int]], tier: str, records: int, parts: int) -> None:
    """Add a number of records and of reports to the sums of a tier (a counter at the source)."""
    before = sources.get(tier, (0, 0))
    sources[tier] = before[0] + records, before[1] + parts
